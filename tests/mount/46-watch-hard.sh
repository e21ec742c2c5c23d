#!/bin/sh
# Watchers while it is hard: changes all the time, a helper that hangs or is killed, an unmount, a daemon that is killed
# at full speed. Runs the face with tests/unit/fake_backend.c. Nobody may be left behind, least of all unkillable.
BERTHFS=$(dirname "${BERTHFS:-$(dirname "$0")/../../build/berthfs}")/tests/berthfs-fake
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
KILLS=${KILLS:-40}
here=$(cd "$(dirname "$0")" && pwd)
fake() { printf '%s\n' "$@" >"$T/state/berthfs/fake"; }
tell() { while read -r a; do
	case $a in "not ok "*) not_ok "${a#not ok }" ;; "ok "*) ok "${a#ok }" ;; *) note "${a#\# }" ;; esac
done <"$T/py"; }
field() { sed -n "s/^$2:[[:space:]]*\([^[:space:]]*\).*/\1/p" "/proc/$1/status" 2>/dev/null; }
children() { for dir in /proc/[0-9]*; do
	[ "$(cat "$dir/comm" 2>/dev/null)" = "$1" ] && [ "$(field "${dir#/proc/}" PPid)" = "$2" ] && echo "${dir#/proc/}"
done; }
janitor() { children berthfs-helper "$DAEMON"; }
poker() { children berthfs-poke "$1"; }
has_poker() { [ -n "$(poker "$1")" ]; }
mkdir -p "$T/state/berthfs"
fake
start || exit 1
J=$(janitor)
check "there is a poker" within 5 has_poker "$J"
python3 "$here/watch.py" hammer "$S/s" >"$T/py"
tell
python3 "$here/watch.py" births "$S" >"$T/py"
tell

# ---- a helper that hangs, or dies
W=$(poker "$J")
kill -STOP "$W"
check "stopped: changes go on" timeout 10 sh -c "for i in \$(seq 300); do echo grow >$S/s/ctl; done"
check "stopped: and creating" timeout 10 sh -c "for i in \$(seq 100); do echo hi >$S/new/k\$i; done"
check "stopped: and looking" timeout 10 sh -c "ls -l $S/s $S/k1 >$T/out"
inotifywait -m -e modify,create "$S/s" "$S" >"$T/events" 2>"$T/err" &
pid=$!
own $pid
established() { grep -q established "$T/err"; }
within 10 established
kill -CONT "$W"
all_created() { [ "$(grep -c 'CREATE,ISDIR k' "$T/events")" = 100 ]; }
check "it goes on: the events come" within 5 grep -q "MODIFY transcript" "$T/events"
check "of all that was made" within 5 all_created
: >"$T/events"
kill -STOP "$W"
echo grow >"$S/s/ctl"
replaced() { W2=$(poker "$J" | grep -v "^$W\$"); [ -n "$W2" ]; }
check "one that hangs is replaced" within 12 replaced
check "and the event comes" within 5 grep -q "MODIFY transcript" "$T/events"
check "the old one is gone" within 5 is_gone "$W"
: >"$T/events"
kill -9 "$W2"
W=$W2
check "one that is killed is replaced" within 12 replaced
echo grow >"$S/s/ctl"
check "and events come again" within 5 grep -q "MODIFY transcript" "$T/events"
kill $pid
stop
check "unmounted: its helpers are gone" within 5 is_gone "$W2"

# ---- all the time
fake "sessions 200 0" "changes 4000 1"
start || exit 1
python3 "$here/watch.py" rate "$S/s" >"$T/py"
tell
stop
# looked_at: all sessions are known to the kernel, so that each change is poked for.
looked_at() { cat "$S"/*/plan >/dev/null; }
gone() { is_gone "$1" && is_gone "$2" && is_gone "$3" && ! is_mounted; }
stuck() { for pid in "$@"; do [ "$(field "$pid" State)" = D ] && echo "$pid"; done; }
fake "sessions 200 0" "changes 20000 200"
bad= cut=0
for i in $(seq "$KILLS"); do
	start || { bad="$bad start$i"; break; }
	J=$(janitor)
	within 5 has_poker "$J"
	W=$(poker "$J")
	looked_at
	sleep "0.$((RANDOM_ = (i * 37) % 9))$i"
	timeout 5 sh -c "while :; do stat $S/s-$i/status; done" >"$T/out" 2>&1 &
	client=$!
	own $client
	grep -q "request_wait_answer" "/proc/$W/stack" 2>/dev/null && cut=$((cut + 1))
	kill -9 "$DAEMON"
	within 8 gone "$DAEMON" "$J" "$W" || bad="$bad $i:$(stuck "$DAEMON" "$J" "$W")"
	kill $client 2>/dev/null
	wait $client 2>/dev/null
done
equal "$KILLS kills at full speed: nobody is stuck" "$bad" ""
note "in a request at the kill: $cut"
for i in 1 2 3 4 5; do
	start || { bad="$bad start$i"; break; }
	J=$(janitor)
	within 5 has_poker "$J"
	W=$(poker "$J")
	looked_at
	stop || bad="$bad umount$i"
	within 8 gone "$DAEMON" "$J" "$W" || bad="$bad left$i"
done
equal "unmounts at full speed" "$bad" ""
