# The gateway beside nginx's and HAProxy's plain forwarding and beside Portkey's gateway, in one run: rounds take turns,
# each ratio is printed beside its bar, and the machine's load at the time with it. PORTKEY: a folder in which npm has
# installed @portkey-ai/gateway already; else it is installed into the test's own folder, where there is npm.
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gateway"))
from peers import *

LOAD = os.path.dirname(GWCTL) + "/load"
for need in ("nginx", "wrk"):
    if not shutil.which(need):
        print("skip gateway: no %s" % need)
        sys.exit(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(16384, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)


def port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


UP, NGINX, HAPROXY, PORTKEY, GATEWAY = [port() for _ in range(5)]
gw = Instance()
procs = []
atexit.register(lambda: [p.terminate() for p in procs])
procs.append(subprocess.Popen([LOAD, "serve", str(UP)]))
paths = "".join("%s_temp_path %s/%s;" % (k, gw.dir, k) for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
open(gw.dir + "/nginx.conf", "w").write("""daemon off; worker_processes 1; pid %s/nginx.pid; error_log %s/nginx.log; worker_rlimit_nofile 16384;
events { worker_connections 8192; } http { access_log off; keepalive_requests 1000000000; client_body_buffer_size 64k; %s
upstream u { server 127.0.0.1:%d; keepalive 1024; keepalive_requests 1000000000; }
server { listen 127.0.0.1:%d backlog=4096; location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }
""" % (gw.dir, gw.dir, paths, UP, NGINX))
# Each in a session of its own, as the gateway is: the kernel divides processors between sessions
procs.append(subprocess.Popen(["nginx", "-c", gw.dir + "/nginx.conf"], stderr=gw.log, start_new_session=True))
gw.start("127.0.0.1:%d" % GATEWAY)
nginx = procs[-1]
haproxy = portkey = None
if shutil.which("haproxy"):
    open(gw.dir + "/haproxy.cfg", "w").write("""global
  maxconn 4096
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
  option http-no-delay
frontend f
  bind 127.0.0.1:%d
  default_backend b
backend b
  server s 127.0.0.1:%d
""" % (HAPROXY, UP))
    haproxy = subprocess.Popen(["haproxy", "-db", "-f", gw.dir + "/haproxy.cfg"], stdout=gw.log, stderr=gw.log, start_new_session=True)
    procs.append(haproxy)
else:
    print("skip haproxy: not installed")


def start_portkey():
    home = os.environ.get("PORTKEY")
    if not home and shutil.which("npm") and shutil.which("node"):
        home = gw.dir + "/portkey"
        os.makedirs(home)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", home, "@portkey-ai/gateway"], stdout=gw.log, stderr=gw.log, timeout=300)
    program = "%s/node_modules/@portkey-ai/gateway/build/start-server.js" % home
    if not home or not os.path.exists(program):
        return None
    p = subprocess.Popen(["node", program, "--port=%d" % PORTKEY, "--headless"], stdout=gw.log, stderr=gw.log, env=dict(gw.env, NODE_ENV="production"),
                         start_new_session=True)
    procs.append(p)
    return p


portkey = start_portkey()


class Up:
    url = "http://127.0.0.1:%d" % UP


gw.ctl("policy-set", data=policy(Up).encode())
gw.ctl("key", "anthropic", data=KEY.encode())
token = gw.ctl("mint", "engine", "b", "app", "none", "")
body = json.dumps({"model": "claude-a", "max_tokens": 100, "messages": [{"role": "user", "content": "y" * 8000}]})
open(gw.dir + "/post.lua", "w").write('wrk.method="POST"\nwrk.headers["Content-Type"]="application/json"\nwrk.headers["x-api-key"]="%s"\nwrk.body=[==[%s]==]\n' % (token, body))
within(5, lambda: not subprocess.run([LOAD, "rate", str(NGINX), token, "10", "1", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode)
who = [("direct", UP), ("nginx", NGINX)] + [("haproxy", HAPROXY)] * (haproxy is not None) + [("gateway", GATEWAY)]
EXTRA = {"anthropic-version": "2023-06-01", "x-portkey-provider": "anthropic", "x-portkey-custom-host": "http://127.0.0.1:%d/v1" % UP}
open(gw.dir + "/portkey.lua", "w").write(open(gw.dir + "/post.lua").read() + "".join('wrk.headers["%s"]="%s"\n' % e for e in EXTRA.items()))


def answers(p, headers):
    r = subprocess.run(["curl", "-sS", "-m", "5", "-o", gw.dir + "/answer", "-w", "%{http_code}", "http://127.0.0.1:%d/v1/messages" % p, "-H", "content-type: application/json", "-H", "x-api-key: " + token,
                        *[x for e in headers.items() for x in ("-H", "%s: %s" % e)], "-d", body], stdout=subprocess.PIPE, stderr=gw.log).stdout
    return r == b"200" and b'"end_turn"' in open(gw.dir + "/answer", "rb").read()


if portkey and not within(20, lambda: answers(PORTKEY, EXTRA)):
    print("skip portkey: it does not answer as it should")
    portkey = None
elif not portkey:
    print("skip portkey: not installed, and npm cannot")


def load():
    return "load %s" % open("/proc/loadavg").read().split()[0]


def pid_of(name):
    return {"nginx": lambda: int(open("/proc/%d/task/%d/children" % (nginx.pid, nginx.pid)).read().split()[0]), "haproxy": lambda: haproxy.pid, "gateway": lambda: gw.pid, "direct": lambda: procs[0].pid}[name]()


def cpu(name):
    return sum(map(int, open("/proc/%d/stat" % pid_of(name)).read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def run(*args):
    return subprocess.run([LOAD, *map(str, args)], stdout=subprocess.PIPE).stdout.decode().strip()


def schedule(name):
    """Of its main thread, and the provider's: nanoseconds that it ran, and that it was ready and waited for a processor."""
    return [[int(x) for x in open("/proc/%d/task/%d/schedstat" % (p, p)).read().split()[:2]] for p in (pid_of(name), procs[0].pid)]


def rate(p):
    name = [n for n, q in who if q == p][0]
    before = schedule(name)
    text = run("rate", p, token, 1000, 32, 4)
    n = max(int(number(text, "us")), 1)
    waits[name] = [(w, (b[0] - a[0]) / n / 1000, (b[1] - a[1]) / n / 1000) for w, a, b in zip((name, "provider"), before, schedule(name))][:1 if name == "direct" else 2]
    return text


def number(text, word):
    m = re.search(word + r" ([\d.]+)", text)
    return float(m.group(1)) if m else float("nan")


def median(xs):
    return sorted(xs)[len(xs) // 2]


def rounds(n, ask):
    got = {name: [] for name, _ in who}
    for _ in range(n):
        for name, p in who:
            got[name].append(ask(p))
    return got


def bar(name, value, limit, below=True):
    print("%s %s: %.3g (bar: %s %g)" % ("ok" if (value <= limit) == below or value == limit else "note", name, value, "at most" if below else "at least", limit), flush=True)


def wrk(p, script="post"):
    o = subprocess.run(["wrk", "-t1", "-c64", "-d3", "-s", "%s/%s.lua" % (gw.dir, script), "http://127.0.0.1:%d/v1/messages" % p], stdout=subprocess.PIPE).stdout.decode()
    assert "Non-2xx" not in o, o
    return float(re.search(r"Requests/sec:\s+([\d.]+)", o).group(1))


got = rounds(3, wrk)
for name, _ in who:
    print("# 64 connections, requests/s: %-8s %s" % (name, " ".join("%.0f" % x for x in got[name])))
print("# " + load())
if portkey:
    theirs = [wrk(PORTKEY, "portkey") for _ in range(3)]
    print("# 64 connections, requests/s: portkey  %s" % " ".join("%.0f" % x for x in theirs))
    bar("requests/s over Portkey's", median(got["gateway"]) / median(theirs), 20, below=False)
if haproxy:
    print("# requests/s over haproxy's: %.2f" % median([g / n for g, n in zip(got["gateway"], got["haproxy"])]))
bar("requests/s over nginx's", median([g / n for g, n in zip(got["gateway"], got["nginx"])]), 0.3, below=False)

waits = {}
got = rounds(5, rate)
for name, _ in who:
    print("# 1000 requests/s, from the time due: %-8s %s" % (name, " | ".join(got[name])))
    print("# its last round, us a request: %s" % ", ".join("%s ran %.0f, waited for a processor %.0f" % w for w in waits[name]))
print("# " + load())
added = {q: {name: [number(g, q) - number(d, q) for g, d in zip(got[name], got["direct"])] for name, _ in who[1:]} for q in ("p50", "p99")}
for q in added:
    for name in added[q]:
        print("# added latency %s by round, ms: %-8s %s" % (q, name, " ".join("%.3f" % (x / 1000) for x in added[q][name])))
bar("added latency p50, ms", median(added["p50"]["gateway"]) / 1000, 0.15)
bar("added latency p99, ms", median(added["p99"]["gateway"]) / 1000, 0.5)
print("# added latency p99 over nginx's in the same round, ms: %s" % " ".join("%.3f" % ((g - n) / 1000) for g, n in zip(added["p99"]["gateway"], added["p99"]["nginx"])))

got = rounds(3, lambda p: run("first", p, token, 300))
for name, _ in who:
    print("# first event: %-8s %s" % (name, " | ".join(got[name])))
bar("first event over nginx's, ms", median([number(g, "p50") - number(n, "p50") for g, n in zip(got["gateway"], got["nginx"])]) / 1000, 0.3)

spent = {name: -cpu(name) for name, _ in who}
got = rounds(int(os.environ.get("ROUNDS", "3")), lambda p: run("streams", p, token, 1000))
print("# " + load())
print("# 1000 streams, seconds of CPU in all: " + ", ".join("%s %.2f" % (name, spent[name] + cpu(name)) for name, _ in who))
for name, _ in who:
    print("# 1000 streams: %-8s %s" % (name, " | ".join(got[name])))
for q in ("p50", "p99"):
    print("# event %s over nginx's, by round: %s" % (q, " ".join("%.2f" % (number(g, q) / number(n, q)) for g, n in zip(got["gateway"], got["nginx"]))))
bar("event p99 of 1000 streams over nginx's", median([number(g, "p99") / number(n, "p99") for g, n in zip(got["gateway"], got["nginx"])]), 1)
bar("memory, MiB", int(re.search(r"VmHWM:\s+(\d+)", open("/proc/%d/status" % gw.pid).read()).group(1)) / 1024, 64)


def left():
    c = Client(("127.0.0.1", UP)).ask("GET", "/left").head()
    data, _ = c.body()
    c.close()
    return [int(x) for x in data.split()]


for name, p in who[1:]:
    begun, early = left()
    print("# %s: %s" % (name, run("leave", p, token, 500)))
    want = [begun + 500, early + 500]
    took = time.monotonic()
    within(3, lambda: left() == want)
    now = left()
    if name == "gateway":
        check("500 of 500 that leave cancel the provider's stream (%.2f s)" % (time.monotonic() - took), now == want, now, want)
    else:
        print("# %s cancels %d of %d" % (name, now[1] - early, now[0] - begun))
gw.ctl("stop")
p = subprocess.run([BERTHFS, "ledger", "verify"], env=gw.env, stdout=subprocess.PIPE)
print("# " + p.stdout.decode().replace("\n", "\n# "))
check("the ledger of the bench holds", p.returncode == 0)
m = re.search(r"([\d.]+) records/s", p.stdout.decode())
bar("ledger verify, records/s", float(m.group(1)), 1000000, below=False)
sys.exit(failed)
