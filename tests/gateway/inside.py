# What programs inside a sandbox (KIND: dir, container or vm) get through the gateway, and in the last two that nothing else
# is reachable.
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
import http.server, shlex, socketserver, zipfile

KIND = os.environ.get("KIND", "dir")
BOXCTL = os.environ.get("BOXCTL", os.path.dirname(BERTHFS) + "/tests/boxctl")
gw = Instance()
gw.env["BOX_CACHE"] = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) + "/berthfs"
os.makedirs(gw.dir + "/home")


def box(verb, *args, fail=False):
    p = subprocess.run([BOXCTL, verb, KIND, "1", *args], env=gw.env, stdout=subprocess.PIPE, stderr=gw.log, timeout=200)
    if p.returncode and not fail:
        raise RuntimeError("%s %r: %d %r" % (verb, args, p.returncode, p.stdout[-600:]))
    return p.returncode, p.stdout.decode()


def end():
    subprocess.run([BOXCTL, "destroy", KIND, "1"], env=gw.env, stdout=gw.log, stderr=gw.log)
atexit.register(end)  # before the instance's own end, which was registered first


def sh(script):
    return box("run", script, fail=True)


# ---- package hosts with TLS, on loopback ----
files = gw.dir + "/files"
os.makedirs(files + "/simple/berthtest")
ctx = test_ca(gw.dir + "/ca", "index.test")


class Files(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *a):
        super().__init__(*a, directory=files)

    def log_message(self, *a):
        pass


class Plain(Files):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from " + self.headers["Host"].encode())


def serve(handler, tls):
    s = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    s.daemon_threads = True
    if tls:
        s.socket = tls.wrap_socket(s.socket, server_side=True)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return s.server_address[1]


index, plain = serve(Files, ctx), serve(Plain, None)
make = "git init -q r && cd r && echo hello >f && git add f && git -c user.name=a -c user.email=b commit -q -m x && git clone -q --bare . %s/r.git && cd %s/r.git && git update-server-info"
subprocess.run(["sh", "-c", make % (files, files)], cwd=gw.dir, check=True, env=dict(gw.env, GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1"))
with zipfile.ZipFile(files + "/simple/berthtest/berthtest-1.0-py3-none-any.whl", "w") as z:
    z.writestr("berthtest.py", "print('imported')\n")
    z.writestr("berthtest-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: berthtest\nVersion: 1.0\n")
    z.writestr("berthtest-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("berthtest-1.0.dist-info/RECORD", "")
open(files + "/big", "wb").write(os.urandom(4 << 20))

# ---- a gateway, and a sandbox that has a token ----
up = Provider()
gw.start()
gw.ctl("key", "anthropic", data=KEY.encode())
RULES = "egress registries index.test plain.test:80\nmap index.test 127.0.0.1:%d\nmap plain.test 127.0.0.1:%d\nmap elsewhere.test 127.0.0.1:%d" % (index, plain, index)
gw.ctl("policy-set", data=policy(up, RULES).encode())
sock = gw.dir + "/box.sock"
token = gw.ctl("mint", "sandbox", "1", "app", "registries", sock)
box("up", sock)
url = box("url")[1].strip()
check("the sandbox says where its gateway is", re.fullmatch(r"http://127\.0\.0\.1:\d+", url), url)

home = sh("pwd")[1].strip()
box("put", gw.dir + "/ca/ca.pem", home + "/ca.pem")


def environ(t):
    proxy = url.replace("://", "://berth:%s@" % t)
    pairs = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": "127.0.0.1,localhost", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": t,
             "CURL_CA_BUNDLE": home + "/ca.pem", "GIT_SSL_CAINFO": home + "/ca.pem", "PIP_CERT": home + "/ca.pem", "PIP_CONFIG_FILE": "/dev/null",
             "GIT_CONFIG_GLOBAL": "/dev/null"}
    pairs.update({k.lower(): v for k, v in pairs.items() if "PROXY" in k})
    box("environ", *["%s=%s" % e for e in pairs.items()])


environ(token)


def works(name, script, want):
    rc, out = sh(script)
    check(name, rc == 0 and want in out, rc, out[-600:])


def status(name, script, want):
    equal(name, sh(script)[1].strip(), want)


# ---- programs as they are, by the variables alone ----
works("curl over TLS by CONNECT", "curl -sSf https://index.test/simple/", "berthtest")
works("curl, plain", "curl -sSf http://plain.test/x", "from plain.test")
works("curl, 4 MiB", "curl -sSf https://index.test/big | wc -c", str(4 << 20))
works("git clone over TLS", "rm -rf c && git clone -q https://index.test/r.git c && cat c/f", "hello")
if sh("python3 -m pip --version")[0] == 0:
    works("pip install", "rm -rf lib && python3 -m pip install -q --no-deps --target lib --index-url https://index.test/simple berthtest && PYTHONPATH=lib python3 -m berthtest", "imported")
elif KIND != "dir":
    print("# pip is not in the base image; it runs in a sandbox of kind dir")
else:
    print("skip pip: not on this machine")
works("several at once", "for i in 1 2 3 4 5 6; do curl -sSf https://index.test/r.git/info/refs | wc -l & done; wait", "\n".join(["1"] * 6))
ASK = """curl -sS -m 60 $ANTHROPIC_BASE_URL/v1/messages -H "x-api-key: $ANTHROPIC_API_KEY" -H 'content-type: application/json' -H 'anthropic-version: 2023-06-01' -d '%s'"""
works("a model request", ASK % json.dumps(message()), '"hi"')
equal("which the provider sees with the key", up.requests[-1].h.get("x-api-key"), KEY)
works("a stream", ASK % json.dumps(message(stream=True)), "message_stop")
# The provider goes on only when the client has seen the beginning and says so: what is held back anywhere is never seen.
go = threading.Event()


def held(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for i, e in enumerate(anthropic_events()):
        if i == 1 and not go.wait(100):
            return "close"
        c.sendall(b"%x\r\n%s\r\n" % (len(e), e))
    c.sendall(b"0\r\n\r\n")
up.script["claude-held"] = held
up.script["claude-go"] = lambda c, r: (go.set(), up.reply(c, 200, b"{}"))[1]
works("whose events come as they are sent", "rm -f out; " + ASK % json.dumps(message("claude-held", stream=True)) + " -N >out & for i in $(seq 800); do grep -qs message_start out && break; sleep 0.1; done; grep -c message_stop out; " +
      ASK % json.dumps(message("claude-go")) + " >/dev/null; wait; grep -c '^event: message_stop' out", "0\n1")
up.script["claude-long"] = lambda c, r: up.stream(c, anthropic_events("x" * 4000), pause=0.05)
n = up.aborted
sh("(" + ASK % json.dumps(message("claude-long", stream=True)) + " -N) | head -c 200")
check("one that ends early cancels the provider's stream", within(20, lambda: up.aborted == n + 1))
d, o = gw.outcome(-1, 20)
equal("and is in the ledger", (d["session"], o["result"]), ("1", "client left"))
big = "curl -s -m 60 -o /dev/null -w %{http_code} $ANTHROPIC_BASE_URL/v1/messages -H 'Expect:' -H 'content-type: application/json' -H \"x-api-key: $ANTHROPIC_API_KEY\" "
sh("head -c 40000000 /dev/zero | tr '\\0' ' ' >big")
equal("an answer that comes before the request has gone out arrives", [sh(big + how)[1].strip() for how in ("--data-binary @big", "-H 'Transfer-Encoding: chunked' --data-binary @big") for _ in range(3)], ["413"] * 6)
check("no key is inside", KEY not in sh("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")[1])

# ---- the network setting ----
CODE = "curl -s -o /dev/null -m 60 -w %%{http_connect} https://%s/simple/"
status("registries: no other host", CODE % "elsewhere.test", "403")
gw.ctl("network", "1", "none")
status("none: no host", CODE % "index.test", "403")
status("none: model requests go on", ASK % json.dumps(message()) + " -o /dev/null -w %{http_code}", "200")
gw.ctl("network", "1", "internet")
status("internet: public names", "curl -sk -o /dev/null -m 60 -w %{http_connect} https://elsewhere.test/simple/", "200")
for host in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.0.1", "[::1]", "[fd00:ec2::254]", "localhost")[::1 if KIND == "dir" else 3]:
    got = sh(CODE % host + " --noproxy ''")[1].strip()
    check("internet: not " + host, got in (("403", "502") if host == "localhost" else ("403",)), got)
status("no token, no proxy", CODE % "index.test" + " -x " + url, "407")
gw.ctl("network", "1", "registries")

# ---- the gateway dies, and revokes ----
gw.kill()
check("without a gateway a connection ends", sh("curl -s -m 60 %s/v1/models" % url)[0] not in (0, 28))
gw.start()
works("the next one is found at the same place", "curl -sSf https://index.test/simple/", "berthtest")
gw.ctl("revoke", "sandbox", "1")
check("a revoked token's socket is gone", sh("curl -s -m 60 %s/v1/models" % url)[0] not in (0, 28))
new = gw.ctl("mint", "sandbox", "1", "app", "registries", sock)
environ(new)
works("a new token works at once, in the same sandbox", "curl -sSf https://index.test/simple/", "berthtest")
rows = gw.ledger()
hosts = {str(r.get("target", r.get("host"))).split(":")[0] for r in rows}
check("the ledger has each host", {"index.test", "plain.test", "elsewhere.test"} <= hosts, hosts)

# ---- a flood from inside, into a gateway that takes nothing ----
deaf = socket.socket(socket.AF_UNIX)
deaf.bind(gw.dir + "/deaf.sock")
deaf.listen(1024)
box("up", gw.dir + "/deaf.sock")
FLOOD = r"""
import os, socket, select
all = []
for i in range(300):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("127.0.0.1", %d))
    all.append(s)
import time
end = time.monotonic() + 150
junk = b"x" * 65536
while time.monotonic() < end and not os.path.exists("enough"):
    for s in select.select([], all, [], 0.1)[1]:
        try:
            s.send(junk)
        except OSError:
            pass
""" % int(url.rsplit(":", 1)[1])
folder = gw.dir + "/state/berthfs/sandboxes/1/"
pid = int(open(folder + ("tools.pid" if KIND == "dir" else "keeper.pid")).read().split()[0])


def rss():
    return int(re.search(r"VmRSS:\s+(\d+)", open("/proc/%d/status" % pid).read()).group(1))


before, t0 = rss(), time.monotonic()
p = subprocess.Popen([BOXCTL, "run", KIND, "1", "python3 -c " + shlex.quote(FLOOD)], env=gw.env, stdout=gw.log, stderr=gw.log)
times, most = [], 0
while p.poll() is None and not (len(times) >= 3 and time.monotonic() > t0 + 10):
    t = time.monotonic()
    sh("true")
    times.append(time.monotonic() - t)
    most = max(most, rss() - before)
sh("touch enough")
p.wait(200)
print("# flood: %d KiB more, %d commands meanwhile, the slowest %.2f s" % (most, len(times), max(times)))
check("a flood costs the host less than 28 MiB", most < 28 << 10, most)
check("and tools go on meanwhile", len(times) >= 3 and max(times) < 60, times)
deaf.close()
box("up", sock)
works("then the gateway answers again", "curl -sSf https://index.test/simple/", "berthtest")

# ---- nothing else ----
PROBE = r"""
import errno, os, socket, struct, time
def say(name, got):
    print(name, got)
def tcp(host, port, family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(3)
    try:
        s.connect((host, port))
        return "OPEN"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def udp(host, port, family=socket.AF_INET):
    try:
        socket.socket(family, socket.SOCK_DGRAM).sendto(b"x", (host, port))
        return "SENT"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
say("interfaces", " ".join(sorted(l.split(":")[0].strip() for l in open("/proc/net/dev").read().splitlines()[2:])))
say("routes", len(open("/proc/net/route").read().splitlines()) - 1)
say("routes6", sum(l.split()[9] != "lo" for l in open("/proc/net/ipv6_route")) if os.path.exists("/proc/net/ipv6_route") else 0)
for host in ("192.0.2.1", "10.0.2.2", "169.254.169.254", "100.100.100.200", "168.63.129.16", "172.17.0.1", "224.0.0.1", "255.255.255.255"):
    say("tcp " + host, tcp(host, 80))
    say("udp " + host, udp(host, 53))
for host in ("2001:db8::1", "fd00:ec2::254", "fe80::1", "ff02::1", "64:ff9b::7f00:1"):
    say("tcp " + host, tcp(host, 80, socket.AF_INET6))
    say("udp " + host, udp(host, 53, socket.AF_INET6))
say("::1", tcp("::1", 8080, socket.AF_INET6))
def dns():
    t = time.monotonic()
    try:
        socket.getaddrinfo("example.com", 443)
        got = "ANSWER"
    except OSError as e:
        got = "no"
    return got, time.monotonic() - t
looks = [dns() for i in range(4)]
say("dns", "no" if {got for got, took in looks} == {"no"} else "ANSWER")
say("dns quick", min(took for got, took in looks) < 3)
def raw(kind, proto, to):
    try:
        s = socket.socket(socket.AF_INET, kind, proto)
        s.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", (to, 0))
        return "SENT"
    except OSError as e:
        return errno.errorcode[e.errno]
say("icmp", raw(socket.SOCK_RAW, 1, "192.0.2.1"))
def vsock():
    try:
        s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
        s.settimeout(3)
        s.connect((2, 1024))
        return "OPEN"
    except OSError as e:
        return "no"
say("vsock", vsock())
def packet():
    try:
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "root has it, on " + " ".join(n for i, n in socket.if_nameindex())
say("packet", packet())
def listens(name):
    try:
        lines = open("/proc/net/" + name).read().splitlines()[1:]
    except OSError:
        return []
    return [l.split()[1] for l in lines if name.startswith("udp") or l.split()[3] == "0A"]
say("listeners", listens("tcp") + listens("tcp6") + listens("udp") + listens("udp6"))
say("8080", tcp("127.0.0.1", 8080))
ports = "/sys/class/virtio-ports"
say("ports", os.listdir(ports) if os.path.exists(ports) else [])
say("port for us", os.path.exists(ports) and os.access("/dev/" + os.listdir(ports)[0], os.W_OK))
"""
if KIND != "dir":
    open(gw.dir + "/probe.py", "w").write(PROBE)
    box("put", gw.dir + "/probe.py", home + "/probe.py")
    for who, run in (("the tools' user", "python3 probe.py"), ("root", "sudo -n python3 probe.py"))[: 1 if KIND == "container" else 2]:
        rc, out = sh(run)
        got = dict(re.match(r"(tcp \S+|udp \S+|dns quick|port for us|\S+) (.*)", l).groups() for l in out.splitlines())
        check("probes as " + who, rc == 0, out[-800:])
        equal("%s: one interface, the loopback, and no route" % who, (got.get("interfaces"), got.get("routes"), got.get("routes6")), ("lo", "0", "0"))
        bad = {k: v for k, v in got.items() if k[:4] in ("tcp ", "udp ") and v not in ("ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EACCES", "EINVAL", "EAFNOSUPPORT")}
        check("%s: no address answers or takes a packet: private, link-local, metadata, IPv6" % who, not bad and len(got) > 25, bad, out)
        equal("%s: no name server" % who, (got.get("dns"), got.get("dns quick")), ("no", "True"))
        equal("%s: no raw packet leaves" % who, (got.get("icmp"), got.get("packet")), ("EPERM", "EAFNOSUPPORT") if KIND == "container" else ("EPERM", "EPERM") if "user" in who else ("ENETUNREACH", "root has it, on lo"))
        equal("%s: no vsock" % who, got.get("vsock"), "no")
        equal("%s: only 127.0.0.1:8080 listens" % who, (got.get("listeners"), got.get("8080"), got.get("::1") in ("ECONNREFUSED", "EADDRNOTAVAIL", "ENETUNREACH", "EAFNOSUPPORT")), ("['0100007F:1F90']", "OPEN", True))
        if "user" in who:
            equal("%s: the port to the host is not theirs" % who, got.get("port for us"), "False")
gw.ctl("stop")
p = subprocess.run([BERTHFS, "ledger", "verify"], env=gw.env, stdout=subprocess.PIPE)
check("the ledger holds", p.returncode == 0, p.stdout)
sys.exit(failed)
