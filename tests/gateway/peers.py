# For the gateway's tests: a private instance, a provider that speaks all three formats, and clients that speak plain HTTP
# over sockets so that nothing between hides what the gateway does. Everything ends with the test.
import atexit, json, os, re, resource, shutil, signal, socket, ssl, subprocess, sys, tempfile, threading, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BERTHFS = os.environ.get("BERTHFS", ROOT + "/build/berthfs")
GWCTL = os.environ.get("GWCTL", os.path.dirname(BERTHFS) + "/tests/gwctl")
KEY = "sk-canary-0123456789abcdefghijklmnopqrstuvwxyz"
failed = 0


def check(name, ok, *more):
    global failed
    print(("ok " if ok else "not ok ") + name, flush=True)
    if not ok:
        failed = 1
        for m in more:
            print("# %r" % (m,), flush=True)


def equal(name, got, want):
    check(name, got == want, "got:", got, "wanted:", want)


def read(path):
    with open(path) as f:
        return f.read()


def write(path, text):
    with open(path, "a" if path.endswith("input") else "w") as f:
        f.write(text)


def within(seconds, ask):
    """Asks until it is so. The time is that of a quiet machine: a busy one gets a minute at least."""
    end = time.monotonic() + max(seconds, 60)
    while True:
        v = ask()
        if v or time.monotonic() > end:
            return v
        time.sleep(0.01)


def done_in(name, seconds, once, tries=5):
    """How long it takes, as once() tells: the best of a few tries, since what a busy machine adds is not the gateway's."""
    took = []
    while len(took) < tries and not (took and took[-1] < seconds):
        took.append(once())
    check("%s within %g s" % (name, seconds), took[-1] < seconds, took)


def ended(pid):
    """Also if nobody has waited for it yet."""
    try:
        state = open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0]
        return state in "ZX" and len(os.listdir("/proc/%d/task" % pid)) == 1
    except OSError:
        return True


def own_port():
    """An address and a port of loopback which nobody takes before they are listened on: others are at 127.0.0.1."""
    n = os.getpid()
    with socket.create_server(("127.%d.%d.%d" % (64 + (n >> 16) % 64, n >> 8 & 255, n & 255), 0)) as s:
        return s.getsockname()


def told_to_end(*_):
    """What is registered for the end is done; timeout(1) says it twice, and the second word must not cut that off."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(1)


class Instance:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="gw-", dir=os.environ.get("TMPDIR", "/tmp"))
        self.env = dict(os.environ, BERTHFS=BERTHFS, HOME=self.dir + "/home")
        for k, v in dict(STATE_HOME="state", CACHE_HOME="cache", RUNTIME_DIR="run", CONFIG_HOME="config").items():
            self.env["XDG_" + k] = self.dir + "/" + v
            os.makedirs(self.dir + "/" + v, 0o700)
        self.state = self.dir + "/state/berthfs/gateway"
        self.sock = self.dir + "/run/berthfs/gateway.sock"
        self.log = open(self.dir + "/log", "ab")
        atexit.register(self.end)
        signal.signal(signal.SIGTERM, told_to_end)

    def ctl(self, *args, data=b"", fail=False, **more):
        p = subprocess.run([GWCTL, *args], input=data, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE if fail else self.log,
                           timeout=120, **more)
        if fail:
            return p.stderr.decode() if p.returncode else None
        if p.returncode:
            raise RuntimeError("%s: %s" % (args, open(self.dir + "/log").read()[-500:]))
        return p.stdout.decode()

    def start(self, listen="", **more):
        # its standard error is the log, so that gwctl's pipe does not wait for it
        p = subprocess.run([GWCTL, "start", listen], env=self.env, stdout=self.log, stderr=self.log, timeout=120, **more)
        if p.returncode:
            raise RuntimeError(open(self.dir + "/log").read())
        return self

    @property
    def pid(self):
        return int(re.search(r"pid (\d+)", self.ctl("status")).group(1))

    def kill(self):
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        within(60, lambda: ended(pid))

    def ledger(self):
        return [json.loads(l) for l in self.ctl("ledger").splitlines()]

    def outcome(self, n=-1, seconds=60):
        """The n-th allowed decision with its outcome, once that is written."""
        def look():
            rows = self.ledger()
            asked = [r for r in rows if r.get("kind") == "decision" and r.get("verdict") == "allowed"]
            if not asked:
                return None
            d = asked[n]
            for r in rows:
                if r.get("of") == d["seq"]:
                    return d, r
        return within(seconds, look) or (None, {})

    def end(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except Exception:
            pass
        if failed:
            sys.stdout.write("".join("# log: " + l for l in open(self.dir + "/log", errors="replace").readlines()[-15:]))
            sys.stdout.flush()
        if os.environ.get("KEEP"):
            print("# kept: " + self.dir)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)


def test_ca(folder, name):
    """A CA in folder/ca.pem, and a server's context whose certificate it has signed for name."""
    os.makedirs(folder)

    def sh(*a):
        subprocess.run(a, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    sh("openssl", "req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test", "-days", "3")
    sh("openssl", "req", *new, "-keyout", "k.pem", "-out", "r.pem", "-subj", "/CN=" + name)
    open(folder + "/ext", "w").write("subjectAltName=DNS:%s\n" % name)
    sh("openssl", "x509", "-req", "-in", "r.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "c.pem", "-days", "3", "-extfile", "ext")
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(folder + "/c.pem", folder + "/k.pem")
    return ctx


# ---- the provider ----

def anthropic_events(text="hello", input=100, output=7, end=True, cache=40):
    def e(o):
        return ("event: %s\ndata: %s\n\n" % (o["type"], json.dumps(o))).encode()
    yield e({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": input, "output_tokens": 1,
             "cache_read_input_tokens": cache, "cache_creation_input_tokens": 0}}})
    yield e({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    for c in text:
        yield e({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": c}})
    yield e({"type": "content_block_stop", "index": 0})
    if end:
        yield e({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output, "input_tokens": None}})
        yield e({"type": "message_stop"})


def chat_events(text="hello", usage=True):
    for c in text:
        yield b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": c}, "finish_reason": None}]}).encode() + b"\n\n"
    yield b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    if usage:
        yield b'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":40}}}\n\n'
    yield b"data: [DONE]\n\n"


def responses_events(text="hello"):
    n = 0
    yield b'event: response.created\ndata: {"type":"response.created","response":{"usage":null}}\n\n'
    for c in text:
        n += 1
        yield b"event: response.output_text.delta\ndata: " + json.dumps({"type": "response.output_text.delta", "delta": c, "sequence_number": n}).encode() + b"\n\n"
    yield (b'event: response.completed\ndata: {"type":"response.completed","response":{"usage":{"input_tokens":100,"output_tokens":7,'
           b'"input_tokens_details":{"cached_tokens":40}}}}\n\n')


class Request:
    pass


class Provider:
    """Answers by self.script[model](conn, request), else by the path's ordinary answer."""

    def __init__(self, tls=None):
        self.tls, self.requests, self.script, self.aborted, self.lock = tls, [], {}, 0, threading.Lock()
        self.open = 0
        self.server = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return "http%s://%s:%d" % ("s" if self.tls else "", "localhost" if self.tls else "127.0.0.1", self.port)

    def accept(self):
        while True:
            c, _ = self.server.accept()
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def read(self, f):
        r = Request()
        line = f.readline()
        if not line:
            return None
        r.method, r.target, _ = line.decode().split()
        r.headers = []
        while (line := f.readline().decode().rstrip("\r\n")):
            r.headers.append(tuple(line.split(": ", 1)))
        r.h = {k.lower(): v for k, v in r.headers}
        r.body = f.read(int(r.h.get("content-length", 0)))
        r.json = json.loads(r.body) if r.body else {}
        return r

    def serve(self, c):
        try:
            if self.tls:
                c = self.tls.wrap_socket(c, server_side=True)
            f = c.makefile("rb")
            while (r := self.read(f)):
                with self.lock:
                    self.requests.append(r)
                if self.script.get(r.json.get("model", r.target), self.usual)(c, r) == "close":
                    break
        except (OSError, ValueError):
            pass
        finally:
            try:
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            c.close()

    def reply(self, c, status, body, headers=()):
        head = "HTTP/1.1 %d X\r\nContent-Length: %d\r\n" % (status, len(body))
        if not any(k.lower() == "content-type" for k, v in headers):
            head += "Content-Type: application/json\r\n"
        head += "".join("%s: %s\r\n" % h for h in headers)
        c.sendall(head.encode() + b"\r\n" + body)

    def rest(self, c, seconds):
        """Waits, but not for one that leaves."""
        end_at = time.monotonic() + seconds
        while (left := end_at - time.monotonic()) > 0:
            c.settimeout(left)
            try:
                if not c.recv(1):
                    raise ConnectionResetError
            except TimeoutError:
                pass
        c.settimeout(None)

    def stream(self, c, events, pause=0, cut=False, end=True, hold=0):
        """pause: seconds after each event; hold: after the last one."""
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\nrequest-id: r1\r\n\r\n")
        try:
            for e in events:
                c.sendall(b"%x\r\n%s\r\n" % (len(e), e))
                if pause:
                    self.rest(c, pause)
            if hold:
                self.rest(c, hold)
        except OSError:
            with self.lock:
                self.aborted += 1
            raise
        if cut:
            return "close"
        if end:
            c.sendall(b"0\r\n\r\n")

    def usual(self, c, r):
        stream = r.json.get("stream")
        path = r.target.split("?")[0]
        if path == "/v1/messages":
            if stream:
                return self.stream(c, anthropic_events())
            return self.reply(c, 200, json.dumps({"type": "message", "content": [{"type": "text", "text": "hi"}], "usage": {
                "input_tokens": 100, "output_tokens": 7, "cache_read_input_tokens": 40}}).encode(), [("request-id", "r1")])
        if path == "/v1/chat/completions":
            if stream:
                return self.stream(c, chat_events(usage=bool(r.json.get("stream_options", {}).get("include_usage"))))
            return self.reply(c, 200, json.dumps({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 7}}).encode())
        if path == "/v1/responses":
            if stream:
                return self.stream(c, responses_events())
            return self.reply(c, 200, json.dumps({"output": [], "usage": {"input_tokens": 100, "output_tokens": 7}}).encode())
        if path == "/v1/models":
            return self.reply(c, 200, b'{"data":[]}')
        if path == "/v1/messages/count_tokens":
            return self.reply(c, 200, b'{"input_tokens":5}')
        self.reply(c, 404, b"{}")


# ---- clients ----

class Client:
    """One connection; also half requests and slow readers."""

    def __init__(self, where, timeout=60):
        if isinstance(where, str):
            self.s = socket.socket(socket.AF_UNIX)
        else:
            self.s = socket.socket()
        self.s.settimeout(timeout)
        self.s.connect(where)
        self.f = self.s.makefile("rb")

    def send(self, data):
        self.s.sendall(data)

    def ask(self, method, target, token=None, body=None, headers=(), auth="x-api-key"):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        lines = ["%s %s HTTP/1.1" % (method, target), "Host: gateway"]
        if token:
            lines.append("x-api-key: " + token if auth == "x-api-key" else "Authorization: Bearer " + token)
        if body is not None:
            lines.append("Content-Length: %d" % len(body))
            if not any(h.lower().startswith("content-type") for h in headers):
                lines.append("Content-Type: application/json")
        lines += list(headers)
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b""))
        return self

    def head(self):
        line = self.f.readline().decode()
        if not line:
            self.status, self.h = 0, {}
            return self
        self.status = int(line.split()[1])
        self.h = {}
        while (line := self.f.readline().decode().rstrip("\r\n")):
            k, v = line.split(":", 1)
            self.h[k.lower()] = v.strip()
        if self.status == 100:
            return self.head()
        return self

    def chunk(self):
        """The next chunk; b'' at a proper end, None if it was cut."""
        line = self.f.readline()
        if not line.endswith(b"\r\n"):
            return None
        n = int(line, 16)
        data = self.f.read(n)
        end = self.f.read(2)
        return data if len(data) == n and end == b"\r\n" else None

    def body(self):
        """(bytes, complete)"""
        if "transfer-encoding" in self.h:
            out = []
            while True:
                try:
                    c = self.chunk()
                except OSError:
                    c = None
                if c is None:
                    return b"".join(out), False
                if not c:
                    return b"".join(out), True
                out.append(c)
        n = int(self.h.get("content-length", 0))
        data = self.f.read(n)
        return data, len(data) == n

    def close(self):
        self.f.close()
        self.s.close()


def call(where, *args, **kw):
    c = Client(where).ask(*args, **kw).head()
    c.data, c.whole = c.body()
    c.close()
    try:
        c.json = json.loads(c.data)
    except ValueError:
        c.json = {}
    return c


POLICY = open(ROOT + "/gateway/policy_default.c").read()


def policy(provider, extra="", anthropic="", drop=()):
    """The default policy's routes and fields with the provider on loopback, and prices for claude-* and gpt-*."""
    text = "".join(json.loads('"' + m + '"') for m in re.findall(r'^\s*"((?:[^"\\]|\\.)*)"', POLICY, re.M))
    keep = [l for l in text.splitlines() if l.split(" ")[0] in ("route", "field") and not any(d in l for d in drop)]
    return "\n".join([
        "provider anthropic anthropic %s %s" % (provider.url, anthropic),
        "provider openai openai %s key anthropic" % provider.url,
        "provider resp responses %s key anthropic" % provider.url,
        "model anthropic claude-*", "model openai gpt-*", "model resp gpt-*",
        "price claude-* input 3 output 15 cache-read 0.3 cache-write 3.75", "price gpt-* input 3 output 15 cache-read 0.3",
        *keep, extra]) + "\n"


def message(model="claude-a", **more):
    return dict({"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}, **more)
