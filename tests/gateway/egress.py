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
row = within(3, lambda: [r for r in gw.ledger() if r.get("result") == "complete"])
check("the ledger has it with bytes both ways", row and row[0]["bytes_up"] == 51 and row[0]["bytes_down"] == len(data), row)
equal("registries: another host", connect("registries", "other.test:443")[:2], (403, "egress.registries"))
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
c = Client(boxes["internet"]).ask("CONNECT", "other.test:443", headers=[auth(tokens["internet"])]).head()
c.s.recv(1000)
t = time.monotonic()
gw.ctl("revoke", "all", "internet")
try:
    while c.s.recv(1 << 20):
        pass
except OSError:
    pass
check("revoking cuts tunnels within a second", time.monotonic() - t < 1)
row = within(3, lambda: [r for r in gw.ledger() if r.get("result") == "revoked"])
check("and the ledger says so", bool(row))

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
    p = subprocess.run(["curl", "-sS", "-m", "20", "http://plain.test/file"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    equal("curl, plain", p.stdout, b"from plain.test")
    p = subprocess.run(["curl", "-sS", "-m", "20", "-p", "http://packages.test:443/file"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    equal("curl, by CONNECT", p.stdout, b"from packages.test:443")
    p = subprocess.run(["curl", "-sS", "-m", "20", "-o", "/dev/null", "-w", "%{http_connect}", "https://other.test/"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    equal("curl, refused", p.stdout, b"403")
else:
    print("skip curl: not installed")
gw.ctl("stop")
p = subprocess.run([BERTHFS, "ledger", "verify"], env=gw.env, stdout=subprocess.PIPE)
check("the ledger holds", p.returncode == 0, p.stdout)
sys.exit(failed)
