#!/bin/sh
# Somebody has cleared the cache with the template that a VM's disk lies on. A VM that runs goes on; one that is down or
# on disk says why it cannot come back, and does when the template is there again. time limit: 900 s
. "$(dirname "$0")/../lib.sh"
mkdir "$P/.agents"
echo 'echo made >~/made; sync' >"$P/.agents/setup"
(cd "$P" && git add . && git commit -qm setup)
i=0
while [ $i -lt 8 ]; do
	i=$((i + 1))
	echo '{"tools":[{"name":"bash","input":{"command":"[ -s ~/pid ] || (setsid sleep 100000 >/dev/null 2>&1 & echo $! >~/pid); sleep 0.2; cat ~/made; readlink /proc/$(cat ~/pid)/exe || echo no process"}}]}'
	echo "{\"text\":\"answer $i\"}"
done >"$T/script"
use_vm
start || exit 1
idle() { timeout 300 cat "$S/s/wait/idle" >/dev/null; }
sandbox_is() { [ "$(cat "$S/s/sandbox")" = "$1" ]; }
lowered() { # refused while the guest has not closed its end of the last connection, so it is asked again
	echo $how >"$S/s/ctl"
	idle
	sandbox_is "vm down" || sandbox_is "vm hibernated"
}
clear() { mv "$dir" "$T/aside" && mkdir "$dir"; }
restore() { rm -r "$dir" && mv "$T/aside" "$dir"; }
failed() { grep -q "^failed: .*the template that this VM's disk was made from is gone" "$S/s/status"; }
# message N NAME: it is answered
message() {
	[ "$1" = 1 ] || echo more >>"$S/s/input"
	equal "$2" "$(timeout 300 cat "$S/s/wait/reply")" "answer $1"
	idle
}
(cd "$P" && echo go >"$S/new/s")
message 1 "a session begins with a template"
contains "which was set up" "$(cat "$S/s/transcript")" made
dir=$(own_templates)
check "there is a template" test -n "$(ls "$dir"/[0-9]*/disk.qcow2)"

clear
message 2 "cleared while it runs: it goes on"
restore

n=2
for how in hibernate down; do
	within 120 lowered || not_ok "$how: $(cat "$S/s/sandbox")"
	clear
	n=$((n + 1))
	echo more >>"$S/s/input"
	check "cleared, $how: it fails and says why" within 300 failed
	contains "cleared, $how: error too" "$(cat "$S/s/error")" "is gone"
	restore
	echo retry >"$S/s/ctl"
	equal "$how: with the template there, it is answered" "$(timeout 300 cat "$S/s/wait/reply")" "answer $n"
	idle
	said=$(tail -n 12 "$S/s/transcript")
	contains "$how: with its files" "$said" made
	[ $how = down ] || contains "$how: with what ran" "$said" /sleep
done
