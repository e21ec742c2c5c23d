# A client of inotify for the tests of watchers; no more than the standard library. Prints `ok NAME` or `not ok NAME`.
# usage: watch.py hammer SESSION-DIR | rate SESSION-DIR | births SESSIONS-DIR | foreign FILE
import ctypes, os, random, select, signal, struct, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
MODIFY, CREATE, DELETE, ISDIR = 0x2, 0x100, 0x200, 0x40000000
BUSY = 20  # seconds: an event comes within 0.6 s on a quiet machine


def line(good, name, words=""):
    print(("ok " if good else "not ok ") + name, flush=True)
    if not good and words:
        print("# " + str(words), flush=True)


class Watch(threading.Thread):
    """Reads events as they come: (time, mask, name), and whether somebody said `stop`."""

    def __init__(self, path, mask):
        super().__init__(daemon=True)
        self.fd = libc.inotify_init1(0)
        if libc.inotify_add_watch(self.fd, path.encode(), mask) < 0:
            raise OSError(ctypes.get_errno(), path)
        self.events, self.over = [], False
        self.start()

    def run(self):
        while not self.over:
            if not select.select([self.fd], [], [], 0.05)[0]:
                continue
            data, at = os.read(self.fd, 65536), 0
            now = time.monotonic()
            while at < len(data):
                _, mask, _, n = struct.unpack_from("iIII", data, at)
                name = data[at + 16 : at + 16 + n].rstrip(b"\0").decode()
                self.events.append((now, mask, name))
                at += 16 + n


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def within(seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.01)
    return what()


def hammer(s):
    """Changes at random moments: each is followed by an event, and who looks then sees it."""
    watches = {"transcript": Watch(s + "/transcript", MODIFY), "status": Watch(s + "/status", MODIFY), "": Watch(s, MODIFY)}
    changes, begin = [], time.monotonic()  # when each was begun: on a busy machine its event comes before its write returns
    for i in range(250):
        changes.append(time.monotonic())
        write(s + "/ctl", "grow\n")
        time.sleep(random.choice([0, 0, 0, 0.001, 0.01, 0.05, 0.12]))
    seconds = time.monotonic() - begin
    for file in "transcript", "status":
        within(60, lambda: watches[file].events and watches[file].events[-1][0] >= changes[-1])
    time.sleep(1)
    for file, w in watches.items():
        w.over = True
        w.join()
        if file:
            times = [e[0] for e in w.events]
            line(times and max(times) >= changes[-1] and min(times) < changes[0] + BUSY, "%s: first and last change" % file)
            late = max((min([t for t in times if t >= c], default=c + 99) - c for c in changes), default=99)
            line(late < BUSY, "%s: each change is followed by an event" % file, late)
            line(len(times) <= seconds * 10 + 3, "%s: at most ten a second" % file, (len(times), seconds))
        else:
            names = {e[2] for e in w.events}
            line({"transcript", "plan", "status"} <= names, "the directory's watcher sees the files", names)
            line("input" not in names, "and nothing of input", names)
    size = os.stat(s + "/transcript").st_size
    line(size == len(open(s + "/transcript").read()), "the size is true at the end", size)


def rate(s):
    """A session that changes all the time."""
    w, begin = Watch(s + "/transcript", MODIFY), time.monotonic()
    time.sleep(3)
    within(60, lambda: len(w.events) >= 5)
    seconds = time.monotonic() - begin
    w.over = True
    w.join()
    n = len(w.events)
    line(5 <= n <= seconds * 10 + 2, "thousands of changes: some events a second, ten at most", (n, seconds))


def births(sessions):
    """Sessions that come and go: each has one CREATE and one DELETE in order, and is whole when it comes."""
    w = Watch(sessions, CREATE | DELETE)
    whole, n = True, 40
    for i in range(n):
        write("%s/new/b%d" % (sessions, i), "hello\n")
        if not within(60, lambda: any(e[1] & CREATE and e[2] == "b%d" % i for e in w.events)):
            break
        try:
            whole = whole and open("%s/b%d/status" % (sessions, i)).read().startswith("running")
        except OSError as e:
            whole = False
        if i % 2:
            os.rmdir("%s/b%d" % (sessions, i))
        else:
            os.listdir("%s/b%d" % (sessions, i))
            write("%s/b%d/ctl" % (sessions, i), "end\n")
    write(sessions + "/new/last", "hello\n")
    within(60, lambda: any(e[1] & CREATE and e[2] == "last" for e in w.events))
    within(60, lambda: sum(1 for e in w.events if e[1] & DELETE and e[2][0] == "b") >= n)
    time.sleep(0.3)
    w.over = True
    w.join()
    line(whole, "a session is whole when it appears")
    for i in range(n):
        seen = [e[1] & ~ISDIR for e in w.events if e[2] == "b%d" % i]
        if seen != [CREATE, DELETE]:
            line(False, "one CREATE and one DELETE for each", (i, seen))
            break
    else:
        line(True, "one CREATE and one DELETE for each")
    line(sorted(os.listdir(sessions)) == sorted(["last", "new", "s"]), "what is listed is true", os.listdir(sessions))


def again(sessions, poker):
    """Sessions of one name, one after the other, while others keep the daemon busy and the poker stumbles: each is
    there for who has made it, and events alternate. Some live too short for any."""
    w = Watch(sessions, CREATE | DELETE)
    over = threading.Event()

    def look():
        while not over.is_set():
            os.stat(sessions + "/s/status")
            open(sessions + "/s/plan").close()

    def stumble():
        while not over.is_set():
            for what in (signal.SIGSTOP, signal.SIGCONT):
                os.kill(int(poker), what)
                time.sleep(random.random() / 500)

    lookers = [threading.Thread(target=f) for f in [look] * 4 + [stumble]]
    for t in lookers:
        t.start()
    failed = None
    for i in range(400):
        try:
            if i % 4:
                write(sessions + "/new/again", "hello\n")
            else:
                write(sessions + "/new/.again", "hello\n")
                os.rename(sessions + "/new/.again", sessions + "/new/again")
            write(sessions + "/again/ctl", "end\n")
        except OSError as e:
            failed = (i, e)
            break
    write(sessions + "/new/over", "hello\n")
    within(60, lambda: any(e[1] & CREATE and e[2] == "over" for e in w.events))
    over.set()
    for t in lookers:
        t.join()
    w.over = True
    w.join()
    line(not failed, "a name that comes again: it is there at once", failed)
    seen = [e[1] & ~ISDIR for e in w.events if e[2] == "again"]
    line(seen == [CREATE, DELETE] * (len(seen) // 2) and seen, "a name that comes again: events in order", seen)


def foreign(path):
    """Nobody else can do what the helper does."""
    omit, now = (1 << 30) - 2, (1 << 30) - 1
    times = (ctypes.c_long * 4)(0, omit, 0, now)
    w = Watch(path, MODIFY)
    rc = libc.utimensat(-100, path.encode(), times, 0)
    code = ctypes.get_errno()
    time.sleep(0.2)
    w.over = True
    w.join()
    line(rc == -1 and code == 1 and not w.events, "others cannot set the time of a file that is read only", (rc, code))


globals()[sys.argv[1]](*sys.argv[2:])
