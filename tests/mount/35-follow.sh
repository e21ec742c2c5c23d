#!/bin/sh
# Following what grows: poll() on status, transcript and events, tail -f, and wait/live while the text comes.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
cat >"$T/script" <<-'END'
	{"text":"quick"}
	{"text":"one two three","delay_ms":3000}
	{"text":"after","delay_ms":500}
END
start || exit 1
session s hello || { not_ok "a session"; exit 1; }
within 60 gateway_is_up # which is an event
python3 - "$S/s" "$M" <<'END' >"$T/py"
import os, select, sys, time
s, m = sys.argv[1:]
def line(ok, name): print(("ok " if ok else "not ok ") + name, flush=True)
names = {"status": s + "/status", "transcript": s + "/transcript", "events": m + "/events"}
fds = {n: os.open(p, os.O_RDONLY) for n, p in names.items()}
def ready(n, ms):
    p = select.poll(); p.register(fds[n], select.POLLIN)
    return len(p.poll(ms)) == 1
for n in fds: line(ready(n, 0), n + " is ready before it was read")
for n in fds:
    while os.read(fds[n], 65536): pass
for n in fds: line(not ready(n, 50), n + " is not when all was read")
plan = os.open(s + "/plan", os.O_RDONLY)
p = select.poll(); p.register(plan, select.POLLIN)
line(len(p.poll(0)) == 1, "other files always are")
with open(s + "/input", "a") as f: f.write("more\n")
end = time.time() + 60
for n in fds: line(ready(n, 60000) and time.time() < end, n + " is ready after a message")
line(os.pread(fds["status"], 100, 0).startswith(b"running"), "status is read anew from offset 0")
line(b"more" in os.read(fds["transcript"], 65536), "transcript goes on where it was")
while b"one two three" not in os.read(fds["transcript"], 65536):
    if not ready("transcript", 60000): line(False, "the answer wakes a poll"); break
else: line(True, "the answer wakes a poll")
ep = select.epoll(); ep.register(fds["events"], select.EPOLLIN | select.EPOLLET)
ep.poll(1)
while os.read(fds["events"], 65536): pass
with open(s + "/input", "a") as f: f.write("again\n")
line(len(ep.poll(60)) == 1, "epoll, edge triggered")
END
while read -r a; do
	case $a in "not ok "*) not_ok "${a#not ok }" ;; "ok "*) ok "${a#ok }" ;; *) note "$a" ;; esac
done <"$T/py"
timeout 60 cat "$S/s/wait/idle" >/dev/null
tail -n 0 -f "$S/s/transcript" >"$T/tail" 2>/dev/null &
own $!
tails() { [ -n "$(find "/proc/$1/fd" -lname "$S/s/transcript" 2>/dev/null)" ]; }
within 5 tails $!
echo followed >>"$S/s/input"
check "tail -f shows what comes" within 10 grep -q "script ended" "$T/tail"
equal "nothing but that" "$(grep -c 'one two three' "$T/tail")" 0
mtime=$(stat -c %Y "$S/s/input")
sleep 1.1 # mtimes are compared in seconds
echo x >>"$S/s/input"
timeout 60 cat "$S/s/wait/idle" >/dev/null
equal "input's mtime never changes" "$(stat -c %Y "$S/s/input")" "$mtime"
check "the transcript's does" [ "$(stat -c %Y "$S/s/transcript")" -gt "$mtime" ]
# The freezer, as a suspend would use it: a parked reader must not stand in its way.
if [ "$(id -u)" = 0 ] && [ -d /sys/fs/cgroup/freezer ] && mkdir "/sys/fs/cgroup/freezer/berthfs-$$" 2>/dev/null; then
	g=/sys/fs/cgroup/freezer/berthfs-$$
	timeout 60 cat "$S/s/wait/change" >"$T/change" &
	pid=$!
	own $pid
	reads() { [ -n "$(find /proc/[0-9]*/fd -lname "$S/s/wait/change" 2>/dev/null)" ]; }
	within 5 reads
	cat=$(find /proc/[0-9]*/fd -lname "$S/s/wait/change" 2>/dev/null | sed 's,/proc/\([0-9]*\)/.*,\1,')
	own "$cat"
	echo "$cat" >$g/cgroup.procs
	echo FROZEN >$g/freezer.state
	frozen() { [ "$(cat $g/freezer.state)" = FROZEN ]; }
	check "a parked reader can be frozen" within 5 frozen
	echo THAWED >$g/freezer.state
	echo after >>"$S/s/input"
	wait $pid
	check "and goes on afterwards" test -s "$T/change"
	within 5 rmdir $g
else
	skip "freezing a parked reader" "no freezer"
fi
