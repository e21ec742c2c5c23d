#!/bin/sh
# A thousand waiters at once, and all that may end them: a change, signals, kill -9, the freezer, the end of the session,
# of the daemon, and its death. None may be left in a state that cannot be killed or frozen, or suspend would fail.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
printf '%s\n' '{"text":"one"}' '{"text":"slow","delay_ms":200000}' '{"text":"slow again","delay_ms":200000}' >"$T/script"
start || exit 1
session s hello && session t hello || { not_ok "sessions"; exit 1; }
for name in s t; do echo more >>"$S/$name/input"; done # waiters of both wait for the second answer
cat >"$T/waiters.py" <<'END'
import errno, os, re, resource, select, signal, subprocess, sys, threading, time
mount, daemon = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
def line(ok, name, words=""):
    print(("ok " if ok else "not ok ") + name + (": " + str(words) if words and not ok else ""), flush=True)
def status(pid, key):
    return re.search(r"^%s:\s*(\S+)" % key, open("/proc/%d/status" % pid).read(), re.M).group(1)
def rss(): return int(status(daemon, "VmRSS"))
def threads(): return int(status(daemon, "Threads"))
def within(seconds, fn):
    end = time.time() + seconds
    while not fn():
        if time.time() > end: return False
        time.sleep(0.02)
    return True
s = mount + "/sessions/s/wait/"

# Each reader is a process of its own: the kernel is asked 1,000 times, and 1,000 processes sleep in it.
def reader(name, at=s):
    pid = os.fork()
    if pid: return pid
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        fd = os.open(at + name, os.O_RDONLY)
        try:
            while os.read(fd, 65536): pass
        except OSError as e:
            os._exit(e.errno)
        os._exit(0)
    except OSError as e:
        os._exit(200)
READ = {"x86_64": "0", "aarch64": "63"}
def blocked(pids):
    def is_blocked(pid): # in a read; where that may not be looked at: asleep with the file open
        try:
            try: call = open("/proc/%d/syscall" % pid).read().split()[0]
            except PermissionError: call = None
            if call and os.uname().machine in READ and call != READ[os.uname().machine]: return False
            return status(pid, "State") == "S" and any("/wait/" in os.readlink("/proc/%d/fd/%s" % (pid, n)) for n in os.listdir("/proc/%d/fd" % pid))
        except OSError: return False
    left = set(pids)
    return within(60, lambda: left.difference_update([p for p in left if is_blocked(p)]) or not left)
def ended(pids, seconds):
    """How they ended: exit codes or -signal, as a set; None in it for one that has not."""
    end, left, how = time.time() + seconds, set(pids), set()
    while left and time.time() < end:
        for pid in list(left):
            got, code = os.waitpid(pid, os.WNOHANG)
            if got:
                left.discard(pid)
                how.add(os.waitstatus_to_exitcode(code))
        time.sleep(0.01)
    for pid in left: os.kill(pid, signal.SIGKILL)
    return how | ({None} if left else set())

def runs(name): return lambda: open("%s/sessions/%s/status" % (mount, name)).read().startswith("running")
line(within(60, runs("s")) and within(60, runs("t")), "both sessions run")

# ---- a thousand
names = ["reply", "idle", "live"]
before, had = rss(), threads()
first = time.time()
pids = [reader(names[i % 3]) for i in range(1000)]
line(blocked(pids), "1,000 readers wait")
line(within(60, lambda: threads() <= had), "no thread is there for them", "%d, then %d" % (had, threads()))
line(rss() - before < 10240, "under 10 MiB", "%d KiB" % (rss() - before))
print("# 1,000 waiters: %d KiB, %.1f s until the last one waits" % (rss() - before, time.time() - first), flush=True)
worst = 0
for _ in range(50):
    t = time.time(); os.stat(mount + "/sessions/s/status"); open(mount + "/sessions/s/status").read(); worst = max(worst, time.time() - t)
line(worst < 20, "others are served meanwhile", "%.3f s" % worst)
t = time.time()
third = pids[:333]
for p in third: os.kill(p, signal.SIGINT)
how = ended(third, 60)
line(how == {-signal.SIGINT}, "Ctrl-C ends 333 of them", how)
third = pids[333:666]
for p in third: os.kill(p, signal.SIGKILL)
how = ended(third, 60)
line(how == {-signal.SIGKILL}, "kill -9 the next 333", how)
t = time.time()
open(mount + "/sessions/s/ctl", "w").write("stop\n")
how = ended(pids[666:], 60)
line(how == {0}, "the end of the run the rest", how)
print("# the last of 334 ended %.2f s after `stop`" % (time.time() - t), flush=True)

# ---- poll: as many descriptors in one process
t = mount + "/sessions/t/"
fds = [os.open(t + ["status", "wait/idle", "wait/reply", "transcript"][i % 4], os.O_RDONLY | os.O_NONBLOCK) for i in range(1000)]
for fd in fds: # what is there has been read; the rest is news
    try:
        while os.read(fd, 1 << 20): pass
    except OSError as e: assert e.errno == errno.EAGAIN
ep = select.epoll()
for fd in fds: ep.register(fd, select.EPOLLIN)
line(ep.poll(0.3) == [], "epoll of 1,000 files: nothing is ready", len(ep.poll(0)))
had = threads()
line(threads() <= had, "no thread is there for them")
open(t + "ctl", "w").write("stop\n")
ready = set()
line(within(60, lambda: ready.update(fd for fd, _ in ep.poll(0.1)) or len(ready) == 1000), "and then all are", len(ready))
for fd in fds: os.close(fd)

# ---- the freezer: what waits can be frozen and thawed, and what ends meanwhile does not wait for it
def freezer():
    """How to freeze a process: (enter, freeze, is_frozen, thaw, leave); None if there is no freezer here."""
    for root, kind in (("/sys/fs/cgroup", 2), ("/sys/fs/cgroup/unified", 2), ("/sys/fs/cgroup/freezer", 1)):
        d = "%s/berthfs-test-%d" % (root, os.getpid())
        try:
            os.mkdir(d)
        except OSError:
            continue
        if not os.path.exists(d + ("/cgroup.freeze" if kind == 2 else "/freezer.state")):
            os.rmdir(d)
            continue
        def put(name, text): open(d + "/" + name, "w").write(text)
        def get(name): return open(d + "/" + name).read()
        if kind == 2:
            return (lambda p: put("cgroup.procs", str(p)), lambda: put("cgroup.freeze", "1"),
                    lambda: "frozen 1" in get("cgroup.events"), lambda: put("cgroup.freeze", "0"), lambda: os.rmdir(d))
        return (lambda p: put("cgroup.procs", str(p)), lambda: put("freezer.state", "FROZEN"),
                lambda: get("freezer.state").strip() == "FROZEN", lambda: put("freezer.state", "THAWED"), lambda: os.rmdir(d))
f = freezer()
if not f:
    print("skip the freezer: no cgroup that can be made here", flush=True)
else:
    enter, freeze, frozen, thaw, leave = f
    open(mount + "/sessions/s/input", "a").write("slow again\n")
    within(60, runs("s"))
    pids = [reader(n) for n in names + ["approval"] for _ in range(5)]
    blocked(pids)
    for p in pids: enter(p)
    freeze()
    line(within(60, frozen), "readers that wait can be frozen")
    before = time.time()
    open(mount + "/sessions/s/status").read()
    line(time.time() - before < 20, "others are served meanwhile")
    thaw()
    line(blocked(pids), "thawed, they wait again")
    freeze(); within(60, frozen)
    open(mount + "/sessions/s/ctl", "w").write("destroy force\n")
    line(within(60, lambda: not os.path.exists(mount + "/sessions/s")), "a session ends while its readers are frozen")
    thaw()
    how = ended(pids, 60)
    line(how <= {0, errno.ESHUTDOWN, errno.ESTALE, errno.ENOENT}, "and they hear of it when they are thawed", how)
    # The daemon ends while its clients are frozen.
    open(mount + "/sessions/t/input", "a").write("and again\n")
    within(60, runs("t"))
    pids = [reader(n, mount + "/sessions/t/wait/") for n in names + ["approval"] for _ in range(5)]
    blocked(pids)
    for p in pids: enter(p)
    freeze(); within(60, frozen)
    before = time.time()
    os.kill(daemon, signal.SIGTERM)
    def has_ended():
        try: return status(daemon, "State") == "Z"
        except OSError: return True
    gone = within(60, has_ended)
    line(gone, "the daemon ends while its readers are frozen")
    print("# in %.2f s" % (time.time() - before), flush=True)
    thaw()
    how = ended(pids, 60)
    line(how <= {0, errno.ESHUTDOWN, errno.ENOTCONN, errno.ECONNABORTED}, "and so do they, when they are thawed", how)
    def has_left():
        try: leave()
        except OSError: return False # the kernel is not done with those who have ended
        return True
    within(60, has_left)
END
timeout 280 python3 "$T/waiters.py" "$M" "$DAEMON" >"$T/py" 2>"$T/err"
equal "no trace" "$? $(tail -n 3 "$T/err")" "0 "
while read -r word rest; do
	case $word in
	ok) ok "$rest" ;;
	not) not_ok "${rest#ok }" ;;
	skip) skip "${rest%%:*}" "${rest#*: }" ;;
	*) note "$rest" ;;
	esac
done <"$T/py"

# ---- the daemon's death
is_mounted || start
printf '%s\n' '{"text":"one"}' '{"text":"slow","delay_ms":60000}' >"$T/script"
session u hello
echo more >>"$S/u/input"
runs() { grep -q '^running' "$S/u/status"; } # that is the last change for a while
within 60 runs
PIDS_OF=
for name in reply idle live approval change; do
	cat "$S/u/wait/$name" >/dev/null 2>>"$T/dead" &
	own $!
	PIDS_OF="$PIDS_OF $!"
done
waits() { for pid in $PIDS_OF; do is_reading "$pid" "$S/u/wait/*" || return; done; }
within 60 waits
kill -9 "$DAEMON"
all_gone() { for pid in $PIDS_OF; do is_gone "$pid" || return; done; }
check "kill -9 of the daemon ends its readers" within 10 all_gone
