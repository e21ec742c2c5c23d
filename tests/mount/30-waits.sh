#!/bin/sh
# The files of wait/: they block, end when they should and at once on a signal, and cost nothing meanwhile.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
# The slow answer comes when it is told to.
printf '%s\n' '{"text":"quick"}' "{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"until [ -e $T/go ]; do sleep 0.1; done\"}}]}" \
	'{"text":"slow answer"}' '{"text":"third"}' >"$T/script"
start || exit 1
session s hello || { not_ok "a session"; exit 1; }
W=$S/s/wait
is_blocked() { is_reading "$1" "$W/*"; }

equal "wait/ lists nothing" "$(ls -A "$W")" ""
equal "reply, when none waits, is the newest" "$(timeout 60 cat "$W/reply")" quick
equal "idle ends at once" "$(timeout 60 cat "$W/idle")" idle
equal "shipped ends at once" "$(timeout 60 cat "$W/shipped")" none
equal "live shows the last run" "$(timeout 60 cat "$W/live")" quick

echo more >>"$S/s/input"
timeout 60 cat "$W/reply" >"$T/reply" &
reply=$!
timeout 60 cat "$W/idle" >"$T/idle" &
idle=$!
timeout 60 cat "$W/live" >"$T/live" &
live=$!
own $reply; own $idle; own $live

# ---- signals, while the answer takes its time
python3 - "$W" "$T/go" <<'END' >"$T/py"
import errno, os, select, signal, subprocess, sys, time
w = sys.argv[1]
def line(ok, name): print(("ok " if ok else "not ok ") + name, flush=True)
def spawn(name):
    return subprocess.Popen(["cat", w + "/" + name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
    p = spawn("idle"); time.sleep(0.1)
    running = p.poll() is None
    t = time.time(); p.send_signal(sig)
    try: p.wait(60); line(running and p.returncode == -sig, "%s ends a parked reader" % sig.name)
    except subprocess.TimeoutExpired: line(False, "%s ends a parked reader" % sig.name); p.kill()
fd = os.open(w + "/idle", os.O_RDONLY | os.O_NONBLOCK)
try: os.read(fd, 10); line(False, "O_NONBLOCK: EAGAIN")
except OSError as e: line(e.errno == errno.EAGAIN, "O_NONBLOCK: EAGAIN")
poll = select.poll(); poll.register(fd, select.POLLIN)
line(poll.poll(50) == [], "poll says not ready")
open(sys.argv[2], "w").close()
line(len(poll.poll(60000)) == 1, "poll says when it is")
line(os.read(fd, 100).startswith(b"idle"), "and then it reads")
os.close(fd)
END
while read -r a; do
	case $a in "not ok "*) not_ok "${a#not ok }" ;; "ok "*) ok "${a#ok }" ;; *) note "$a" ;; esac
done <"$T/py"
wait $reply $idle $live
equal "reply gives the new answer" "$(cat "$T/reply")" "slow answer"
equal "idle gives the status" "$(cat "$T/idle")" idle
equal "live gives the text" "$(cat "$T/live")" "slow answer"

# ---- many
threads=$(ls "/proc/$DAEMON/task" | wc -l)
python3 - "$W" "$S/s/settings/network" "$DAEMON" "$threads" <<'END' >"$T/py"
import os, subprocess, sys, time
w, setting, daemon, had = sys.argv[1:]
def threads(): return len(os.listdir("/proc/%s/task" % daemon))
def rss(): return int([l for l in open("/proc/%s/status" % daemon) if l.startswith("VmRSS")][0].split()[1])
before = rss()
p = [subprocess.Popen(["cat", w + "/change"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(200)]
deadline = time.time() + 60
def blocked(pid): # it has the file open and sleeps
    try:
        d = "/proc/%d/fd/" % pid
        return "State:\tS" in open("/proc/%d/status" % pid).read() and any(os.readlink(d + n).startswith(w) for n in os.listdir(d))
    except OSError: return False
while time.time() < deadline and not all(blocked(x.pid) for x in p): time.sleep(0.05)
print("parked", sum(blocked(x.pid) for x in p))
while time.time() < deadline and threads() > int(had): time.sleep(0.05) # one may be there for something else, for a moment
print("threads", threads())
print("memory", "small" if rss() - before < 10240 else rss() - before)
t = time.time(); os.stat(w + "/../status"); print("stat", "quick" if time.time() - t < 20 else "slow")
open(setting, "w").write("none\n"); open(setting, "w").write("registries\n")
ended = 0
for x in p:
    try: x.wait(60); ended += 1
    except subprocess.TimeoutExpired: x.kill()
print("ended", ended)
END
equal "200 parked readers" "$(grep parked "$T/py")" "parked 200"
check "no thread for them" test "$(sed -n 's/^threads //p' "$T/py")" -le "$threads"
equal "no memory for them" "$(grep memory "$T/py")" "memory small"
equal "stat goes on" "$(grep stat "$T/py")" "stat quick"
equal "a change ends all" "$(grep ended "$T/py")" "ended 200"

# ---- a failed session
echo '{"text":' >"$T/broken"
(cd "$P" && printf -- '---\nmodel: script:%s\n---\nhello\n' "$T/broken" >"$S/new/f")
failed() { grep -q ^failed "$S/f/status"; }
check "a broken script fails its session" within 20 failed
equal "reply: EIO" "$(errno_of timeout 60 cat "$S/f/wait/reply")" EIO
equal "idle: EIO" "$(errno_of timeout 60 cat "$S/f/wait/idle")" EIO
contains "with words" "$(cat "$S/f/error")" "retry"

# ---- the end of a session, and of the daemon
cat "$W/change" >/dev/null 2>"$T/err" &
pid=$!
own $pid
within 60 is_blocked $pid
rmdir "$S/s"
wait $pid
contains "destroyed: ESHUTDOWN" "$(cat "$T/err")" "shutdown"
printf '{"text":"x","delay_ms":60000}\n' >"$T/script"
(cd "$P" && echo hello >"$S/new/t")
W=$S/t/wait
cat "$W/reply" >/dev/null 2>"$T/err" &
pid=$!
own $pid
within 60 is_blocked $pid
check "the daemon has lived till now" kill -TERM "$DAEMON"
check "SIGTERM ends the daemon" within 20 is_gone "$DAEMON"
wait $pid
contains "its reader hears ESHUTDOWN" "$(cat "$T/err")" "shutdown"
check "and nothing is mounted" sh -c "! grep -q ' $M ' /proc/self/mountinfo"
