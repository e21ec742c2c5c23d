# The gateway beside nginx's proxy_pass, in one run: rounds take turns, each ratio is printed beside its bar.
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


UP, NGINX, GATEWAY = port(), port(), port()
gw = Instance()
procs = []
atexit.register(lambda: [p.terminate() for p in procs])
procs.append(subprocess.Popen([LOAD, "serve", str(UP)]))
paths = "".join("%s_temp_path %s/%s;" % (k, gw.dir, k) for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
open(gw.dir + "/nginx.conf", "w").write("""daemon off; worker_processes 1; pid %s/nginx.pid; error_log %s/nginx.log; worker_rlimit_nofile 16384;
events { worker_connections 8192; } http { access_log off; keepalive_requests 1000000000; client_body_buffer_size 64k; %s
upstream u { server 127.0.0.1:%d; keepalive 256; keepalive_requests 1000000000; }
server { listen 127.0.0.1:%d backlog=4096; location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }
""" % (gw.dir, gw.dir, paths, UP, NGINX))
procs.append(subprocess.Popen(["nginx", "-c", gw.dir + "/nginx.conf"], stderr=gw.log))
gw.start("127.0.0.1:%d" % GATEWAY)


class Up:
    url = "http://127.0.0.1:%d" % UP


gw.ctl("policy-set", data=policy(Up).encode())
gw.ctl("key", "anthropic", data=KEY.encode())
token = gw.ctl("mint", "engine", "b", "app", "none", "")
body = json.dumps({"model": "claude-a", "max_tokens": 100, "messages": [{"role": "user", "content": "y" * 8000}]})
open(gw.dir + "/post.lua", "w").write('wrk.method="POST"\nwrk.headers["Content-Type"]="application/json"\nwrk.headers["x-api-key"]="%s"\nwrk.body=[==[%s]==]\n' % (token, body))
within(5, lambda: not subprocess.run([LOAD, "rate", str(NGINX), token, "10", "1", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode)
who = [("direct", UP), ("nginx", NGINX), ("gateway", GATEWAY)]


def run(*args):
    return subprocess.run([LOAD, *map(str, args)], stdout=subprocess.PIPE).stdout.decode().strip()


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


def wrk(p):
    o = subprocess.run(["wrk", "-t1", "-c64", "-d3", "-s", gw.dir + "/post.lua", "http://127.0.0.1:%d/v1/messages" % p], stdout=subprocess.PIPE).stdout.decode()
    assert "Non-2xx" not in o, o
    return float(re.search(r"Requests/sec:\s+([\d.]+)", o).group(1))


got = rounds(3, wrk)
for name, _ in who:
    print("# 64 connections, requests/s: %-8s %s" % (name, " ".join("%.0f" % x for x in got[name])))
bar("requests/s over nginx's", median([g / n for g, n in zip(got["gateway"], got["nginx"])]), 0.3, below=False)

got = rounds(3, lambda p: run("rate", p, token, 1000, 32, 4))
for name, _ in who:
    print("# 1000 requests/s, from the time due: %-8s %s" % (name, " | ".join(got[name])))
bar("added latency p50, ms", median([number(g, "p50") - number(d, "p50") for g, d in zip(got["gateway"], got["direct"])]) / 1000, 0.15)
bar("added latency p99, ms", median([number(g, "p99") - number(d, "p99") for g, d in zip(got["gateway"], got["direct"])]) / 1000, 0.5)

got = rounds(3, lambda p: run("first", p, token, 300))
for name, _ in who:
    print("# first event: %-8s %s" % (name, " | ".join(got[name])))
bar("first event over nginx's, ms", median([number(g, "p50") - number(n, "p50") for g, n in zip(got["gateway"], got["nginx"])]) / 1000, 0.3)

got = rounds(2, lambda p: run("streams", p, token, 1000))
for name, _ in who:
    print("# 1000 streams: %-8s %s" % (name, " | ".join(got[name])))
bar("event p99 of 1000 streams over nginx's", min(number(g, "p99") / number(n, "p99") for g, n in zip(got["gateway"], got["nginx"])), 1)
bar("memory, MiB", int(re.search(r"VmHWM:\s+(\d+)", open("/proc/%d/status" % gw.pid).read()).group(1)) / 1024, 64)
gw.ctl("stop")
p = subprocess.run([BERTHFS, "ledger", "verify"], env=gw.env, stdout=subprocess.PIPE)
print("# " + p.stdout.decode().replace("\n", "\n# "))
check("the ledger of the bench holds", p.returncode == 0)
m = re.search(r"([\d.]+) records/s", p.stdout.decode())
bar("ledger verify, records/s", float(m.group(1)), 1000000, below=False)
sys.exit(failed)
