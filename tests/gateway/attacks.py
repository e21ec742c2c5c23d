# What a hostile client or provider may try, class by class, against a running gateway: sizes, counts, injection, ways
# around routes and tokens, answers that lie, revoking at each stage, races over restarts.
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
import gzip
from concurrent.futures import ThreadPoolExecutor

resource.setrlimit(resource.RLIMIT_NOFILE, (min(16384, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
up = Provider()
gw = Instance()
# ---- what stands in the gateway's surroundings must not steer it ----
decoy_hits = []
decoy = socket.create_server(("127.0.0.1", 0))
def lure():
    while True:
        c, _ = decoy.accept()
        decoy_hits.append(c.recv(1000))
        c.close()
threading.Thread(target=lure, daemon=True).start()
os.makedirs(gw.dir + "/home")
open(gw.dir + "/home/.netrc", "w").write("machine 127.0.0.1 login netrc-user password netrc-password\n")
open(gw.dir + "/home/.curlrc", "w").write("proxy = http://127.0.0.1:%d\n" % decoy.getsockname()[1])
for v in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
    gw.env[v] = "http://127.0.0.1:%d" % decoy.getsockname()[1]
tcp = own_port()
gw.start("%s:%d" % tcp)
S = gw.sock
gw.ctl("policy-set", data=policy(up).encode())
gw.ctl("key", "anthropic", data=KEY.encode())
engine = gw.ctl("mint", "engine", "7", "app", "none", "")
box = gw.dir + "/box.sock"
sandbox = gw.ctl("mint", "sandbox", "7", "app", "none", box)


def rss():
    return int(re.search(r"VmRSS:\s+(\d+)", open("/proc/%d/status" % gw.pid).read()).group(1))


def is_closed(s):
    s.setblocking(False)
    try:
        while s.recv(65536):
            pass
        return True
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        return True


HELD_UP = 5  # seconds: a busy machine answers within less, and who has to wait for others' ends waits for longer


def quick(n=20):
    """Another client's median time meanwhile; its best is in equal.best: there a busy machine is not counted."""
    times = []
    for _ in range(n):
        t = time.monotonic()
        equal.last = call(S, "POST", "/v1/messages", engine, message()).status
        times.append(time.monotonic() - t)
    equal.best = min(times)
    return sorted(times)[n // 2]


def untouched(name, want, do):
    n = len(up.requests)
    got = do()
    equal(name, (got, len(up.requests) - n), (want, 0))


r = call(S, "POST", "/v1/messages", engine, message())
equal("proxies and .netrc around the gateway are not used", (r.status, decoy_hits, up.requests[-1].h.get("authorization")), (200, [], None))

# ---- sizes and counts ----
def raw(data, where=S):
    c = Client(where)
    try:
        c.send(data)
    except OSError:
        pass
    c.head()
    c.close()
    return c.status
HEAD = "POST /v1/messages HTTP/1.1\r\nHost: h\r\nx-api-key: %s\r\nContent-Type: application/json\r\n" % engine
untouched("a header of 64 KiB", 431, lambda: raw((HEAD + "X-A: " + "a" * 65536 + "\r\n\r\n").encode()))
untouched("2,000 headers", 431, lambda: raw((HEAD + "X: y\r\n" * 2000 + "\r\n").encode()))
untouched("a path of 1 MB", 414, lambda: raw(b"GET /" + b"a" * 1000000 + b" HTTP/1.1\r\nHost: h\r\n\r\n"))


def chunked(total):
    c = Client(S)
    c.send((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode())
    try:
        for _ in range(total >> 20):
            c.send(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
        c.send(b"0\r\n\r\n")
    except OSError:
        pass
    c.head()
    c.close()
    return c.status
untouched("a body of 33 MiB, in chunks", 413, lambda: chunked(33 << 20))
untouched("33 MiB said in Content-Length", 413, lambda: raw((HEAD + "Content-Length: %d\r\n\r\n" % (33 << 20)).encode()))

# ---- much at once ----
up.script["claude-held"] = lambda c, r: (time.sleep(8), up.reply(c, 200, b"{}"))
one = (HEAD + "Content-Length: %d\r\n\r\n" % len(json.dumps(message("claude-held")))).encode() + json.dumps(message("claude-held")).encode()
before = rss()
c = Client(S)
c.s.setblocking(False)
sent, end = 0, time.monotonic() + 3
while time.monotonic() < end and sent < 64 << 20:
    try:
        sent += c.s.send(one * 200)
    except BlockingIOError:
        time.sleep(0.01)
grown = rss() - before
check("pipelining is bounded: behind one that waits little is taken", grown < 4096 and sent < 8 << 20, grown, sent)
c.close()

# Refusals cost the client nothing: whoever sends them without end, reading or not, is one client among others.
cheap = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n" * 2000
for reads in (False, True):
    before, stop, sent = rss(), threading.Event(), [0]
    cs = [Client(box, 30) for _ in range(4)]

    def pour(c):
        try:
            while not stop.is_set():
                c.send(cheap)
                sent[0] += len(cheap)
        except OSError:
            pass

    def drain(c):
        try:
            while c.s.recv(1 << 20):
                pass
        except OSError:
            pass
    for c in cs:
        threading.Thread(target=pour, args=(c,), daemon=True).start()
        if reads:
            threading.Thread(target=drain, args=(c,), daemon=True).start()
    time.sleep(0.5)
    t = quick(10)
    time.sleep(1)
    grown = rss() - before
    how = "are read" if reads else "nobody reads"
    check("refusals without end that %s: others are served" % how, t < HELD_UP and equal.best < 0.3 and equal.last == 200, t, equal.last)
    check("refusals without end that %s: memory is bounded" % how, grown < 16 << 10, grown, sent[0])
    stop.set()
    for c in cs:
        c.s.shutdown(socket.SHUT_RDWR)
        c.close()

# The same with bytes behind a refusal that ends the connection
stop = threading.Event()
cs = [Client(box, 30) for _ in range(4)]


def pour_body(c):
    try:
        while not stop.is_set():
            c.send(b" " * 65536)
    except OSError:
        pass


for c in cs:
    c.send((HEAD + "Content-Length: %d\r\n\r\n" % (40 << 20)).encode())
    threading.Thread(target=pour_body, args=(c,), daemon=True).start()

time.sleep(0.3)
t = quick(10)
check("bytes without end behind a refusal hold up nobody", t < HELD_UP and equal.best < 0.3 and equal.last == 200, t, equal.best)
check("and end with the connection", within(60, lambda: all(is_closed(c.s) for c in cs)))
stop.set()
for c in cs:
    c.close()

before = rss()
slow = []
for i in range(40):
    c = Client(S, 30)
    c.send((HEAD + "Content-Length: %d\r\n\r\n" % (31 << 20)).encode())
    c.s.setblocking(False)
    slow.append(c)
end, sent = time.monotonic() + 6, {}
junk = b" " * (1 << 20)
while time.monotonic() < end:
    busy = False
    for c in slow:
        try:
            if sent.get(c, 0) < 30 << 20:
                sent[c] = sent.get(c, 0) + c.s.send(junk)
                busy = True
        except OSError:
            pass
    if not busy:
        time.sleep(0.02)
grown = rss() - before
t = quick()
check("bodies that never end are bounded together: 40 of 30 MiB", grown < 300 << 10, grown)
check("and hold up nobody", t < HELD_UP and equal.best < 0.2 and equal.last == 200, t, equal.best, equal.last)
for c in slow:
    c.close()
check("their memory comes back", within(60, lambda: rss() - before < 64 << 10), rss() - before)
equal("and a large body is taken again", call(S, "POST", "/v1/messages", engine, message(messages=[{"role": "user", "content": "x" * 20_000_000}])).status, 200)

# A body of millions of values is refused before it is taken apart
before = rss()
t = time.monotonic()
heavy = b'{"model":"claude-a","max_tokens":5,"messages":[' + b"0," * (15 << 20) + b"0]}"
untouched("a body of 15 million values", 400, lambda: call(S, "POST", "/v1/messages", engine, heavy).status)
high = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/%d/status" % gw.pid).read()).group(1))
check("takes little more memory than its bytes", high < 500 << 10, high)

many = []
for i in range(2300):
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    within(60, lambda: s.connect_ex(box) in (0, 106))
    many.append(s)
closed = 0
check("a socket has so many connections and no more", within(60, lambda: sum(map(is_closed, many)) >= 252), sum(map(is_closed, many)))
t = quick()
check("and other sockets are served meanwhile", t < HELD_UP and equal.best < 0.2 and equal.last == 200, t, equal.best)
for s in many:
    s.close()
check("then that one again", within(60, lambda: call(box, "POST", "/v1/messages", sandbox, message()).status == 200))

# ---- few descriptors: a sandbox that takes all it can get leaves some for the daemon ----
gw.ctl("stop")
gw.start("%s:%d" % tcp, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600)))
many = []
for i in range(1000):
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    if s.connect_ex(box) in (0, 106, 11):
        many.append(s)
check("of few descriptors a sandbox gets some", within(60, lambda: sum(map(is_closed, many)) >= len(many) - 200), len(many), sum(map(is_closed, many)))
equal("the daemon is heard, and served", (gw.ctl("activity", "7").split()[0], call(S, "POST", "/v1/messages", engine, message()).status), ("0", 200))
for s in many:
    s.close()
gw.ctl("stop")
gw.start("%s:%d" % tcp)

# ---- injection ----
for name, model in [("CR LF", "claude-\r\nx-evil: 1"), ("an escape sequence", "claude-\x1b[31m"), ("U+2028", "claude-\u2028x"), ("a lookalike", "cl\u0430ude-a"), ("a zero", "claude-\0a"),
                    ("a trailing blank", "claude-a ")]:
    n = len(up.requests)
    st = call(S, "POST", "/v1/messages", engine, message(model)).status
    check("a model name with " + name, st in (400, 403) and len(up.requests) == n, st)
untouched("a bare CR in anthropic-beta", 400, lambda: raw((HEAD + "anthropic-beta: a\rx-evil: 1\r\nContent-Length: 2\r\n\r\n{}").encode()))
NAUGHTY = [b"/\xe2\x80\xa8", b"/\x1b[31m", b"/%0d%0aX", b"/'\"><script>", b"/\xff\xfe", b"/{\"a\":1}", b"/\\x", b"/#a", b"/a;b", b"/..%2f..", b"/%2e%2e/v1/messages", b"/v1/messages%5c"]
for t in NAUGHTY:
    n = len(up.requests)
    st = raw(b"POST " + t + b" HTTP/1.1\r\nHost: h\r\nx-api-key: " + engine.encode() + b"\r\nContent-Length: 0\r\n\r\n")
    check("target %r" % t, st in (400, 403) and len(up.requests) == n, st)
text = gw.ctl("ledger")
check("each record is one line of plain ASCII", all(all(32 <= ord(ch) < 127 for ch in l) and json.loads(l) for l in text.splitlines()))

# ---- around the route and the token ----
for name, line, want in [("OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: h", (400, 403, 405)), ("absolute form of a route", "POST http://h/v1/messages HTTP/1.1\r\nHost: h", (403, 405, 407)),
                         ("CONNECT to the gateway itself", "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d" % (tcp + tcp), (403, 407)),
                         ("absolute form with another Host", "GET http://a/ HTTP/1.1\r\nHost: b", (400, 403, 407)), ("TRACE", "TRACE /v1/messages HTTP/1.1\r\nHost: h", (403, 405))]:
    n = len(up.requests)
    st = raw((line + "\r\nx-api-key: %s\r\nProxy-Authorization: Bearer %s\r\n\r\n" % (engine, engine)).encode())
    check(name, st in want and len(up.requests) == n, st)
M = json.dumps(message()).encode()
TAIL = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(M) + M
for name, lines in [("a token in a cookie", "Cookie: x-api-key=" + engine), ("an empty Bearer", "Authorization: Bearer "), ("an empty key", "x-api-key:"), ("half a token", "x-api-key: " + engine[:20]),
                    ("a token and more", "x-api-key: %sx" % engine), ("Basic without a colon", "Authorization: Basic " + "YWJj"), ("another scheme", "Authorization: Token " + engine),
                    ("two in one field", "x-api-key: %s, %s" % (engine, engine)), ("a token in Proxy-Authorization", "Proxy-Authorization: Bearer " + engine)]:
    untouched(name, 401, lambda: raw(b"POST /v1/messages HTTP/1.1\r\nHost: h\r\n" + lines.encode() + b"\r\n" + TAIL))
untouched("two Authorization fields", 400, lambda: raw(b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nAuthorization: Bearer x\r\n" % engine.encode() + TAIL))
equal("gateway.listen takes the engine's token", call(tcp, "POST", "/v1/messages", engine, message()).status, 200)
untouched("and no sandbox's", 403, lambda: call(tcp, "POST", "/v1/messages", sandbox, message()).status)

# ---- answers that lie ----
bomb = gzip.compress(b"x" * (20 << 20))
up.script["claude-zip"] = lambda c, r: up.reply(c, 200, bomb, [("Content-Encoding", "gzip")])
before = rss()
r = call(S, "POST", "/v1/messages", engine, message("claude-zip"))
check("a compressed answer is not unpacked", rss() - before < 4096 and len(r.data) <= len(bomb), r.status, len(r.data))
up.script["claude-zip"] = lambda c, r: up.reply(c, 200, gzip.compress(b"you said " + r.h["x-api-key"].encode()), [("content-ENCODING", "gzip")])
r = call(S, "POST", "/v1/messages", engine, message("claude-zip"))
equal("and not passed on, for a key could be in it", (r.status, r.h.get("x-berthfs-rule")), (502, "provider.encoding"))
up.script["claude-zip"] = lambda c, r: up.reply(c, 200, b"{}", [("Content-Encoding", "identity")])
equal("identity is no compression", call(S, "POST", "/v1/messages", engine, message("claude-zip")).status, 200)


# An answer whose length can be read in two ways must not become two answers: the second would be taken for that of the
# next request on this connection, which may go to another provider.
FORGED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"evil":1}'
EVENTS = b"".join(anthropic_events())


def in_chunks(*pieces):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


DESYNC = [
    ("a length and chunks", b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", in_chunks(b"{}", FORGED), 200, b"{}" + FORGED),
    ("chunks and a length", b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", in_chunks(b"{}", FORGED), 200, b"{}" + FORGED),
    ("chunks that are less than the length", b"Content-Length: 200\r\nTransfer-Encoding: chunked\r\n", in_chunks(b"{}"), 200, b"{}"),
    ("two equal lengths", b"Content-Length: 2\r\nContent-Length: 2\r\n", b"{}" + FORGED, 200, b"{}"),
    ("a length of blanks and more", b"Content-Length:   2  \r\n", b"{}" + FORGED, 200, b"{}"),
    ("a body where none can be", b"Content-Length: %d\r\n" % len(FORGED), FORGED, 204, b""),
    ("chunks where none can be", b"Transfer-Encoding: chunked\r\n", in_chunks(FORGED), 204, b""),
]
for name, lines, body, status, want in DESYNC:
    def two_ways(c, r):
        c.sendall(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nConnection: close\r\n" % status + lines + b"\r\n" + body)
        return "close"
    up.script["claude-two"] = two_ways
    c = Client(S).ask("POST", "/v1/messages", engine, message("claude-two")).head()
    first = (c.status, b"" if c.status == 204 else c.body()[0])
    try:
        c.ask("POST", "/v1/messages", engine, message()).head()
        second = c.body()[0]
    except OSError:
        c.status, second = 0, b""
    check("an answer with %s stays one" % name, first == (status, want) and (c.status == 0 or (c.status == 200 and b'"hi"' in second)), first, c.status, second)
    c.close()


def events_short(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % (len(EVENTS) + 500) + EVENTS)
    return "close"
up.script["claude-two"] = events_short
c = Client(S).ask("POST", "/v1/messages", engine, message("claude-two", stream=True)).head()
check("events that are less than their length are cut off", c.body() == (EVENTS, False))
c.close()


# A refused answer is not read for ever
def endless(c, r):
    c.sendall(b"HTTP/1.1 401 X\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n")
    try:
        while True:
            c.sendall(b" ")
            time.sleep(0.05)
    except OSError:
        let_go.set()
    return "close"
let_go = threading.Event()
up.script["claude-endless"] = endless
equal("an endless refusal is answered", call(S, "POST", "/v1/messages", engine, message("claude-endless")).status, 502)
check("and let go", let_go.wait(60) and within(60, lambda: gw.ctl("activity", "7").split()[0] == "0"))


def trailers(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTrailer: x-key\r\nTransfer-Encoding: chunked\r\n\r\n")
    for e in anthropic_events():
        c.sendall(b"%x\r\n%s\r\n" % (len(e), e))
    c.sendall(b"0\r\nx-key: %s\r\nset-cookie: a=b\r\n\r\n" % r.h["x-api-key"].encode())
up.script["claude-trailer"] = trailers
c = Client(S).ask("POST", "/v1/messages", engine, message("claude-trailer", stream=True), headers=["Connection: close"])
data = c.f.read()
check("trailers do not pass", KEY.encode() not in data and b"set-cookie" not in data and data.endswith(b"0\r\n\r\n"), data[-200:])
c.close()
def endless_trailers(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
    for i in range(4000):
        c.sendall(b"X-%d: yyyyyyyyyyyyyyyyyyyyyyyyy\r\n" % i * 1000)
    return "close"
up.script["claude-trailer"] = endless_trailers
high = lambda: int(re.search(r"VmHWM:\s+(\d+)", open("/proc/%d/status" % gw.pid).read()).group(1))
before = high()
r = call(S, "POST", "/v1/messages", engine, message("claude-trailer"))
check("trailers without end are cut off, and take no memory", not r.whole and high() - before < 50 << 10, r.whole, before, high())
for name, head in [("two lengths", b"Content-Length: 2\r\nContent-Length: 200\r\n"), ("a length that is no number", b"Content-Length: x\r\n"), ("a negative length", b"Content-Length: -5\r\n"),
                   ("a head of 2 MB", b"X: " + b"y" * 2000000 + b"\r\n"), ("a line of zeros", b"\0" * 100 + b"\r\n")]:
    def lie(c, r, head=head):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + head + b"\r\n{}")
        return "close"
    up.script["claude-lie"] = lie
    r = call(S, "POST", "/v1/messages", engine, message("claude-lie"))
    check("an answer with " + name + " harms nobody", call(S, "POST", "/v1/messages", engine, message()).status == 200 and r.status in (200, 502), r.status)
up.script["claude-garbage"] = lambda c, r: (c.sendall(os.urandom(5000)), "close")[1]
equal("nor does garbage", call(S, "POST", "/v1/messages", engine, message("claude-garbage")).status, 502)


def injected(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nrequest-id: a\rset-cookie: evil=1\r\nTransfer-Encoding: chunked\r\n\r\n")
    for e in anthropic_events():
        c.sendall(b"%x\r\n%s\r\n" % (len(e), e))
    c.sendall(b"0\r\n\r\n")
up.script["claude-inject"] = injected
r = call(S, "POST", "/v1/messages", engine, message("claude-inject", stream=True))
check("a header with a CR in it does not pass", "set-cookie" not in str(r.h), r.h)

# ---- a client that leaves after each event ----
# After as many as the client takes no more come until it has left
events = list(anthropic_events("abcdef"))
up.script["claude-step"] = lambda c, r: up.stream(c, events[:max(i, 1)], hold=100)
results = []
for i in range(len(events) + 1):
    n = up.aborted
    c = Client(S).ask("POST", "/v1/messages", engine, message("claude-step", stream=True)).head()
    for _ in range(i):
        c.chunk()
    c.close()
    d, o = gw.outcome()
    within(60, lambda: up.aborted == n + 1 or i == len(events))
    results.append((o.get("result"), up.aborted - n))
check("a client that leaves after any event is settled, and the provider's stream ends", all(x == ("client left", 1) for x in results[:-1]) and results[-1][0] == "complete", results)

# Thoughts that are not shown cost as much: one who leaves before the end pays for the time.
up.script["claude-muses"] = lambda c, r: up.stream(c, (e for i, e in enumerate(anthropic_events()) if i == 0 or time.sleep(1) is None), pause=0.05)
t = time.monotonic()
c = Client(S).ask("POST", "/v1/messages", engine, message("claude-muses", stream=True, max_tokens=50000)).head()
c.chunk()
time.sleep(0.8)
c.close()
d, o = gw.outcome()
check("thoughts that are not shown are paid for by their time", o.get("result") == "client left" and 0.8 * 250 <= o["output"] <= max(250 * (time.monotonic() - t), 1000), o)

# ---- revoking at each stage ----
def revoked(name, token, stage):
    c = Client(S)
    body = json.dumps(message()).encode()
    full = ("POST /v1/messages HTTP/1.1\r\nHost: h\r\nx-api-key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (token, len(body))).encode() + body
    cut = full.index(b"\r\n\r\n") - 5 if stage == "head" else len(full) - 5
    n = len(up.requests)
    c.send(full[:cut])
    time.sleep(0.05)
    gw.ctl("revoke", "engine", name)
    try:
        c.send(full[cut:])
        st = c.head().status
    except OSError:
        st = 0
    c.close()
    check("revoked during the " + stage, st in (0, 401) and len(up.requests) == n, st)
revoked("r1", gw.ctl("mint", "engine", "r1", "app", "none", ""), "head")
old = gw.ctl("mint", "engine", "r2", "app", "none", "")
revoked("r2", old, "body")
up.script["claude-think"] = lambda c, r: (up.rest(c, 100), up.reply(c, 200, b"{}"))


def cut():
    n = len(up.requests)
    tok = gw.ctl("mint", "engine", "r3", "app", "none", "")
    c = Client(S).ask("POST", "/v1/messages", tok, message("claude-think"))
    within(60, lambda: len(up.requests) > n)
    t = time.monotonic()
    gw.ctl("revoke", "engine", "r3")
    try:
        st = c.head().status
    except OSError:
        st = 0
    t = time.monotonic() - t
    equal("revoked while the provider thinks: no answer", st, 0)
    c.close()
    return t


done_in("revoked while the provider thinks: cut", 1, cut)

# ---- limits over a restart, and the last unit of project and day ----
gw.ctl("policy-set", data=policy(up, "limit session requests-per-minute 6").encode())
tok = gw.ctl("mint", "engine", "rate", "app", "none", "")
first = [call(S, "POST", "/v1/messages", tok, message()).status for _ in range(4)]
gw.outcome()
gw.kill()
gw.start("%s:%d" % tcp)
after = [call(S, "POST", "/v1/messages", tok, message()).status for _ in range(6)]
check("a minute's requests are counted over a restart", first == [200] * 4 and after.count(200) <= 2 and 429 in after, first, after)
untouched("a token that was revoked stays so over a restart", 401, lambda: call(S, "POST", "/v1/messages", old, message()).status)
up.script["claude-count"] = lambda c, r: (time.sleep(0.05), up.reply(c, 200, json.dumps({"usage": {"input_tokens": 10, "output_tokens": min(1000, r.json["max_tokens"])}}).encode()))[1]
spends = lambda prefix: sum(int(l.split("\t")[5]) for l in gw.ctl("tokens").splitlines() if l.startswith(prefix))
used = sum(int(l.split("\t")[5]) for l in gw.ctl("tokens").splitlines())
for what, project, limit in [("project", "one", 160_000_000), ("day", "two", 160_000_000)]:
    toks = [gw.ctl("mint", "engine", "%s-%d" % (what, i), project, "none", "") for i in range(10)]
    rows = gw.ledger()
    base = 0 if what == "project" else sum(r.get("nano", 0) for r in rows if r.get("kind") == "outcome" and r["time"][:10] == rows[-1]["time"][:10])
    gw.ctl("policy-set", data=policy(up, "limit %s money %.9f" % (what, (limit + base) / 1e9)).encode())
    with ThreadPoolExecutor(100) as pool:
        rs = list(pool.map(lambda i: call(S, "POST", "/v1/messages", toks[i % 10], message("claude-count", max_tokens=1000)), range(100)))
    spent = spends(what + "-")
    rules = {r.h.get("x-berthfs-rule") for r in rs if r.status == 429}
    check("100 clients of ten sessions at the last money of the %s" % what, 100_000_000 < spent <= limit and rules == {"limit.%s.money" % what}, spent, rules)

gw.ctl("stop")
p = subprocess.run([BERTHFS, "ledger", "verify"], env=gw.env, stdout=subprocess.PIPE)
check("the ledger holds", p.returncode == 0, p.stdout)
sys.exit(failed)
