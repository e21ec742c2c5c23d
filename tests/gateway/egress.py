# The proxy: what a session's network setting lets through, and what none does.
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
import base64, http.server, socketserver

gw = Instance().start()
hits = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        hits.append((self.path, dict(self.headers)))
        body = b"from " + self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *a):
        pass


web = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
web.daemon_threads = True
threading.Thread(target=web.serve_forever, daemon=True).start()
port = web.server_address[1]
up = Provider()
MAPS = "\n".join("map %s 127.0.0.1:%d" % (h, port) for h in ("packages.test", "other.test", "vendor.test", "plain.test"))
RULES = "egress registries packages.test plain.test:80 odd.test:8443\negress vendor vendor.test\nlimit session bytes 3000000\n" + MAPS
gw.ctl("policy-set", data=policy(up, RULES).encode())
tokens, boxes = {}, {}
for mode in ("none", "registries", "internet"):
    boxes[mode] = gw.dir + "/%s.sock" % mode
    tokens[mode] = gw.ctl("mint", "sandbox", mode, "app", mode, boxes[mode])
engine = gw.ctl("mint", "engine", "e", "app", "none", "")


def auth(token):
    return "Proxy-Authorization: Basic " + base64.b64encode(("berth:" + token).encode()).decode()


def connect(mode, host, token=None, where=None, headers=None):
    c = Client(where or boxes[mode])
    c.ask("CONNECT", host, headers=headers if headers is not None else [auth(token or tokens[mode])]).head()
    if c.status == 200:
        c.send(b"GET /x HTTP/1.1\r\nHost: inner\r\nConnection: close\r\n\r\n")
        c.data = c.f.read()
    else:
        c.data, _ = c.body()
    c.close()
    return c.status, c.h.get("x-berthfs-rule"), c.data


def get(mode, url, host=None, headers=()):
    c = Client(boxes[mode])
    host = host or re.match("http://([^/]*)", url).group(1)
    c.send(("GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s\r\n" % (url, host, auth(tokens[mode]), "".join(h + "\r\n" for h in headers))).encode())
    c.head()
    c.data, _ = c.body()
    c.close()
    return c.status, c.h.get("x-berthfs-rule"), c.data


s, rule, data = connect("registries", "packages.test:443")
check("registries: a host of the policy", s == 200 and data.endswith(b"from inner"), s, rule, data)
row = within(60, lambda: [r for r in gw.ledger() if r.get("result") == "complete"])
check("the ledger has it with bytes both ways", row and row[0]["bytes_up"] == 51 and row[0]["bytes_down"] == len(data), row)
equal("registries: another host", connect("registries", "other.test:443")[:2], (403, "egress.registries"))
equal("registries: no tunnel to the port of plain http, which has no name that is checked", connect("registries", "packages.test:80")[:2], (403, "egress.registries"))
equal("registries: another port", connect("registries", "packages.test:22")[:2], (403, "egress.registries"))
equal("none: nothing", connect("none", "packages.test:443")[:2], (403, "egress.none"))
equal("internet: any name", connect("internet", "other.test:443")[0], 200)
equal("internet: not every port", connect("internet", "unmapped.invalid:25")[:2], (403, "egress.port"))
equal("a name that does not exist", connect("internet", "nothing.invalid:443")[:2], (502, "egress.name"))
for host in ["127.0.0.1:443", "127.1:443", "2130706433:443", "0x7f000001:443", "169.254.169.254:443", "[::1]:443", "[::ffff:127.0.0.1]:443", "1.1.1.1:443", "10.0.0.1:443"]:
    equal("no literal " + host, connect("internet", host)[:2], (403, "egress.literal"))
name = socket.gethostname()
for host in ["localhost:443", "ip6-localhost:443"] + ([name + ":443"] if "." not in name else []):
    s, rule, _ = connect("internet", host)
    check("a name of this machine: " + host.split(":")[0], (s, rule) in [(403, "egress.address"), (502, "egress.name")], s, rule)
equal("a final dot", connect("internet", "localhost.:443")[0], 400)
equal("no token", connect("registries", "packages.test:443", headers=[])[:2], (407, "token"))
equal("another sandbox's token", connect("registries", "packages.test:443", token=tokens["internet"])[:2], (403, "token.channel"))
equal("Bearer, too", connect("registries", "packages.test:443", headers=["Proxy-Authorization: Bearer " + tokens["registries"]])[0], 200)
equal("the engine reaches the vendor's hosts", connect("", "vendor.test:443", token=engine, where=gw.sock)[0], 200)
equal("and no others", connect("", "packages.test:443", token=engine, where=gw.sock)[:2], (403, "egress.vendor"))
equal("the vendor's hosts are not a sandbox's", connect("registries", "vendor.test:443")[:2], (403, "egress.registries"))

s, rule, data = get("registries", "http://plain.test/a/b?c=d", headers=["Accept: x/y", "Cookie: s", "X-Evil: 1"])
equal("plain GET", (s, data, hits[-1][0]), (200, b"from plain.test", "/a/b?c=d"))
check("with listed headers alone, and no token", sorted(k.lower() for k in hits[-1][1]) == ["accept", "connection", "host"], hits[-1])
equal("another host in Host", get("registries", "http://plain.test/", "other.test")[:2], (400, "egress.host"))
equal("plain GET elsewhere", get("registries", "http://other.test/")[:2], (403, "egress.registries"))
c = call(boxes["registries"], "POST", "http://plain.test/", body=b"x", headers=[auth(tokens["registries"])[0:], "Host: plain.test"])
equal("plain POST", c.status, 400)  # Host twice
c = Client(boxes["registries"])
c.send(("POST http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n%s\r\nContent-Length: 1\r\n\r\nx" % auth(tokens["registries"])).encode())
equal("plain POST is not passed", (c.head().status, c.h["x-berthfs-rule"]), (405, "egress.method"))
c.close()

# What follows a plain request on its connection was not looked at: it stays here. What went out is counted.
taken = []
raw = socket.create_server(("127.0.0.1", 0))


def record():
    while True:
        c, _ = raw.accept()
        data = b""
        c.settimeout(60)
        try:
            while b"\r\n\r\n" not in data:
                data += c.recv(65536)
            c.settimeout(0.5)
            while (more := c.recv(65536)):
                data += more
        except OSError:
            pass
        taken.append(data)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        c.close()


threading.Thread(target=record, daemon=True).start()
gw.ctl("policy-set", data=policy(up, RULES.replace("plain.test 127.0.0.1:%d" % port, "plain.test 127.0.0.1:%d" % raw.getsockname()[1])).encode())
hidden = b"POST /evil HTTP/1.1\r\nHost: other.test\r\nX-Evil: 1\r\nContent-Length: 1\r\n\r\nx"
c = Client(boxes["registries"])
c.send(("GET http://plain.test/%s HTTP/1.1\r\nHost: plain.test\r\n%s\r\n\r\n" % ("a" * 9000, auth(tokens["registries"]))).encode() + hidden)
try:
    c.send(hidden)
except OSError:  # it has been answered already
    pass
equal("plain GET with more behind it is answered", (c.head().status, len(taken)), (200, 1))
check("and what stands behind it goes nowhere", taken and taken[0].startswith(b"GET /aaa") and taken[0].count(b"HTTP/1.1") == 1 and taken[0].endswith(b"\r\n\r\n"), taken)
c.close()
sent = lambda: [r["bytes_up"] for r in gw.ledger() if r.get("kind") == "outcome" and r.get("bytes_up", 0) > 9000]
check("a request's own bytes are counted", within(60, lambda: sent() == [len(taken[0])]), sent(), len(taken[0]))

# ---- bytes, slow readers, revoking ----
sink = socket.create_server(("127.0.0.1", 0))
def serve():
    while True:
        c, _ = sink.accept()
        def pour(c=c):
            try:
                while True:
                    c.sendall(b"z" * 65536)
            except OSError:
                c.close()
        threading.Thread(target=pour, daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
gw.ctl("policy-set", data=policy(up, RULES + "\nmap pour.test 127.0.0.1:%d\negress registries pour.test" % sink.getsockname()[1]).encode())
c = Client(boxes["registries"]).ask("CONNECT", "pour.test:443", headers=[auth(tokens["registries"])]).head()
equal("a tunnel", c.status, 200)
n = len(c.f.read())
check("is cut at the limit of bytes", 2_000_000 < n < 3_300_000, n)
equal("and then none is opened", connect("registries", "packages.test:443")[:2], (429, "limit.session.bytes"))
gw.ctl("policy-set", data=policy(up, MAPS.replace("other.test 127.0.0.1:%d" % port, "other.test 127.0.0.1:%d" % sink.getsockname()[1])).encode())


def cut():
    token = gw.ctl("mint", "sandbox", "cut", "app", "internet", gw.dir + "/cut.sock")
    c = Client(gw.dir + "/cut.sock").ask("CONNECT", "other.test:443", headers=[auth(token)]).head()
    c.s.recv(1000)
    t = time.monotonic()
    gw.ctl("revoke", "all", "cut")
    try:
        while c.s.recv(1 << 20):
            pass
    except OSError:
        pass
    return time.monotonic() - t


gw.ctl("revoke", "all", "internet")
done_in("revoking cuts tunnels", 1, cut)
row = within(60, lambda: [r for r in gw.ledger() if r.get("result") == "revoked"])
check("and the ledger says so", bool(row))

# ---- the network is changed while a tunnel is open ----
gw.ctl("policy-set", data=policy(up, "egress registries pour.test\nmap pour.test 127.0.0.1:%d\nmap other.test 127.0.0.1:%d" % ((sink.getsockname()[1],) * 2)).encode())
token = gw.ctl("mint", "sandbox", "wide", "app", "internet", gw.dir + "/wide.sock")


def opened(host):
    c = Client(gw.dir + "/wide.sock", 60).ask("CONNECT", host, headers=[auth(token)]).head()
    c.s.recv(1000)
    return c


def ends(c):
    try:
        while c.s.recv(1 << 20):
            pass
        return True
    except TimeoutError:
        return False
    except OSError:
        return True


def flows(c):
    return sum(len(c.s.recv(1 << 16)) for _ in range(200)) > 1000


kept, lost = opened("pour.test:443"), opened("other.test:443")
gw.ctl("network", "wide", "registries")
check("registries instead of internet cuts what is no package host", ends(lost))
check("and nothing else", flows(kept))
gw.ctl("network", "wide", "none")
check("none cuts all", ends(kept))
check("the ledger says why", within(60, lambda: [r["result"] for r in gw.ledger() if r.get("result") == "network changed"] == ["network changed"] * 2))
gw.ctl("revoke", "all", "wide")

# ---- tunnels at full speed ----
gw.ctl("policy-set", data=policy(up, "egress registries packages.test plain.test:80 pour.test sink.test\nlimit session bytes 1000000000000\nmap pour.test 127.0.0.1:%d\nmap sink.test 127.0.0.1:%d\n" % (sink.getsockname()[1], sink.getsockname()[1]) + MAPS).encode())
gw.ctl("mint", "sandbox", "fast", "app", "registries", gw.dir + "/fast.sock")
gw.ctl("revoke", "all", "fast")
fast = gw.ctl("mint", "sandbox", "fast", "app", "registries", gw.dir + "/fast.sock")
stop = threading.Event()


def spin(step):
    try:
        while not stop.is_set():
            step()
    except OSError:
        pass


def tunnel(host):
    return Client(gw.dir + "/fast.sock").ask("CONNECT", host, headers=[auth(fast)]).head()
steps = []
for _ in range(3):
    c = tunnel("pour.test:443")
    steps.append(lambda c=c: c.s.recv(1 << 20))
c = Client(gw.dir + "/fast.sock")
c.send(("GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n%s\r\n\r\n" % auth(fast)).encode())
steps.append(lambda c=c: c.send(b"x" * 65536))
for step in steps:
    threading.Thread(target=spin, args=(step,), daemon=True).start()
time.sleep(0.3)
times = []
for _ in range(10):
    t = time.monotonic()
    call(gw.sock, "GET", "/nothing", engine)
    times.append(time.monotonic() - t)
check("tunnels at full speed hold up nobody", sorted(times)[5] < 5 and min(times) < 0.3, times)
stop.set()
gw.ctl("revoke", "all", "fast")

# ---- killed while a tunnel runs: what has passed stays charged, and the ledger tells about how much it was ----
gw.ctl("policy-set", data=policy(up, "egress registries pour.test\nlimit session bytes 60000000\nmap pour.test 127.0.0.1:%d" % sink.getsockname()[1]).encode())
box = gw.dir + "/dies.sock"
dies = gw.ctl("mint", "sandbox", "dies", "app", "registries", box)


def passed(c, most):
    n = 0
    while n < most and (d := c.s.recv(min(1 << 16, most - n))):
        n += len(d)
    return n


got = []
for most in (1000, 3_000_000, 12_000_000):
    c = Client(box).ask("CONNECT", "pour.test:443", headers=[auth(dies)]).head()
    got.append(passed(c, most))
    gw.kill()
    gw.start()
    c.close()
rows = gw.ledger()
n_bytes, told = 0, [r for r in rows if r.get("session") == "dies" and r["kind"] == "decision"]
last = {d["seq"]: d for d in told}
for r in rows:
    if r["kind"] == "bytes" and r["decision"] in last:
        last[r["decision"]] = r
        n_bytes += 1
held = [last[d["seq"]]["reserved_bytes"] for d in told]
check("the ledger has charged all that passed, and not much more", len(held) == 3 and all(g <= h <= 2 * g + 4_000_000 for g, h in zip(got, held)), got, held)
check("in few records", 6 < n_bytes < 40, n_bytes)
c = Client(box).ask("CONNECT", "pour.test:443", headers=[auth(dies)]).head()
equal("there is room for another", c.status, 200)
rest = passed(c, 1 << 30)
left = 60_000_000 - sum(held)  # the end of which may be on its way when it is cut
check("the limit holds over three kills: it is used up, and never passed", left - 2_000_000 < rest <= left, got, held, rest)
row = within(60, lambda: [r for r in gw.ledger() if r.get("result") == "limit of bytes"][1:])
check("and its outcome says the same", row and row[-1]["bytes_down"] == left, row, left)
equal("then none is opened", call(box, "CONNECT", "pour.test:443", headers=[auth(dies)]).h.get("x-berthfs-rule"), "limit.session.bytes")
gw.kill()
gw.start()
equal("nor after one more kill", call(box, "CONNECT", "pour.test:443", headers=[auth(dies)]).h.get("x-berthfs-rule"), "limit.session.bytes")
p = subprocess.run([BERTHFS, "ledger", "verify"], env=gw.env, stdout=subprocess.PIPE)
check("the chain holds", p.returncode == 0, p.stdout)

# ---- the host that TLS names ----
def hello(name, versions=(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)):
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    ctx.minimum_version, ctx.maximum_version = versions
    out = ssl.MemoryBIO()
    try:
        ctx.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


seen, ended = [], []
names = socket.create_server(("127.0.0.1", 0))


def name_server():
    while True:
        c, _ = names.accept()
        seen.append(b"")
        try:
            while (data := c.recv(65536)):
                seen[-1] += data
                c.sendall(b"heard %d\n" % len(seen[-1]))
        except OSError:
            pass
        c.close()
        ended.append(True)


threading.Thread(target=name_server, daemon=True).start()
gw.ctl("policy-set", data=policy(up, "egress registries packages.test\negress vendor vendor.test\n" + "\n".join(
    "map %s 127.0.0.1:%d" % (h, names.getsockname()[1]) for h in ("packages.test", "vendor.test", "other.test"))).encode())
token = gw.ctl("mint", "sandbox", "sni", "app", "registries", gw.dir + "/sni.sock")
wide = gw.ctl("mint", "sandbox", "sni2", "app", "internet", gw.dir + "/sni2.sock")


def says(data, host="packages.test:443", token=token, where=gw.dir + "/sni.sock", step=None):
    """What a host hears of it: all, or nothing."""
    n, heard = len(ended), b""
    c = Client(where).ask("CONNECT", host, headers=[auth(token)]).head()
    try:
        for i in range(0, len(data), step or len(data)):
            c.send(data[i:i + (step or len(data))])
        while b"heard %d\n" % len(data) not in heard and (more := c.s.recv(1000)):
            heard += more
    except OSError:
        pass
    c.close()
    if not within(60, lambda: len(ended) > n):
        return "no connection, or one that does not end"
    return seen[n] == data or (False if seen[n] == b"" else seen[n])


right = hello("packages.test")
record = lambda b: b"\x16\x03\x01" + len(b).to_bytes(2, "big") + b
for name, data, want in [
        ("the host itself", right, True), ("in other letters", hello("Packages.TEST"), True), ("by TLS 1.2", hello("packages.test", (ssl.TLSVersion.TLSv1_2,) * 2), True),
        ("in many records", b"".join(record(right[5 + i:5 + i + 7]) for i in range(0, len(right) - 5, 7)), True),
        ("with early data behind it", right + b"\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x02ab", True),
        ("another host", hello("other.test"), False), ("another, in many records", b"".join(record(hello("other.test")[5 + i:5 + i + 50]) for i in range(0, len(right) - 5, 50)), False),
        ("a longer name", hello("packages.test.evil.test"), False), ("no host", hello(None), False), ("a hello without end", record(b"\x01\x00\xff\xff" + b"a" * 100) + b"\x17\x03\x03\x00\x01a", False),
        ("a record that is none", b"\x16\x02\x01" + b"\0" * 300, False), ("no TLS at all", b"SSH-2.0-x\r\n", True)]:
    equal("TLS names %s" % name, says(data), want)
equal("byte by byte", (says(right, step=1), says(hello("other.test"), step=1)), (True, False))
equal("the vendor's hosts alike", (says(hello("vendor.test"), "vendor.test:443", engine, gw.sock), says(right, "vendor.test:443", engine, gw.sock)), (True, False))
equal("on the internet any", says(right, "other.test:443", wide, gw.dir + "/sni2.sock"), True)
check("the ledger says why", within(60, lambda: {"TLS names another host", "TLS names no host"} <= {r.get("result") for r in gw.ledger()}))
gw.ctl("revoke", "all", "sni")
gw.ctl("revoke", "all", "sni2")

# ---- real programs ----
gw.ctl("network", "registries", "registries")
gw.ctl("revoke", "all", "registries")
box = gw.dir + "/tcp.sock"
token = gw.ctl("mint", "sandbox", "tools", "app", "registries", box)
gw.ctl("policy-set", data=policy(up, RULES).encode())
relay = socket.create_server(("127.0.0.1", 0))
def pump(a, b):
    try:
        while (d := a.recv(65536)):
            b.sendall(d)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
def relays():  # what listens in a sandbox
    while True:
        a, _ = relay.accept()
        b = socket.socket(socket.AF_UNIX)
        b.connect(box)
        threading.Thread(target=pump, args=(a, b), daemon=True).start()
        threading.Thread(target=pump, args=(b, a), daemon=True).start()
threading.Thread(target=relays, daemon=True).start()
proxy = "http://berth:%s@127.0.0.1:%d" % (token, relay.getsockname()[1])
env = dict(os.environ, http_proxy=proxy, https_proxy=proxy, HTTPS_PROXY=proxy, no_proxy="")
if shutil.which("curl"):
    p = subprocess.run(["curl", "-sS", "-m", "60", "http://plain.test/file"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    equal("curl, plain", p.stdout, b"from plain.test")
    p = subprocess.run(["curl", "-sS", "-m", "60", "-p", "http://packages.test:443/file"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    equal("curl, by CONNECT", p.stdout, b"from packages.test:443")
    p = subprocess.run(["curl", "-sS", "-m", "60", "-o", "/dev/null", "-w", "%{http_connect}", "https://other.test/"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    equal("curl, refused", p.stdout, b"403")
else:
    print("skip curl: not installed")

# A package host with TLS: a git repository and a package index, as files.
files = gw.dir + "/files"
ctx = test_ca(gw.dir + "/ca", "index.test")
ca = gw.dir + "/ca/ca.pem"


class Files(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *a):
        super().__init__(*a, directory=files)

    def log_message(self, *a):
        pass


os.makedirs(files + "/simple/berthtest")
tls = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Files)
tls.daemon_threads = True
tls.socket = ctx.wrap_socket(tls.socket, server_side=True)
threading.Thread(target=tls.serve_forever, daemon=True).start()
gw.ctl("policy-set", data=policy(up, "egress registries index.test\nmap index.test 127.0.0.1:%d" % tls.server_address[1]).encode())
env.update(GIT_SSL_CAINFO=ca, REQUESTS_CA_BUNDLE=ca, CURL_CA_BUNDLE=ca, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1", HOME=gw.dir, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_CONFIG_FILE="/dev/null")


def program(name, want, *argv, **kw):
    if not shutil.which(argv[0]):
        print("skip %s: not installed" % name)
        return
    p = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, cwd=gw.dir, **kw)
    check(name, p.returncode == 0 and want(), p.stdout[-600:])


program("curl over TLS", lambda: True, "curl", "-sSf", "--cacert", ca, "-o", "/dev/null", "https://index.test/simple/")
sh = "git init -q r && cd r && git -c user.name=a -c user.email=b commit -q --allow-empty -m x && git clone -q --bare . %s/r.git && cd %s/r.git && git update-server-info" % (files, files)
subprocess.run(["sh", "-c", sh], cwd=gw.dir, env=env, check=True)
program("git clone", lambda: os.path.isdir(gw.dir + "/cloned/.git"), "git", "clone", "-q", "https://index.test/r.git", "cloned")
import zipfile
wheel = "berthtest-1.0-py3-none-any.whl"
with zipfile.ZipFile(files + "/simple/berthtest/" + wheel, "w") as z:
    z.writestr("berthtest.py", "")
    z.writestr("berthtest-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: berthtest\nVersion: 1.0\n")
    z.writestr("berthtest-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("berthtest-1.0.dist-info/RECORD", "")
if not subprocess.run(["python3", "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
    program("pip download", lambda: os.path.exists(gw.dir + "/got/" + wheel), "python3", "-m", "pip", "download", "-q", "--no-deps", "--cert", ca,
            "--index-url", "https://index.test/simple", "-d", "got", "berthtest")
else:
    print("skip pip: not installed")
os.makedirs(files + "/npm")
open(files + "/npm/berthtest", "w").write(json.dumps({"name": "berthtest", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
    "name": "berthtest", "version": "1.0.0", "dist": {"tarball": "https://index.test/npm/x.tgz", "shasum": "0" * 40}}}}))
program("npm view", lambda: True, "npm", "view", "berthtest", "name", "--registry", "https://index.test/npm/", "--cafile", ca, "--fetch-retries", "0")
import hashlib, io, tarfile
tar = io.BytesIO()
with tarfile.open(fileobj=tar, mode="w:gz") as z:
    for name, text in (("Cargo.toml", '[package]\nname = "berthtest"\nversion = "1.0.0"\n'), ("src/lib.rs", "")):
        info = tarfile.TarInfo("berthtest-1.0.0/" + name)
        info.size = len(text)
        z.addfile(info, io.BytesIO(text.encode()))
for d, name, data in (("", "config.json", b'{"dl":"https://index.test/cargo/dl"}'), ("/dl/berthtest/1.0.0", "download", tar.getvalue()), ("/be/rt", "berthtest", json.dumps(
        {"name": "berthtest", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(tar.getvalue()).hexdigest(), "features": {}, "yanked": False}).encode())):
    os.makedirs(files + "/cargo" + d, exist_ok=True)
    open(files + "/cargo" + d + "/" + name, "wb").write(data)
os.makedirs(gw.dir + "/rust/src")
open(gw.dir + "/rust/src/lib.rs", "w").close()
open(gw.dir + "/rust/Cargo.toml", "w").write('[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nberthtest = { version = "1", registry = "t" }\n')
env.update(CARGO_HOME=gw.dir + "/cargo", CARGO_REGISTRIES_T_INDEX="sparse+https://index.test/cargo/", CARGO_HTTP_CAINFO=ca, CARGO_NET_RETRY="0",
           RUSTUP_HOME=os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup")))
program("cargo fetch", lambda: any("berthtest-1.0.0.crate" in fs for _, _, fs in os.walk(gw.dir + "/cargo")), "cargo", "fetch", "--manifest-path", gw.dir + "/rust/Cargo.toml")
os.makedirs(files + "/apt")
open(files + "/apt/Packages", "w").write("Package: berthtest\nVersion: 1.0\nArchitecture: all\nMaintainer: x\nDescription: x\nFilename: ./x.deb\nSize: 1\nSHA256: %s\n" % ("0" * 64))
for d in ("etc/preferences.d", "etc/apt.conf.d", "state/lists/partial", "cache/archives/partial"):
    os.makedirs(gw.dir + "/aptroot/" + d)
open(gw.dir + "/aptroot/etc/sources.list", "w").write("deb [trusted=yes] https://index.test/apt ./\n")
a = gw.dir + "/aptroot/"
program("apt-get update", lambda: any("Packages" in f for f in os.listdir(a + "state/lists")), "apt-get", "update", "-o", "Dir::Etc=" + a + "etc", "-o", "Dir::State=" + a + "state",
        "-o", "Dir::Cache=" + a + "cache", "-o", "Dir::State::status=/dev/null", "-o", "Acquire::https::CAInfo=" + ca, "-o", "APT::Sandbox::User=root",
        "-o", "Acquire::Retries=0", "-o", "Acquire::https::Proxy=" + proxy, "-o", "Acquire::Check-Date=false")
gw.ctl("stop")
p = subprocess.run([BERTHFS, "ledger", "verify"], env=gw.env, stdout=subprocess.PIPE)
check("the ledger holds", p.returncode == 0, p.stdout)
sys.exit(failed)
