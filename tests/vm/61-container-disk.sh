#!/bin/sh
# A container that takes more of the disk than it may: what runs in it is ended, in words on all sides, and it goes on
# once something is removed. time limit: 600 s
. "$(dirname "$0")/../lib.sh"
BOXCTL=$(dirname "$BERTHFS")/tests/boxctl
BOX_CACHE=$IMAGES/berthfs
BOX_DISK=64
export BERTHFS BOX_CACHE BOX_DISK
box() { verb=$1; shift; timeout 250 "$BOXCTL" "$verb" container "$@"; }
inside() { box run 7 "$1" 2>&1; }
goes_on() { inside 'echo x >/tmp/x' >/dev/null; }
trap 'box destroy 7 2>/dev/null; finish' EXIT

# ---- by itself
box up 7 "$T/gateway.sock" 2>"$T/up"
equal "a container of 64 MiB" "$?" 0
out=$(inside 'setsid sleep 601 & head -c 40000000 /dev/urandom >a; echo begun; head -c 90000000 /dev/urandom >b; sleep 600')
equal "too much: what runs is ended" "$?" 125
contains "what it said is there" "$out" begun
contains "and why it was ended" "$out" "the sandbox's disk is full"
none_left() { [ "$(inside 'ps ax | grep -c "[s]leep 60"')" = 0 ]; }
check "with all that was left behind" within 60 none_left
contains "nothing can be written" "$(inside 'echo x >new')" "File too large"
contains "nor sent in" "$(box put 7 "$ROOT/meson.build" new 2>&1)" "the sandbox's disk is full"
equal "what is there can be read" "$(inside 'wc -c <a')" 40000000
check "and be removed" inside 'rm b new'
check "then it goes on at once" goes_on
check "and is sent to" box put 7 "$ROOT/meson.build" new
contains "no file can be longer than all of it" "$(inside 'truncate -s 1G huge; echo $?')" 153
# ---- what measures it dies: another one does
keeper=$(cut -d' ' -f1 "$XDG_STATE_HOME/berthfs/sandboxes/7/keeper.pid")
meter() { for child in $(pgrep -P "$keeper"); do tr '\0' ' ' <"/proc/$child/cmdline" | grep -q ' box-keeper ' && echo "$child"; done | head -n 1; }
first=$(meter)
check "something measures it" test -n "$first"
kill -9 "$first"
another() { now=$(meter) && [ -n "$now" ] && [ "$now" != "$first" ]; }
check "another takes the place of one that is killed" within 60 another
first=$(meter)
kill -9 "$first" # at once again, before it has lived for long
check "and another that of that one" within 60 another
check "what runs goes on" goes_on
out=$(inside 'mkdir closed; head -c 40000000 /dev/urandom >closed/c; chmod 000 closed; sleep 600')
contains "what lies in closed folders counts" "$out" "the sandbox's disk is full"
kill -9 "$(cut -d' ' -f1 "$XDG_STATE_HOME/berthfs/sandboxes/7/keeper.pid")"
check "it starts again" box up 7 "$T/gateway.sock"
refused() { inside 'echo x >/tmp/x' | grep -q "too large"; }
check "and is as full as before" within 60 refused
check "until the folder goes" inside 'chmod 700 closed; rm -r closed'
check "then it goes on again" goes_on
box destroy 7
equal "nothing of it is left" "$(ls "$XDG_STATE_HOME/berthfs/sandboxes")" ""

# ---- as a session's
use_image container
echo 'sandbox.disk = 64' >>"$T/config/berthfs/config"
cat >"$T/script" <<'END'
{"tools":[{"name":"bash","input":{"command":"echo kept >kept.txt; git add .; git commit -qm kept; head -c 150000000 /dev/urandom >../big; sleep 600; echo not reached"}}]}
{"tools":[{"name":"write","input":{"path":"x.txt","content":"x"}}]}
{"tools":[{"name":"bash","input":{"command":"rm ../big && echo removed"}}]}
{"text":"first"}
{"tools":[{"name":"bash","input":{"command":"echo more >more.txt; git add .; git commit -qm more && echo written"}}]}
{"text":"second"}
END
start || exit 1
(cd "$P" && echo go >"$S/new/s")
equal "a session goes on" "$(timeout 300 cat "$S/s/wait/reply")" first
for file in transcript error log; do contains "$file says it" "$(cat "$S/s/$file")" "the sandbox's disk is full"; done
contains "error says what can be done" "$(cat "$S/s/error")" "sandbox.disk"
contains "the tool write says it" "$(grep -A 3 'x.txt' "$S/s/transcript")" "disk is full"
contains "and files can be removed" "$(cat "$S/s/transcript")" removed
timeout 300 cat "$S/s/wait/idle" >/dev/null
equal "what was committed before has come over" "$(git -C "$P" show sandbox/1:kept.txt)" kept
echo more >>"$S/s/input"
equal "its next message" "$(timeout 300 cat "$S/s/wait/reply")" second
contains "is worked on" "$(cat "$S/s/transcript")" written
timeout 300 cat "$S/s/wait/idle" >/dev/null
equal "and comes over" "$(git -C "$P" show sandbox/1:more.txt)" more
