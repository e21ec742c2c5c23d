# Run as root in a VM (a file of the project): does one bad thing without end. What there is: see the table at the end.
import ctypes, os, random, select, socket, struct, subprocess, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
MAGIC = bytes((0xb7, 0x6d, 0x75, 0x78, 0x0d, 0x0a, 0x1a, 0xe9, 0x5f, 0xc3, 0x88, 0x14, 0xd2, 0x71, 0xae, 0x01))
PAD, OPEN, DATA, FIN, CLOSE, WINDOW, HELLO = 0, 1, 2, 3, 4, 5, ord("H")


# ---- the port: taken from PID 1, whose thread that serves it stands still from then on
class Port:
    def __init__(self):
        if libc.ptrace(16, 1, 0, 0):
            sys.exit("PID 1 cannot be stopped: %s" % os.strerror(ctypes.get_errno()))
        os.waitpid(1, 0x40000000)
        pid = libc.syscall(434, 1, 0)
        number = [int(n) for n in os.listdir("/proc/1/fd") if "/dev/vport" in os.readlink("/proc/1/fd/" + n)][0]
        self.fd = libc.syscall(438, pid, number, 0)
        if self.fd < 0:
            sys.exit("the port cannot be taken: %s" % os.strerror(ctypes.get_errno()))
        self.seen, self.answered = b"", b""

    # What goes at once; what comes is taken, so that nobody waits for us.
    def send(self, data):
        while data:
            r, w, _ = select.select([self.fd], [self.fd], [], 10)
            if r:
                self.seen = (self.seen + os.read(self.fd, 65536))[-65536:]
            if w:
                data = data[os.write(self.fd, data[:65536]):]
            if not r and not w:
                return

    # In step with the host again: what it takes for malformed makes it say hello.
    def greet(self):
        end = time.time() + 30
        while time.time() < end:
            at = self.seen.rfind(MAGIC)
            epoch = self.seen[at + 16:at + 24]
            if at >= 0 and len(self.seen) >= at + 32 and epoch != self.answered:
                self.answered = epoch
                self.send(frame(HELLO, 0, MAGIC + os.urandom(8) + epoch))
                return
            self.send(b"\xff" * 4096)
            time.sleep(0.01)


def frame(kind, stream, payload=b"", length=None):
    return struct.pack(">BII", kind, stream, len(payload) if length is None else length) + payload


# Frames that are right one by one: streams without end, more data than there is credit, words for streams of others.
def flood(port, r):
    port.greet()
    first = r.randrange(1, 1 << 30) | 1
    for i in range(600):
        port.send(frame(OPEN, first + 2 * i, b"net"))
    for i in range(40):
        port.send(b"".join(frame(DATA, first + 2 * r.randrange(600), b"GET / HTTP/1.1\r\n" * 1000) for _ in range(4)))
    port.send(b"".join(frame(r.choice((FIN, CLOSE)), first + 2 * i) for i in range(600)))
    port.send(b"".join(frame(DATA, 2 * i, os.urandom(999)) + frame(WINDOW, 2 * i, b"\0\0\0\1") for i in range(1, 100)))
    port.send(frame(PAD, 0) * 100000)


# Frames that are wrong in some way.
def bad(port, r):
    for what in (frame(DATA, 2, b"x" * 32769), frame(OPEN, 3, b"tool"), frame(OPEN, 2, b"net"), frame(OPEN, 0, b"net"),
                 frame(OPEN, 5, b"NET\n"), frame(OPEN, 7, b"a" * 100), frame(99, 1, b"x"), frame(WINDOW, 2, b"\xff\xff"),
                 frame(HELLO, 0, b"\0" * 32), frame(HELLO, 7, MAGIC + b"\0" * 16), frame(DATA, 2, b"", 0xffffffff),
                 frame(DATA, 2, b"half", 32768)):
        port.greet()
        port.send(what)
        port.send(bytes(r.randrange(256) for _ in range(2000)))
    port.send(os.urandom(4 << 20))
    # hello after hello, each from somebody else
    for _ in range(200):
        port.send(frame(HELLO, 0, MAGIC + os.urandom(16)))


def of_port(*turns):
    port, r = Port(), random.Random(1)
    while True:
        for turn in turns:
            turn(port, r)


# ---- by what everybody may do
def sockets():
    held = []
    while True:
        try:
            s = socket.create_connection(("127.0.0.1", 8080), 5)
            s.setblocking(False)
            held.append(s)
        except OSError:
            time.sleep(0.05)
        for s in held[-100:]:
            try:
                s.send(b"POST /v1/messages HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 65536)
            except OSError:
                pass
        del held[:-400]


def console():
    with open("/dev/console", "wb", 0) as f:
        while True:
            f.write(b"\033[2J\007 all of it \r\n" * 200)


def words():
    while True:
        os.write(1, b"words without end\n" * 4000)


# All of the disk at once, and then again and again what is taken back.
def disk():
    st = os.statvfs("/var/tmp")
    fd = os.open("/var/tmp/all", os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(fd, 0, max(st.f_bavail * st.f_frsize - (160 << 20), 1))
    while True:
        try:
            with open("/var/tmp/rest", "wb", 0) as f:
                while True:
                    f.write(os.urandom(4 << 20))
                    os.fsync(f.fileno())
        except OSError:
            pass


def memory():
    while True:
        subprocess.run([sys.executable, "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"], stderr=subprocess.DEVNULL)


def forks():
    os.execvp("bash", ["bash", "-c", "f() { f | f & }; while :; do f 2>/dev/null; done"])


# The disk first: once memory and processes are taken, not much else happens.
def machine():
    os.fork() or disk()
    for _ in range(600):
        if os.path.exists("/var/tmp/rest") and os.path.getsize("/var/tmp/rest") > 32 << 20:
            break
        time.sleep(0.1)
    os.fork() or memory()
    forks()


def together(*parts):
    for part in parts:
        threading.Thread(target=part).start()


table = {"port": lambda: of_port(flood, bad), "flood": lambda: of_port(flood), "bad": lambda: of_port(bad),
         "streams": lambda: together(sockets, console, words), "disk": disk, "memory": memory, "forks": forks, "machine": machine}
# whoever is ended for want of memory, it is not this
open("/proc/self/oom_score_adj", "w").write("-900")
table[sys.argv[1]]()
