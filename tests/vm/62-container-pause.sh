#!/bin/sh
# A container that stands still, as sandbox.h has it: what runs in it, who wakes it, what dies meanwhile. By a group that
# is frozen, and where there is none by signals. time limit: 600 s
. "$(dirname "$0")/../lib.sh"
BOXCTL=$(dirname "$BERTHFS")/tests/boxctl
BOX_CACHE=$IMAGES/berthfs
export BERTHFS BOX_CACHE
how= # what a call is made in
box() { verb=$1; shift; timeout 250 $how "$BOXCTL" "$verb" container "$@"; }
inside() { box run 1 "$1"; }
state_is() { [ "$(box state 1)" = "container $1" ]; }
finish_boxes() { box destroy 1 2>/dev/null; }
trap 'finish_boxes; finish' EXIT
D=$XDG_STATE_HOME/berthfs/sandboxes/1
keeper() { cut -d' ' -f1 "$D/keeper.pid"; }
below() { ps -o pid= --ppid "$1" | tr -d ' '; }
jail() { ps -o pid=,comm= --ppid "$(keeper)" | awk '$2 == "bwrap" { print $1 }'; }
init() { below "$(jail)"; }
groups() { find /sys/fs/cgroup -maxdepth 5 -type d -name "$(printf 'berthfs-%x-%x' "$(stat -c %d "$D")" "$(stat -c %i "$D")")" 2>/dev/null; }
frozen() { groups | while read -r dir; do [ -f "$dir/cgroup.events" ] && grep -q 'frozen 1' "$dir/cgroup.events" && echo yes; done | grep -q yes; }
# counter: what a busy loop inside has counted to, read from outside
layer=$D/root
counter() { cat "$layer/home/agent/count"; }
all_stopped() { [ "$(ps -o stat= --ppid "$(init)" | cut -c1 | grep -v Z | sort -u)" = T ]; }
has_moved() { [ "$(counter)" != "$moves_was" ]; }
moves() { moves_was=$(counter); within 60 has_moved; }

lives() { # lives WAY
	box up 1 "$T/gateway.sock" 2>"$T/up" || not_ok "$1: a container"
	equal "$1: it runs" "$(box state 1)" "container running"
	# a loop that counts, a shell with a job in its foreground, a process that somebody has stopped
	inside 'rm -f count shell stopped pid
(setsid python3 -c "
import os, time
n = 0
while True:
    n += 1
    open(\"count.new\", \"w\").write(str(n)); os.rename(\"count.new\", \"count\"); time.sleep(0.01)" >/dev/null 2>&1 & echo $! >pid)
(setsid bash -mc "sleep 100000; echo \$? >shell" >/dev/null 2>&1 &)
(setsid sleep 100001 >/dev/null 2>&1 & echo $! >stopped); until [ -s count ]; do sleep 0.1; done; kill -STOP $(cat stopped)'
	check "$1: it counts" moves
	within 60 box pause 1 2>/dev/null || not_ok "$1: it is paused"
	equal "$1: it says so" "$(box state 1)" "container paused"
	check "$1: again is no mistake" box pause 1
	# on a busy machine the last of them stands still a moment later
	[ "$1" = signals ] || check "$1: its group is frozen" within 60 frozen
	[ "$1" = freezer ] || check "$1: its processes are stopped" within 60 all_stopped
	was=$(counter) ticks=$(cat "/proc/$(init)/stat" | cut -d' ' -f14,15)
	for i in 1 2 3 4 5 6 7 8 9 10; do box state 1 >/dev/null; done
	python3 -c 'import socket, sys
for i in range(20):
    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.close()' "$XDG_RUNTIME_DIR/berthfs/1.sock"
	equal "$1: who only looks, or says nothing, wakes nobody" "$(counter)" "$was"
	equal "$1: it is still paused" "$(box state 1)" "container paused"
	[ "$1" = freezer ] || [ -n "$how" ] || equal "$1: no group is frozen" "$(frozen && echo yes)" ""
	equal "$1: a call lets it go on: the same process" "$(inside 'readlink /proc/$(cat pid)/exe | grep -o python3 | head -n 1')" python3
	equal "$1: then it runs" "$(box state 1)" "container running"
	check "$1: and counts" moves
	equal "$1: who was stopped before still is" "$(inside 'cut -d" " -f3 /proc/$(cat stopped)/stat')" T
	equal "$1: the shell has not seen its job stop" "$(inside 'ls shell 2>/dev/null; ps ax | grep -c "[s]leep 100000$"')" 1
	within 60 box pause 1 2>/dev/null && box resume 1
	check "$1: it can be let go on by hand" moves
	# somebody is connected
	python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b"tool\n"); print(s.recv(3).decode().strip(), flush=True)
sys.stdin.read()' "$XDG_RUNTIME_DIR/berthfs/1.sock" <"$T/open" >"$T/connected" &
	own $!
	holder=$!
	exec 4>"$T/open"
	within 60 grep -q ok "$T/connected" || not_ok "$1: a connection"
	contains "$1: not while somebody is connected" "$(box pause 1 2>&1)" "somebody is connected"
	state_is running || not_ok "$1: it goes on then"
	exec 4>&-
	wait $holder
	check "$1: but once they are gone" within 60 box pause 1 2>/dev/null
	# many come at once, and somebody pauses meanwhile
	many=
	for i in 1 2 3 4; do
		(for j in 1 2 3 4 5; do inside "echo $i" || exit 1; done >"$T/many.$i") &
		many="$many $!"
	done
	for i in 1 2 3 4 5 6; do box pause 1 2>/dev/null; done
	for i in $many; do wait "$i" || not_ok "$1: a call beside a pause"; done
	equal "$1: calls beside pauses all end" "$(cat "$T"/many.? | wc -l)" 20
}
dies() { # dies WAY
	for victim in keeper init jail; do
		within 60 box pause 1 2>/dev/null || not_ok "$1: paused before its $victim is killed"
		pid=$($victim)
		kill -9 "$pid"
		check "$1: paused, $victim killed: the next call starts it" within 60 box up 1 "$T/gateway.sock" 2>/dev/null
		equal "$1: paused, $victim killed: with its files" "$(inside '[ -s count ] && ps ax | grep -c "[s]leep 10000"')" 0
		inside '(setsid sleep 100002 >/dev/null 2>&1 &)'
	done
	within 60 box pause 1 2>/dev/null || not_ok "$1: paused, to be ended"
	left="$(keeper) $(jail) $(init)"
	names=
	[ -n "$how" ] || names=$(groups) # hidden: those of that name are of another container that was killed, once
	check "$1: it can be ended while it is paused" box destroy 1
	for pid in $left; do within 60 is_gone "$pid" || not_ok "$1: process $pid is left"; done
	for dir in $names; do [ ! -e "$dir" ] || not_ok "$1: the group $dir is left"; done
	check "$1: with all of its folder" [ ! -e "$D" ]
}

mkfifo "$T/open"
box up 1 "$T/gateway.sock" 2>/dev/null || not_ok "a container"
within 60 box pause 1 2>/dev/null
way=signals
for dir in $(groups); do
	[ ! -f "$dir/cgroup.events" ] || ! within 60 frozen || way=freezer
done
box resume 1
lives $way
dies $way
if [ $way = signals ]; then
	skip "with a group that is frozen" "no cgroup of version 2 can be made here"
elif [ "$(id -u)" = 0 ] && unshare -m mount -t tmpfs none /sys/fs/cgroup 2>/dev/null; then
	printf '#!/bin/sh\nmount -t tmpfs none /sys/fs/cgroup && exec "$@"\n' >"$T/bare" && chmod +x "$T/bare"
	how="unshare -m $T/bare"
	lives signals
	dies signals
else
	skip "by signals" "the groups cannot be hidden"
fi
