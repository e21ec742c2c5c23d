#!/bin/sh
# Watchers while it is hard: changes all the time, a helper that hangs or is killed, an unmount, a freezer. Runs the face
# with tests/unit/fake_backend.c. Nobody may be left behind, least of all unkillable. A daemon that is killed at full speed
# is in 49-watch-kills. time limit: 900 s
BERTHFS=$(dirname "${BERTHFS:-$(dirname "$0")/../../build/berthfs}")/tests/berthfs-fake
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/freezer.inc"
. "$(dirname "$0")/watch.inc"
have python3 || { skip all "no python3"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
tell() { while read -r a; do
	case $a in "not ok "*) not_ok "${a#not ok }" ;; "ok "*) ok "${a#ok }" ;; *) note "${a#\# }" ;; esac
done <"$T/py"; }
fake
start || exit 1
J=$(janitor)
check "there is a poker" within 5 has_poker "$J"
python3 "$here/watch.py" hammer "$S/s" >"$T/py"
tell
python3 "$here/watch.py" births "$S" >"$T/py"
tell
python3 "$here/watch.py" again "$S" "$(poker "$J")" >"$T/py"
tell

# ---- a helper that hangs, or dies
W=$(poker "$J")
inotifywait -m -e modify,create "$S/s" "$S" >"$T/events" 2>"$T/err" & # before it is stopped: soon another is in its place
pid=$!
own $pid
established() { grep -q established "$T/err"; }
within 10 established
kill -STOP "$W"
check "stopped: changes go on" timeout 60 sh -c "for i in \$(seq 300); do echo grow >$S/s/ctl; done"
check "stopped: and creating" timeout 60 sh -c "for i in \$(seq 100); do echo hi >$S/new/k\$i; done"
check "stopped: and looking" timeout 60 sh -c "ls -l $S/s $S/k1 >$T/out"
kill -CONT "$W" 2>/dev/null
all_created() { [ "$(grep -c 'CREATE,ISDIR k' "$T/events")" = 100 ]; }
check "it goes on: the events come" within 5 grep -q "MODIFY transcript" "$T/events"
check "of all that was made" within 5 all_created
W=$(poker "$J")
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
fake "sessions 200 0" "changes 20000 200"
bad=
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

# ---- frozen, as by a suspend, while sessions change all the time
if ! freezer_make; then
	skip frozen "no freezer"
	exit
fi
fake "sessions 40 0" "changes 2000 20"
begin() {
	start || return
	J=$(janitor)
	within 5 has_poker "$J"
	W=$(poker "$J")
	: >"$T/err"
	inotifywait -m -e modify "$S"/s* >"$T/events" 2>"$T/err" &
	watcher=$!
	own $watcher
	within 10 established
	python3 -c 'import os, sys
while True:
    for n in os.listdir(sys.argv[1]): open(sys.argv[1] + "/" + n, "rb").close()' "$S/s/settings" 2>/dev/null &
	client=$!
	own $client
	looked_at
}
events_come() { : >"$T/events" && within 10 grep -q MODIFY "$T/events"; }
end_users() {
	end_owned $watcher $client
	wait $watcher $client 2>/dev/null
	: # how they ended says nothing
}
begin || not_ok "a start"
bad=
for i in 1 2 3 4 5; do
	freezer_add "$W" $watcher $client
	freezer_freeze
	within 10 freezer_is_frozen || bad="$bad $i:$(stuck "$W" $watcher $client)"
	timeout 60 sh -c "ls -lR '$S/s' >/dev/null && echo grow >'$S/s/ctl'" || bad="$bad $i:others"
	freezer_thaw
	events_come || bad="$bad $i:events"
done
equal "poker, watcher and client freeze, others go on, then events come" "$bad" ""
# With the daemon in it a request may hold its caller until the daemon runs again: then the freezer waits, no more.
freezer_add "$J" "$DAEMON"
freezer_freeze
within 1 freezer_is_frozen
note "all of them: $(freezer_is_frozen && echo frozen || echo not all, some wait for the daemon)"
freezer_thaw
check "all frozen and thawed: events come" events_come
# Unmounted while the poker sleeps.
freezer_move_out() { for pid; do echo "$pid" >"${FREEZER%/*}/cgroup.procs"; done; }
freezer_move_out "$DAEMON" "$J"
freezer_freeze
check "unmounted while its poker, a watcher and a client are frozen" stop
freezer_thaw
check "then all of its are gone" within 8 gone "$DAEMON" "$J" "$W"
end_users
begin || not_ok "a start after that"
freezer_add "$W" $watcher $client "$DAEMON"
freezer_freeze
kill -9 "$DAEMON"
freezer_thaw
check "killed while frozen: nobody is stuck" within 8 gone "$DAEMON" "$J" "$W"
end_users
