#!/bin/sh
# approvals/ on a real mount: it lists what waits, answers are judged in their write, watchers and waiters hear of it.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
for i in 1 2 3 4 5 6; do
	printf '{"tools":[{"name":"bash","input":{"command":"echo ran %s >> ../count"}}]}\n{"text":"done %s"}\n' $i $i
done >"$T/script"
start || exit 1
A=$S/s/approvals
waits() { [ "$(cat "$S/s/status")" = "waiting approval $1" ]; }
send() { printf '%s\n' "$1" >>"$S/s/input"; }
idle() { timeout 60 cat "$S/s/wait/idle"; }
(cd "$P" && printf -- '---\napprovals: on\n---\ngo\n' >"$S/new/s")
equal "wait/approval gives the number" "$(timeout 60 cat "$S/s/wait/approval")" 1
equal "status says so" "$(cat "$S/s/status")" "waiting approval 1"
contains "so does the daemon's" "$(cat "$M/status")" "waiting 1"
contains "and the index" "$(cat "$M/index")" "waiting approval 1"
equal "it is listed" "$(ls "$A")" 1
equal "with its mode and true size" "$(stat -c '%A %s' "$A/1")" "-rw-r--r-- $(cat "$A/1" | wc -c)"
contains "reading shows what waits" "$(cat "$A/1")" "    echo ran 1 >> ../count"
equal "a crawl decides nothing" "$(grep -r once "$S/s" >/dev/null 2>&1; cat "$S/s/status")" "waiting approval 1"
equal "another word is refused" "$(errno_of sh -c "echo yes | dd of=$A/1 conv=notrunc")" EINVAL
contains "in words" "$(cat "$S/s/error")" "write once, session, project or no"
equal "nothing can be made there" "$(errno_of touch "$A/7")" EPERM
equal "or removed" "$(errno_of rm -f "$A/1")" EPERM
equal "it is not idle" "$(timeout 1 cat "$S/s/wait/idle"; echo $?)" 124
exec 5>"$A/1" # open, and answered by somebody else meanwhile
echo once >"$A/1"
equal "once: it runs" "$(idle)" idle
equal "and is gone from the list" "$(ls "$A")" ""
equal "and by name" "$(errno_of cat "$A/1")" ENOENT
send two
within 20 waits 2
check "a late answer is not for the next one" sh -c '! echo once >&5' 2>"$T/late"
exec 5>&-
check "that one still waits" waits 2
stop && start
check "it waits over a restart" within 20 waits 2
equal "listed again" "$(ls "$A")" 2
echo "no not now" >"$A/2"
equal "no: the run goes on" "$(idle)" idle
contains "the model was told why" "$(cat "$S/s/transcript")" "the user has refused it: not now"

# ---- watchers and poll
if have inotifywait; then
	inotifywait -m "$A" >"$T/events" 2>"$T/err" &
	pid=$!
	own $pid
	established() { grep -q established "$T/err"; }
	within 10 established
	send three
	check "inotify: CREATE" within 10 grep -q "CREATE 3" "$T/events"
	echo session >"$A/3"
	check "inotify: DELETE" within 10 grep -q "DELETE 3" "$T/events"
	idle >/dev/null
	kill $pid
fi
contains "a grant is listed" "$(cat "$S/s/settings/approvals")" "	session	"
equal "below the value" "$(head -n 1 "$S/s/settings/approvals")" on
send four
equal "it runs without" "$(idle)" idle
grant=$(sed -n 's/^\([0-9]*\)	session.*/\1/p' "$S/s/settings/approvals")
echo "revoke $grant" >"$S/s/settings/approvals"
equal "revoked" "$(cat "$S/s/settings/approvals")" on
python3 - "$S/s" <<'EOF'
import os, select, sys, time
s = sys.argv[1]
fd = os.open(s + "/wait/approval", os.O_RDONLY)
p = select.poll(); p.register(fd, select.POLLIN)
quiet = not p.poll(200)
open(s + "/input", "a").write("five\n")
ready = p.poll(20000)
print(("ok " if quiet and ready else "not ok ") + "poll() on wait/approval")
EOF
check "asked for again" within 10 waits "$(ls "$A")"
echo stop >"$S/s/ctl"
equal "stop while it waits" "$(idle)" idle
equal "what ran" "$(cat "$T"/state/berthfs/sandboxes/1/home/count | tr '\n' ' ')" "ran 1 ran 3 ran 4 "
echo off >"$S/s/settings/approvals"
send six
equal "off: nothing is asked" "$(idle)" idle
