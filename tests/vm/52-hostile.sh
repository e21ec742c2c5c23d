#!/bin/sh
# A VM that belongs to an enemy, with all rights inside: it takes the port to its keeper for itself and sends floods and
# wrong frames; it opens streams and prints without end; it fills its disk and its memory and forks without end. Other
# sessions and the tree are answered all the time, what is outside holds little for it, and it can be ended.
# tests/bench/hostile.sh has the figures. time limit: 1800 s
. "$(dirname "$0")/../lib.sh"
cp "$ROOT/tests/vm/hostile_guest.py" "$P/" && git -C "$P" add . && git -C "$P" commit -qm hostile
use_vm
echo "sandbox.allow-dir = yes" >>"$T/config/berthfs/config"
i=0
while [ $i -lt 40 ]; do
	i=$((i + 1))
	echo '{"tools":[{"name":"bash","input":{"command":"echo here"}}]}'
	echo "{\"text\":\"answer $i\"}"
done >"$T/script"
start || exit 1

new() { (cd "$P" && printf -- '---\nsandbox: %s\nmodel: script:%s\n---\ngo\n' "$2" "$3" >"$S/new/$1"); }
answered() { # answered NAME N: its N-th message
	[ "$2" = 1 ] || { timeout 300 cat "$S/$1/wait/idle" >/dev/null && echo go on >>"$S/$1/input"; }
	equal "$3" "$(timeout 300 cat "$S/$1/wait/reply")" "answer $2"
}
anon() { awk '/^RssAnon/ { print $2 }' "/proc/$1/status"; } # KiB
came() { sed -n 's/^rchar: //p' "/proc/$1/io"; }             # bytes that it has read
keeper() { cut -d' ' -f1 "$T/state/berthfs/sandboxes/$1/keeper.pid" 2>/dev/null; }
disk() { du -k "$T/state/berthfs/sandboxes/$1/disk.qcow2" | cut -f1; }
reads_much() { [ "$(came "$guest")" -gt $((before + 8000000)) ]; }
disk_grows() { [ "$(disk "$id")" -gt $((before + 16384)) ]; }
# little WHO PID MOST-KIB
little() {
	little_now=$(anon "$2")
	[ "${little_now:-0}" -lt "$3" ] || not_ok "$what: $1 holds $little_now KiB"
}
ended() { ! [ -e "$T/state/berthfs/sandboxes/$id" ]; }

new calm dir "$T/script"
new neighbour vm "$T/script"
answered calm 1 "a session on the machine itself"
answered neighbour 1 "and one in a VM of its own"
timeout 300 cat "$S/neighbour/wait/idle" >/dev/null
gateway=$(gateway_pid)
held_daemon=$(anon "$DAEMON") held_gateway=$(anon "$gateway")
n=1
for what in port streams machine; do
	echo '{"tools":[{"name":"bash","input":{"command":"exec sudo python3 hostile_guest.py '$what'"}}]}' >"$T/$what"
	new "$what" vm "$T/$what"
	id=$(cat "$S/$what/id")
	at_work() { grep -q '^running bash' "$S/$what/status"; }
	check "$what: it is let in" within 300 at_work
	guest=$(keeper "$id")
	if [ $what = machine ]; then
		before=$(disk "$id")
		check "$what: it does its worst" within 600 disk_grows
	else
		before=$(came "$guest")
		check "$what: it does its worst" within 600 reads_much
	fi
	for round in 1 2 3; do
		n=$((n + 1))
		answered calm $n "$what: another session is answered, $round"
		answered neighbour $n "$what: and one in another VM"
		check "$what: the tree is read" timeout 300 sh -c "grep -rq here '$S/calm'"
		check "$what: also where it is" timeout 300 sh -c "cat '$S/$what/status' >/dev/null"
		little "its keeper" "$guest" 98304
		little "the daemon" "$DAEMON" $((held_daemon + 65536))
		little "the gateway" "$gateway" $((held_gateway + 65536))
	done
	note "$what: the keeper holds $(anon "$guest") KiB, the daemon $(anon "$DAEMON") after $held_daemon, the gateway $(anon "$gateway") after $held_gateway"
	is_ours "$guest" && ok "$what: its keeper lives" || not_ok "$what: its keeper lives"
	echo "destroy force" >"$S/$what/ctl"
	check "$what: it is gone from the tree" test ! -e "$S/$what"
	check "$what: and from the machine" within 300 ended
	within 60 is_gone "$guest" || not_ok "$what: its keeper stays"
done
equal "the gateway is the same" "$(gateway_pid)" "$gateway"
