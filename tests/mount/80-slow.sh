#!/bin/sh
# A backend that is slow or fails: who waits, for how long, and what they are told. Runs the face with tests/unit/
# fake_backend.c, where a kind of request can be told to take its time.
BERTHFS=$(dirname "${BERTHFS:-$(dirname "$0")/../../build/berthfs}")/tests/berthfs-fake
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
start || exit 1
fake() { printf '%s\n' "$@" >"$T/state/berthfs/fake"; }
messages() { grep -c . "$T/state/berthfs/messages" 2>/dev/null; }
now() { date +%s%3N; }
# What is measured are times of the daemon: what a busy machine takes to start a shell, and more of that, is no news.
slack() {
	slack_from=$(now)
	timeout 60 sh -c "date >/dev/null"
	echo $((($(now) - slack_from) * 8))
}
# took LOW HIGH NAME COMMAND...: the command ends after LOW to HIGH milliseconds; its exit code is in $code.
took() {
	took_low=$1 took_high=$2 took_name=$3
	shift 3
	took_slack=$(slack)
	took_from=$(now)
	timeout 60 "$@"
	code=$?
	took_ms=$(($(now) - took_from))
	took_slack=$((took_slack + $(slack)))
	if [ $took_ms -ge $((took_low - took_slack)) ] && [ $took_ms -le $((took_high + took_slack)) ]; then
		ok "$took_name"
	else
		not_ok "$took_name"
		note "$took_ms ms, not $took_low to $took_high, with a slack of $took_slack"
	fi
}

# ---- close waits for the commit, others do not wait for it
fake "message 1500 0"
took 1400 4000 "close waits for the commit" sh -c "echo one >> $S/s/input"
equal "and it is there" "$(messages)" 1
sh -c "echo two >> $S/s/input" &
pid=$!
flushing() { [ "$(cut -d ' ' -f 3 "/proc/$pid/stat")" != R ] && grep -q fuse_flush "/proc/$pid/stack" 2>/dev/null; }
within 3 flushing
took 0 700 "others go on meanwhile" sh -c "stat $S/s/status >$T/out"
wait $pid
fake "message 0 28"
: >"$M/error"
contains "a commit that fails is an error of close" "$(echo three | dd of="$S/s/input" 2>&1)" "No space"
contains "with words" "$(cat "$M/error")" "told to fail"
fake ""

# ---- writers that cannot be looked at: the daemon is in a pid namespace of its own. Committed at RELEASE, and later
# requests wait for it
if unshare -pf true 2>/dev/null; then
	stop
	fake "message 1000 0"
	n=$(messages)
	unshare -pf "$BERTHFS" mount -f "$M" 2>"$T/err" &
	within 10 test -d "$S/s"
	took 0 700 "a writer that cannot be told does not wait" sh -c "echo four > $S/s/input"
	took 500 3000 "but the next request waits for the commit" sh -c "cat $S/s/id >$T/out"
	equal "and it is done then" "$(messages)" $((n + 1))
	fake "message 6000 0"
	sh -c "echo five > $S/s/input"
	took 1500 4000 "it waits for 2 s at most" sh -c "cat $S/s/id >$T/out"
	committed() { [ "$(messages)" = $((n + 2)) ]; }
	check "and it is done in the end" within 10 committed
	fake ""
	bash -c "{ echo a; echo b; /bin/echo c >&1; } >> $S/s/input"
	committed() { [ "$(messages)" = $((n + 3)) ]; }
	check "nor is a message split there" within 5 committed
	contains "it is whole" "$(tail -n 1 "$T/state/berthfs/messages")" 'a\nb\nc'
	stop
	start
elif [ "$(id -u)" = 0 ]; then # an ordinary user cannot make one
	skip "a daemon in a pid namespace" "no unshare -pf"
fi

# ---- what holds a lock is answered after 2 s
fake "ctl 5000 0" "destroy 5000 0" "cwd 5000 0" "draft 5000 0"
: >"$M/error"
took 1900 3500 "a write that is not answered ends after 2 s" sh -c "echo stop | dd of=$S/s/ctl 2>$T/err"
contains "as timed out" "$(cat "$T/err")" "timed out"
contains "with words" "$(cat "$M/error")" "not answered in time"
took 1900 3500 "rmdir too" sh -c "rmdir $S/s 2>$T/err"
contains "with the same errno" "$(cat "$T/err")" "timed out"
took 1900 6000 "creating goes on without the writer's folder" sh -c "echo hello > $S/new/made"
check "and makes the session" test -d "$S/made"
fake ""
within 10 sh -c "! test -d $S/s"

# ---- signals
fake "read 20000 0"
python3 - "$S/made" <<'END' >"$T/py"
import os, signal, subprocess, sys, time
def line(ok, name): print(("ok " if ok else "not ok ") + name, flush=True)
for name in ("transcript", "plan"):
    p = subprocess.Popen(["cat", sys.argv[1] + "/" + name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    deadline = time.time() + 60
    while time.time() < deadline and "fuse" not in open("/proc/%d/stack" % p.pid).read(): time.sleep(0.02)
    p.send_signal(signal.SIGINT)
    try: p.wait(60); line(p.returncode == -2, "Ctrl-C ends a slow read of " + name)
    except subprocess.TimeoutExpired: line(False, "Ctrl-C ends a slow read of " + name); p.kill()
END
while read -r a; do
	case $a in "not ok "*) not_ok "${a#not ok }" ;; "ok "*) ok "${a#ok }" ;; *) note "$a" ;; esac
done <"$T/py"
fake "message 1000 0"
n=$(messages)
python3 - "$S/made/input" <<'END' >"$T/py"
import os, signal, sys, time
signal.signal(signal.SIGALRM, lambda *a: None) # a signal that is handled must not make a message fail or come twice
signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b"through signals\n")
try: os.close(fd); print("closed")
except OSError as e: print(e)
END
equal "a close that is interrupted by handled signals" "$(cat "$T/py") $(($(messages) - n))" "closed 1"

# ---- the end: what is under way is finished
fake "message 1500 0"
n=$(messages)
sh -c "echo last >> $S/made/input" &
pid=$!
within 3 flushing
python3 - "$S/made/input" "$T/written" <<'END' &
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b"still open\n")
open(sys.argv[2], "w").close()
time.sleep(300)
END
own $!
within 5 test -f "$T/written"
took 500 6000 "umount waits for commits" "$BERTHFS" umount "$M"
wait $pid
equal "their writers were told" $? 0
equal "what was written to an open file is sent, too" "$(tail -n 2 "$T/state/berthfs/messages" | grep -c 'last\|still open')" 2
