#!/usr/bin/env python3
"""Eight random clients on a real mount, and an oracle of what they sent.

  soak.py run MOUNT STATE-DIR PROJECT SECONDS SEED BERTHFS    the whole; prints `ok` and `not ok` lines
  soak.py client MOUNT STATE-DIR PROJECT SEED NUMBER          one client, until SIGTERM; started by run

A client writes messages in several ways, reads, waits, watches, renames, creates and ends sessions; it is killed at
random and started again, and the daemon is ended, killed and mounted again under it. Before a message is opened, and when
its close has come back, the client says so in its journal. In the end each acknowledged message has to be in its session's
transcript once, whole and in order; one that was not acknowledged may be there once, as far as it was written.
"""
import errno, glob, json, os, random, re, select, signal, subprocess, sys, time

CLIENTS = 8
MOST = 9  # sessions at a time
GONE = {errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.ESHUTDOWN, errno.ENODEV, errno.ESTALE}  # unmounted, or ended meanwhile


def text_of(ident, length):
    """The message of that name: told by its name and length alone, so that the oracle can make it again."""
    r = random.Random(ident)
    words = ["alpha", "beta", "gamma", "delta", "ärger", "\U0001f600", "`x`", "--", "  two blanks"]
    out = [ident]
    size = len(ident)
    while size < length:
        w = r.choice(words) + r.choice([" ", " ", " ", "\n"])
        out.append(w)
        size += len(w)
    return " ".join(out) + "\n"


class Client:
    def __init__(self, mount, state, project, seed, number):
        self.mount, self.project = mount, project
        self.r = random.Random("%s/%s/%s" % (seed, number, time.monotonic()))
        self.life = "c%s.%x" % (number, int(time.monotonic() * 1000))
        self.sent = 0
        self.journal = os.open("%s/journal.%s" % (state, number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.pulse = "%s/pulse.%s" % (state, number)
        self.seen = {}  # session -> transcript as last read
        self.children = []
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        self.stopping = True

    def say(self, **what):
        os.write(self.journal, (json.dumps(what) + "\n").encode())

    def finding(self, words):
        self.say(e="finding", words=words)

    def path(self, *parts):
        return "/".join([self.mount, "sessions"] + [str(p) for p in parts])

    def names(self):
        return [n for n in os.listdir(self.path()) if n != "new"]

    def ids(self):
        with open(self.mount + "/index") as f:
            return [int(line.split("\t")[0]) for line in f]

    def pick(self):
        ids = self.ids()
        return self.r.choice(ids) if ids else None

    # ---- messages

    def begin(self, session, how):
        self.sent += 1
        ident = "%s.%d" % (self.life, self.sent)
        length = self.r.choice([0, 20, 60, 200, 3000, 60000] if self.r.random() < 0.9 else [400000])
        self.say(e="open", id=ident, s=session, t=time.monotonic(), len=length, how=how)
        return ident, text_of(ident, length).encode()

    def ack(self, ident, session):
        self.say(e="ack", id=ident, s=session, t=time.monotonic())

    def write_all(self, fd, data):
        while data:
            n = os.write(fd, data if self.r.random() < 0.5 else data[: self.r.randint(1, len(data))])
            data = data[n:]

    def send(self, how=None):
        session = self.pick()
        if session is None:
            return
        how = how or self.r.choice(["plain", "plain", "fsync", "tee", "heir"])
        ident, data = self.begin(session, how)
        path = self.path(session, "input")
        if how == "tee":  # not a redirection: shells do not tell when the close of one fails
            with subprocess.Popen(["tee", "-a", path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as p:
                try:
                    p.communicate(data)
                except BrokenPipeError:
                    return
            if p.returncode == 0:
                self.ack(ident, session)
            return
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        closed = False
        try:
            if how == "heir":  # the rest is written by a child, after this process has closed its descriptor
                cut = self.r.randint(0, len(data))
                self.write_all(fd, data[:cut])
                pid = os.fork()
                if not pid:
                    try:
                        self.write_all(fd, data[cut:])
                        os.close(fd)
                        os._exit(0)
                    except BaseException:
                        os._exit(1)
                closed = True
                try:
                    os.close(fd)
                finally:
                    done = os.waitpid(pid, 0)[1] == 0
                if done:
                    self.ack(ident, session)
                return
            self.write_all(fd, data)
            if how == "fsync":
                os.fsync(fd)
                self.ack(ident, session)
            closed = True
            os.close(fd)
            if how != "fsync":
                self.ack(ident, session)
        finally:
            if not closed:
                os.close(fd)

    def send_and_die(self):
        """A writer that is killed somewhere in its message."""
        pid = os.fork()
        if not pid:
            try:
                os.close(0)
                self.send("plain")
            finally:
                os._exit(0)
        time.sleep(self.r.random() * 0.004)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.sent += 1  # its number is used

    # ---- sessions

    def create(self):
        if len(self.ids()) >= MOST:
            return
        ident, data = self.begin(None, "draft")
        name = "s" + ident.replace(".", "-")
        fd = os.open(self.path("new", name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, ("---\nproject: %s\n---\n" % self.project).encode() + data)
            self.ack(ident, int(os.read(fd, 100)))
        finally:
            os.close(fd)

    def end(self):
        ids = self.ids()
        if len(ids) < MOST - 2:
            return
        session = self.r.choice(ids)
        self.say(e="ending", s=session)
        try:
            if self.r.random() < 0.5:
                os.rmdir(self.path(session))
            else:
                with open(self.path(session, "ctl"), "w") as f:
                    f.write("destroy force\n")
        except OSError as e:
            if e.errno != errno.EBUSY:
                raise
            return
        self.seen.pop(session, None)

    def rename(self):
        names = self.names()
        if names:
            os.rename(self.path(self.r.choice(names)), self.path("r%d" % self.r.randint(0, 30)))

    # ---- reading

    def read_transcript(self):
        session = self.pick()
        if session is None:
            return
        with open(self.path(session, self.r.choice(["transcript"])), "rb") as f:
            text = f.read()
        before = self.seen.get(session, b"")
        if not text.startswith(before):
            self.finding("the transcript of %d has changed where it had been read" % session)
        self.seen[session] = text

    def read_any(self):
        session = self.pick()
        files = ["status", "queue", "plan", "question", "checks", "usage", "error", "log", "diff", "transcript.jsonl",
                 "ctl", "ship", "settings/model", "input", "branch", "base"]
        name = self.r.choice(files)
        if session is None:
            return
        with open(self.path(session, name), "rb") as f:
            text = f.read()
        if text and not text.endswith(b"\n"):
            self.finding("%s ends without a newline" % name)
        if name == "status" and text.count(b"\n") != 1:
            self.finding("status is %r" % text)
        if name == "input" and text:
            self.finding("input reads %r" % text[:60])
        if name == "transcript.jsonl":
            for line in text.splitlines():
                json.loads(line)

    def read_index(self):
        with open(self.mount + "/index") as f:
            rows = [line.rstrip("\n").split("\t") for line in f]
        ids = [int(r[0]) for r in rows]
        if any(len(r) != 6 for r in rows) or ids != sorted(set(ids)) or len({r[1] for r in rows}) != len(rows):
            self.finding("index is %r" % rows)

    def crawl(self):
        subprocess.run(["sh", "-c", self.r.choice(["ls -lR", "grep -rc alpha", "tar cf /dev/null -C"]) + ' "$1" .', "sh",
                        self.path()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    # ---- waiting and watching

    def wait(self):
        session = self.pick()
        if session is None:
            return
        name = self.r.choice(["reply", "idle", "live", "change", "shipped"])
        p = subprocess.Popen(["cat", self.path(session, "wait", name)], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        self.children.append(p)
        if self.r.random() < 0.3:
            p.send_signal(signal.SIGSTOP)
            time.sleep(self.r.random() * 0.05)
            p.send_signal(signal.SIGCONT)
        while len(self.children) > 5:
            self.reap(self.children.pop(0))

    def reap(self, p):
        p.send_signal(self.r.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            self.finding("a reader that waits does not end on a signal")

    def watch(self):
        session = self.pick()
        if session is not None:
            p = subprocess.Popen(["inotifywait", "-q", "-t", "2", "-r", self.path(session)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            self.children.append(p)

    def poll(self):
        session = self.pick()
        if session is None:
            return
        fd = os.open(self.path(session, self.r.choice(["status", "transcript", "wait/change"])), os.O_RDONLY)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN | select.POLLPRI)
            poll.poll(self.r.randint(0, 200))
        finally:
            os.close(fd)

    def command(self):
        session = self.pick()
        if session is None:
            return
        name, line = self.r.choice([("settings/network", "none\n"), ("ctl", "check\n"), ("ctl", "sync\n"), ("error", "")])
        try:
            with open(self.path(session, name), "w") as f:
                f.write(line)
        except OSError as e:
            if e.errno not in GONE and e.errno not in (errno.EINVAL, errno.EBUSY):
                raise

    # ---- the loop

    def run(self):
        ops = [(self.send, 30), (self.send_and_die, 4), (self.create, 5), (self.end, 1), (self.rename, 4),
               (self.read_transcript, 12), (self.read_any, 15), (self.read_index, 6), (self.crawl, 1), (self.wait, 8),
               (self.watch, 2), (self.poll, 6), (self.command, 3)]
        fns, weights = zip(*ops)
        while not self.stopping:
            fn = self.r.choices(fns, weights)[0]
            open(self.pulse, "w").write(fn.__name__)
            try:
                fn()
            except OSError as e:
                known = GONE | {errno.EEXIST, errno.EBUSY, errno.EIO}
                if e.errno == errno.ETIMEDOUT and fn in (self.rename, self.command, self.end):
                    self.say(e="late")  # such a request is held up for 2 s at most; then it is not known what became of it
                elif e.errno not in known:
                    self.finding("%s: %s" % (fn.__name__, e))
                if e.errno in GONE:  # being mounted again
                    time.sleep(0.02)
            except (ValueError, IndexError) as e:
                self.finding("%s: %r" % (fn.__name__, e))
            time.sleep(self.r.random() * 0.03)
        for p in self.children:
            self.reap(p)


# ---- the oracle


def read_journals(state):
    sent, findings, ending, late = {}, [], set(), 0
    for path in glob.glob(state + "/journal.*"):
        for line in open(path):
            try:
                j = json.loads(line)
            except ValueError:
                continue  # the client was killed in this line
            if j["e"] == "open":
                sent[j["id"]] = {"s": j["s"], "open": j["t"], "ack": None, "len": j["len"], "how": j["how"]}
            elif j["e"] == "ack" and j["id"] in sent:
                sent[j["id"]].update(ack=j["t"], s=j["s"])
            elif j["e"] == "ending":
                ending.add(j["s"])
            elif j["e"] == "finding":
                findings.append(j["words"])
            late += j["e"] == "late"
    return sent, findings, ending, late


def messages_of_markdown(text):
    """As `berthfs show` prints an ended session: its users' messages in order."""
    parts = re.split(r"(?m)^## (user, message \d+|assistant|notice|ship) — \S+\n\n", text)
    return [parts[i + 1][:-1] if i + 2 < len(parts) else parts[i + 1] for i in range(1, len(parts), 2)
            if parts[i].startswith("user")], [int(p.split()[2]) for p in parts[1::2] if p.startswith("user")]


def judge(sent, transcripts, ended, findings):
    """transcripts: session -> (texts, numbers)."""
    where = {}
    for session, (texts, numbers) in transcripts.items():
        if numbers != list(range(1, len(numbers) + 1)):
            findings.append("session %d has messages %s" % (session, numbers[:50]))
        latest = 0
        for at, text in enumerate(texts):
            ident = text.split(None, 1)[0]
            m = sent.get(ident)
            if not m:  # a writer may have been killed within the name, which Markdown ends with a newline all the same
                part = text.removesuffix("\n") if session in ended else text
                cut = [i for i, m in sent.items() if not m["ack"] and i not in where and m["s"] in (None, session) and
                       i.startswith(part)]
                ident, m = (cut[0], sent[cut[0]]) if cut else (ident, None)
            if not m:
                findings.append("session %d has a message that nobody sent: %r" % (session, text[:80]))
                continue
            if ident in where:
                findings.append("%s is there twice: %s and %s" % (ident, where[ident], session))
            where[ident] = session
            whole = text_of(ident, m["len"])
            if m["s"] not in (None, session):
                findings.append("%s is in %d, not in %d" % (ident, session, m["s"]))
            # Markdown ends each with a newline, also one that was cut.
            cut = whole.startswith(text) or (text.endswith("\n") and whole.startswith(text[:-1]))
            if text != whole and (m["ack"] or not cut):
                findings.append("%s is not whole: %d of %d, acknowledged: %s" % (ident, len(text), len(whole), m["ack"]))
            if m["ack"] and m["ack"] < latest:
                findings.append("%s stands after one that was begun when it had been acknowledged" % ident)
            latest = max(latest, m["open"])
    for ident, m in sent.items():
        if m["ack"] and ident not in where and m["s"] not in ended:
            findings.append("%s (%s) was acknowledged by session %s and is lost" % (ident, m["how"], m["s"]))
    return len(where)


# ---- the whole


def line(ok, name):
    print(("ok " if ok else "not ok ") + name, flush=True)


class Soak:
    def __init__(self, mount, state, project, seconds, seed, berthfs):
        self.mount, self.state, self.project = mount, state, project
        self.seconds, self.seed, self.berthfs = int(seconds), seed, berthfs
        self.r = random.Random(seed)
        self.findings, self.lives, self.mounts, self.kills = [], [], 0, 0
        self.clients = {}

    def note(self, words):
        print("# " + words, flush=True)

    # ---- the daemon

    def pid(self):
        try:
            text = open(os.environ["XDG_STATE_HOME"] + "/berthfs/mount").read()
        except OSError:
            return 0
        m = re.search(r"^pid (\d+)$", text, re.M)
        return int(m.group(1)) if m else 0

    def berth(self, verb):
        try:
            p = subprocess.run([self.berthfs, verb, self.mount], timeout=120, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        except subprocess.TimeoutExpired:
            self.findings.append(verb + " does not end")
            return
        if p.returncode:
            self.findings.append("%s: %d %s" % (verb, p.returncode, p.stderr.decode()[-300:]))

    def start(self):
        self.berth("mount")
        self.mounts += 1
        self.lives.append({"peak": 0, "threads": 0, "fds": 0})

    def stop(self):
        self.measure()
        self.berth("umount")

    def measure(self):
        pid = self.pid()
        try:
            status = open("/proc/%d/status" % pid).read()
            life = self.lives[-1]
            life["peak"] = max(life["peak"], int(re.search(r"VmRSS:\s+(\d+)", status).group(1)))
            life["threads"] = max(life["threads"], int(re.search(r"Threads:\s+(\d+)", status).group(1)))
            life["fds"] = max(life["fds"], len(os.listdir("/proc/%d/fd" % pid)))
        except (OSError, AttributeError):
            pass

    # ---- the clients

    def spawn(self, n):
        argv = [sys.executable, __file__, "client", self.mount, self.state, self.project, self.seed, str(n)]
        open("%s/pulse.%d" % (self.state, n), "w").close()
        self.clients[n] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)

    def look_after(self):
        for n, p in list(self.clients.items()):
            if p.poll() is not None:
                self.findings.append("client %d ended with %s" % (n, p.returncode))
                self.spawn(n)
            pulse = "%s/pulse.%d" % (self.state, n)
            if time.time() - os.stat(pulse).st_mtime > 90:
                self.findings.append("client %d is stuck in %s: %s" % (n, open(pulse).read(), self.where(p.pid)))
                self.kill(n)
                self.spawn(n)

    @staticmethod
    def where(pid):
        try:
            return open("/proc/%d/wchan" % pid).read() + " " + re.search(r"State:\s*(\S)", open("/proc/%d/status" % pid).read()).group(1)
        except (OSError, AttributeError):
            return "gone"

    def kill(self, n):
        p = self.clients.pop(n)
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            self.findings.append("client %d cannot be killed: %s" % (n, self.where(p.pid)))

    # ---- the end

    def settle(self):
        """All sessions idle: true, or a finding."""
        until = time.monotonic() + 200 + self.seconds / 4
        while time.monotonic() < until:
            rows = [l.split("\t") for l in open(self.mount + "/index")]
            busy = [r for r in rows if r[2].split(" ")[0] not in ("idle", "asking") or
                    os.path.getsize("%s/sessions/%s/queue" % (self.mount, r[0]))]
            if not busy:
                return
            for r in busy:
                if r[2].startswith("failed"):
                    self.findings.append("session %s: %s" % (r[0], r[2]))
                    self.findings += ["  log: " + l.rstrip() for l in open("%s/sessions/%s/log" % (self.mount, r[0]))][-12:]
                    return
            time.sleep(0.2)
        self.findings.append("not idle in the end: %r" % busy)

    def transcripts(self, ending):
        out = {}
        for l in open(self.mount + "/index"):
            session = int(l.split("\t")[0])
            rows = [json.loads(x) for x in open("%s/sessions/%d/transcript.jsonl" % (self.mount, session))]
            users = [r for r in rows if r["kind"] == "user"]
            out[session] = [r["text"] for r in users], [r["message"] for r in users]
        ended = set()
        for session in ending - set(out):
            p = subprocess.run([self.berthfs, "show", str(session)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            ended.add(session)
            out[session] = messages_of_markdown(p.stdout.decode())
        return out, ended

    def interrupted(self, *_):
        for n in list(self.clients):
            self.kill(n)
        os._exit(143)

    def run(self):
        signal.signal(signal.SIGTERM, self.interrupted)
        self.start()
        for n in range(CLIENTS):
            self.spawn(n)
        until = time.monotonic() + self.seconds
        step = max(4.0, self.seconds / 20)
        next_mount = time.monotonic() + step
        next_kill = time.monotonic() + 2
        while time.monotonic() < until:
            time.sleep(0.25)
            self.measure()
            self.look_after()
            now = time.monotonic()
            if now >= next_kill:
                n = self.r.randrange(CLIENTS)
                self.kill(n)
                self.spawn(n)
                self.kills += 1
                next_kill = now + self.r.uniform(1, 6)
            if now >= next_mount:
                if self.r.random() < 0.4:
                    pid = self.pid()
                    if pid:
                        os.kill(pid, signal.SIGKILL)
                else:
                    self.stop()
                self.start()
                next_mount = now + self.r.uniform(0.5, 1.5) * step
        for p in self.clients.values():
            p.terminate()
        deadline = time.monotonic() + 60
        for n, p in self.clients.items():
            try:
                p.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.findings.append("client %d does not end: %s" % (n, self.where(p.pid)))
                os.killpg(p.pid, signal.SIGKILL)
        if not os.path.exists(self.mount + "/index"):
            for words in self.findings + ["the mount has gone, and the daemon was not ended by this test"]:
                self.note(words)
            line(False, "the tree is there in the end")
            sys.exit(1)
        self.settle()
        sent, findings, ending, late = read_journals(self.state)
        transcripts, ended = self.transcripts(ending)
        there = judge(sent, transcripts, ended, findings)
        self.measure()
        self.stop()
        if late:
            self.note("%d commands were not answered within 2 s" % late)
        self.report(sent, findings, there, len(transcripts))

    def report(self, sent, findings, there, sessions):
        acked = sum(1 for m in sent.values() if m["ack"])
        peaks = [l["peak"] for l in self.lives]
        self.note("%d s, %d sessions, %d messages begun, %d acknowledged, %d there; %d mounts, %d clients killed" %
                  (self.seconds, sessions, len(sent), acked, there, self.mounts, self.kills))
        self.note("daemon: peak of memory %s KiB by life, most threads %d, most descriptors %d" %
                  (peaks, max(l["threads"] for l in self.lives), max(l["fds"] for l in self.lives)))
        findings = self.findings + findings
        for words in findings[:40]:
            self.note(words)
        line(acked > self.seconds // 4 + 10, "messages were sent")
        line(not [f for f in findings if "stuck" in f or "does not end" in f or "cannot be killed" in f], "nothing is stuck")
        line(not findings, "each acknowledged message is there once, whole, in order; nothing else was found")
        limit = int(os.environ.get("SOAK_RSS_KIB", "120000"))
        line(max(peaks) < limit, "the daemon's memory stays under %d KiB" % limit)
        line(max(l["fds"] for l in self.lives) < 400, "its descriptors are few")


if __name__ == "__main__":
    if sys.argv[1] == "client":
        Client(*sys.argv[2:]).run()
    else:
        Soak(*sys.argv[2:]).run()
