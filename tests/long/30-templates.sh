#!/bin/sh
# kill -9 of QEMU and of its keeper at each step of a template in a VM: the session is answered all the same, or says why
# it failed and a retry works; no template is half of one. time limit: 3600 s
. "$(dirname "$0")/../lib.sh"
use_vm
echo "sandbox.boot-timeout = 120" >>"$T/config/berthfs/config"
mkdir "$P/.agents"
printf 'echo setting up\nsleep 3\necho made >>made\nsync\n' >"$P/.agents/setup"
echo /made >"$P/.gitignore"
(cd "$P" && git add . && git commit -qm setup)
echo '{"tools":[{"name":"bash","input":{"command":"cat made | wc -l; git status --porcelain; git log -1 --format=%s; sudo dmesg | grep -ci ext4.*recover"}}]}' >"$T/script"
echo '{"text":"done"}' >>"$T/script"

# victims WHAT: processes of builds (their sandboxes' numbers are long). WHAT: qemu-system or vm-keeper
victims() {
	for dir in /proc/[0-9]*; do
		line=$({ tr '\0' ' ' <"$dir/cmdline"; } 2>/dev/null) || continue
		case $line in
		$1*"$T/state/berthfs/sandboxes/10995"* | *" $1 "*"$T/state/berthfs/sandboxes/10995"*) echo "${dir#/proc/}" ;;
		esac
	done
}
at_step() { grep -q "^preparing $2" "$S/$1/status"; }
over() { grep -q '^idle\|^asking\|^failed' "$S/$1/status"; }

start || exit 1
for what in qemu-system vm-keeper; do
	for step in starting cloning installing saving; do
		name=$what-$step
		(cd "$P" && echo "$name" >b.txt && echo "# $name" >>.agents/setup && git add . && git commit -qm "$name" && echo hello >"$S/new/$name")
		within 600 at_step "$name" "$step" || not_ok "$name: it comes so far"
		killed=
		for try in 1 2 3 4 5 6 7 8 9 10; do
			for pid in $(victims $what); do kill -9 "$pid" 2>/dev/null && killed=1; done
			[ -n "$killed" ] && break
			sleep 0.1 # it is just being started, or has just ended
		done
		note "$name: $(cat "$S/$name/status"), killed: ${killed:-no}"
		within 900 over "$name" || not_ok "$name: it comes to an end"
		if grep -q '^failed' "$S/$name/status"; then
			note "$(cat "$S/$name/status")"
			echo retry >"$S/$name/ctl"
			within 900 over "$name"
		fi
		timeout 300 cat "$S/$name/wait/idle" >/dev/null
		contains "$name: it is set up" "$(cat "$S/$name/transcript")" "1
$name
0"
		equal "$name: its template is ready" "$(cat "$M"/templates/*"$(git -C "$P" rev-parse --short=12 HEAD)"/status)" ready
		echo "destroy force" >"$S/$name/ctl"
	done
done
for disk in "$(own_templates)"/*/disk.qcow2; do check "its disk is sound" qemu-img check -q "$disk"; done
