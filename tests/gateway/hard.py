# What has to hold when things go wrong: races for the last unit, kill -9, a full disk, TLS, slow clients, keys out of reach.
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
from concurrent.futures import ThreadPoolExecutor

up = Provider()
gw = Instance().start()
S = gw.sock
gw.ctl("policy-set", data=policy(up).encode())
gw.ctl("key", "anthropic", data=KEY.encode())
engine = gw.ctl("mint", "engine", "7", "app", "none", "")


def many(n, model, session=None, each=lambda r: None, **more):
    token = gw.ctl("mint", "engine", session, "app", "none", "")

    def one(_):
        r = call(S, "POST", "/v1/messages", token, message(model, **more))
        each(r)
        return r
    with ThreadPoolExecutor(100) as pool:
        return list(pool.map(one, range(n)))


def answer(c, r):
    time.sleep(0.05)
    up.reply(c, 200, json.dumps({"usage": {"input_tokens": 10, "output_tokens": min(1000, r.json["max_tokens"])}}).encode())
up.script["claude-count"] = answer

# ---- 100 clients at the last unit of each limit ----
def spent(name):
    row = [l for l in gw.ctl("tokens").splitlines() if l.startswith("race-" + name.split()[0] + "\t")][0].split("\t")
    return int(row[4]), int(row[5])
for name, limit, rule, most in [
        ("money", "limit session money 0.16", "limit.session.money", lambda s: 140_000_000 < s[1] <= 160_000_000),
        ("tokens", "limit session tokens 12000", "limit.session.tokens", lambda s: 10500 < s[0] <= 12000),
        ("requests a minute", "limit session requests-per-minute 10", "limit.session.requests-per-minute", lambda s: s[0] == 10100)]:
    gw.ctl("policy-set", data=policy(up, limit).encode())
    n = len(up.requests)
    rs = many(100, "claude-count", "race-" + name.split()[0], max_tokens=1000)
    good = sum(r.status == 200 for r in rs)
    rules = {r.h.get("x-berthfs-rule") for r in rs if r.status == 429}
    check("100 clients at the last %s" % name, len(up.requests) - n == good and 0 < good and most(spent(name)) and rules == {rule} and
          good + sum(r.status == 429 for r in rs) == 100, good, rules, spent(name))
gw.ctl("policy-set", data=policy(up, "limit session concurrency 5").encode())
peak, now, lock, refused = 0, 0, threading.Lock(), threading.Event()
def counted(c, r):
    global peak, now
    with lock:
        now += 1
        peak = max(peak, now)
    refused.wait(30)  # so long that there are too many, however slowly they come
    time.sleep(0.05)
    with lock:
        now -= 1
    up.reply(c, 200, b"{}")
up.script["claude-at-once"] = counted
rs = many(100, "claude-at-once", "conc", lambda r: refused.set() if r.status == 429 else None)
check("never more at a time than the limit", 0 < peak <= 5 and any(r.status == 429 and r.h.get("retry-after") == "1" for r in rs), peak)
gw.ctl("policy-set", data=policy(up, "limit session money 0.02").encode())
token = gw.ctl("mint", "engine", "clamp", "app", "none", "")
call(S, "POST", "/v1/messages", token, message(max_tokens=100000))
asked = up.requests[-1].json["max_tokens"]
check("max_tokens is clamped to what is left", 1000 < asked < 20_000_000 / 15000, asked)
gw.ctl("policy-set", data=policy(up, "price gpt-* free").replace("price gpt-* input 3", "price gpt-x input 3").encode())
r = call(S, "POST", "/v1/messages", engine, message("claude-"))
gw.ctl("policy-set", data=policy(up).replace("price claude-*", "price claude-b*").replace(up.url, "https://localhost:%d" % up.port).replace("https://localhost", "https://example.invalid").encode())
r = call(S, "POST", "/v1/messages", engine, message())
equal("a model without a price is refused", (r.status, r.h.get("x-berthfs-rule")), (403, "price"))

# ---- killed ----
gw.ctl("policy-set", data=policy(up, "limit session money 1").encode())
token = gw.ctl("mint", "engine", "killed", "app", "none", "")
up.script["claude-long"] = lambda c, r: up.stream(c, anthropic_events("x" * 4000), pause=0.05)
c = Client(S).ask("POST", "/v1/messages", token, message("claude-long", stream=True, max_tokens=50000)).head()
c.chunk()
call(S, "POST", "/v1/messages", token, message())
gw.outcome()  # the second one's is written
head = gw.ctl("head").split("head ")[1].split()[0]
rows = len(gw.ledger())
gw.kill()
data, whole = c.body()
check("a killed gateway's stream does not look complete", not whole)
gw.start()
after = gw.ledger()
unknown = [r for r in after if r.get("result") == "unknown"]
equal("the next start says whose outcome is unknown", (len(unknown), len(after) > rows), (1, True))
spent = [l for l in gw.ctl("tokens").splitlines() if l.startswith("killed")][0].split("\t")
reserved = [r for r in after if r["seq"] == unknown[0]["of"]][0]["reserved_nano"]
equal("which stays charged as reserved", int(spent[5]), reserved + 100 * 3000 + 7 * 15000 + 40 * 300)
equal("tokens, keys and policy are still there", call(S, "POST", "/v1/messages", token, message(max_tokens=5)).status, 200)
for i in range(5):
    gw.kill()
    gw.start()
    call(S, "POST", "/v1/messages", engine, message(max_tokens=5))
p = subprocess.run([BERTHFS, "ledger", "verify", "--expect-head", head], env=gw.env, stdout=subprocess.PIPE)
check("the chain goes on over all of it", p.returncode == 0, p.stdout)
p = subprocess.run([GWCTL, "start"], env=gw.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
equal("starting a second time finds the first", (p.returncode, gw.pid > 0), (0, True))
p = subprocess.run([BERTHFS, "gateway", "--state", gw.dir + "/state/berthfs", "--runtime", gw.dir + "/run2"], env=gw.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
check("another process does not write the same ledger", p.returncode == 75 and b"another gateway" in p.stdout, p.stdout)

# ---- a flood of requests that are refused: counted, and none left out ----
box = gw.dir + "/flood.sock"
token = gw.ctl("mint", "sandbox", "flood", "app", "none", box)
def flood(n):
    """All at once: after 15 seconds one more has a record of its own."""
    c = Client(box)
    c.send(b"".join(b"GET /v1/files/%d HTTP/1.1\r\nHost: gateway\r\nx-api-key: %s\r\n\r\n" % (i, token.encode()) for i in range(n)))
    for i in range(n):
        c.head().body()
    c.close()
def refusals():
    rows = [r for r in gw.ledger() if r.get("session") == "flood" and r.get("verdict") == "denied"]
    return len(rows), sum(r.get("count", 1) for r in rows), [r for r in rows if "count" in r]
for n in (15, 700):
    flood(n)
check("the first ones have a record each", within(60, lambda: refusals()[:2] == (20, 20)), refusals()[:2])
gw.ctl("revoke", "all", "flood")
rows, sum_, counted = within(60, lambda: refusals()[1] == 715 and refusals()) or refusals()
check("the others a number, once their token ends", rows == 21 and sum_ == 715 and len(counted) == 1, rows, sum_)
check("with the time of the first and the last, and who it was", counted and counted[0]["first"] <= counted[0]["last"] and counted[0]["rule"] == "route" and counted[0]["target"] == "/v1/files/699" and len(counted[0]["token"]) == 8, counted)
token = gw.ctl("mint", "sandbox", "flood", "app", "none", box)
flood(300)
gw.ctl("stop")
gw.start()
equal("or the gateway", refusals()[1], 1015)
p = subprocess.run([BERTHFS, "ledger", "verify"], env=gw.env, stdout=subprocess.PIPE)
check("the chain holds with them", p.returncode == 0, p.stdout)
if shutil.which("jq") and shutil.which("ssh-keygen"):
    open(gw.dir + "/copy", "w").write(gw.ctl("ledger"))
    p = subprocess.run(["sh", ROOT + "/contrib/verify-ledger.sh", gw.dir + "/copy", gw.state + "/ledger.pub"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check("and by stock tools", p.returncode == 0, p.stdout[-500:])

# ---- the key is nowhere ----
def in_memory(pid):
    found = []
    maps = [l for l in open("/proc/%d/maps" % pid)]
    mem = open("/proc/%d/mem" % pid, "rb", 0)
    for l in maps:
        a, b = [int(x, 16) for x in l.split()[0].split("-")]
        if b - a > 1 << 30:  # a sanitizer's own
            continue
        try:
            mem.seek(a)
            held = mem.read(b - a)
            found += [(l.split()[-1], hex(m.start()), hex(b - a), held[max(0, m.start() - 64):m.start()], held[m.end():m.end() + 64]) for m in re.finditer(KEY.encode(), held)]
        except (OSError, ValueError, OverflowError):
            pass
    return found


pid = gw.pid
hits = []
files = ["/proc/%d/%s" % (pid, f) for f in ("environ", "cmdline")]
files += [os.path.join(d, f) for d, _, fs in os.walk(gw.dir) for f in fs if "/keys" not in d]
for f in files:
    try:
        if os.path.isfile(f) and KEY.encode() in open(f, "rb").read():
            hits.append(f)
    except FileNotFoundError:  # one that is put in another's place
        pass
equal("in no file, argument or environment", hits, [])
check("its file is for the owner alone", os.stat(gw.state + "/keys/anthropic").st_mode & 0o777 == 0o600)
equal("only its fingerprint is shown", re.sub("[0-9a-f]{16}", "H", gw.ctl("keys")), "anthropic sha256:H\n")
def limits(name):
    return re.search(name + r"\s+(\d+)\s+(\d+)", open("/proc/%d/limits" % pid).read()).groups()
equal("no core", limits("Max core file size"), ("0", "0"))
status = open("/proc/%d/status" % pid).read()
if os.geteuid() == 0:
    check("not readable by its user: its files under /proc are root's", os.stat("/proc/%d/mem" % pid).st_uid == 0)
    found = in_memory(pid)
    check("nor in the memory that even root can read", not found or "locked" in gw.ctl("status"), found)

# ---- another user listens where the gateway should: no key is handed over ----
def lie_in_wait(path, out):
    """As nobody: whatever is said there goes to out."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen()
    os.write(out, b"listens\n")
    while True:
        c, _ = s.accept()
        os.write(out, c.recv(65536))
        try:
            c.sendall(b"0 0\n")
        except OSError:
            pass
        c.close()


if os.geteuid() == 0:
    trap = Instance()
    os.makedirs(trap.dir + "/run/berthfs")
    for d, mode in (("", 0o711), ("/run", 0o711), ("/run/berthfs", 0o777)):
        os.chmod(trap.dir + d, mode)
    heard, out = os.pipe()
    child = os.fork()
    if not child:
        try:
            lie_in_wait(trap.dir + "/run/berthfs/gateway-control.sock", out)
        finally:
            os._exit(1)
    os.close(out)
    listens = os.read(heard, 8)
    words = trap.ctl("key", "anthropic", data=KEY.encode(), fail=True)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    taken = os.read(heard, 1 << 20)
    check("another user who listens in the gateway's place gets no key", listens == b"listens\n" and words and "not this user's" in words and KEY.encode() not in taken, listens, words, taken)
else:
    print("skip another user's socket: not root")

# ---- slow clients ----
slow = [Client(S) for _ in range(5)]
for c in slow:
    c.send(b"POST /v1/messages HTTP/1.1\r\nHost: h")
t = time.monotonic()
times = []
for i in range(50):
    a = time.monotonic()
    call(S, "POST", "/v1/messages", engine, message())
    times.append(time.monotonic() - a)
check("slow clients hold up nobody", sorted(times)[25] < 5 and min(times) < 0.1, sorted(times))

# ---- TLS ----
t = gw.dir + "/tls"
ctx = test_ca(t, "localhost")
safe = Provider(ctx)
gw.ctl("policy-set", data=policy(safe, anthropic="ca %s/ca.pem" % t).encode())
r = call(S, "POST", "/v1/messages", engine, message(stream=True))
equal("over TLS with a CA of its own", (r.status, r.whole, r.data), (200, True, b"".join(anthropic_events())))
gw.ctl("policy-set", data="".join(l + " ca %s/ca.pem\n" % t if l.startswith("provider") and " ca " not in l else l + "\n" for l in policy(safe, anthropic="ca %s/ca.pem" % t).splitlines()).encode())
for name, path, body, events in [("Chat Completions", "/v1/chat/completions", {"model": "gpt-a", "messages": [], "stream_options": {"include_usage": True}}, chat_events()),
                                 ("Responses", "/v1/responses", {"model": "gpt-a", "input": "x"}, responses_events())]:
    r = call(S, "POST", path, engine, dict(body, stream=True), auth="bearer")
    equal("over TLS, " + name, (r.status, r.whole, r.data), (200, True, b"".join(events)))
    d, o = gw.outcome()
    equal("over TLS, %s: what was used" % name, (o["result"], o["input"], o["output"], o["cache_read"]), ("complete", 60, 7, 40))
if os.geteuid() == 0:
    locked = "locked" in gw.ctl("status")
    check("the key is not in memory after requests over TLS", locked or within(60, lambda: not in_memory(gw.pid)), in_memory(gw.pid))
gw.ctl("policy-set", data=policy(safe).encode())
n = len(safe.requests)
r = call(S, "POST", "/v1/messages", engine, message())
equal("an unknown CA is refused before the key goes out", (r.status, r.h.get("x-berthfs-rule"), len(safe.requests) - n), (502, "provider.unreachable", 0))

# ---- the slow ones are cut off ----
if slow[0].s:
    answers = [c.head().status for c in slow]
    equal("a head that does not end is 408", answers, [408] * 5)

# ---- what stands in the environment does not write down the secrets of connections ----
gw.ctl("stop")
gw.env["SSLKEYLOGFILE"] = gw.dir + "/secrets"
gw.start()
gw.ctl("policy-set", data=policy(safe, anthropic="ca %s/ca.pem" % t).encode())
equal("the secrets of connections are not written down", (call(S, "POST", "/v1/messages", engine, message()).status, os.path.exists(gw.dir + "/secrets")), (200, False))
del gw.env["SSLKEYLOGFILE"]

# ---- a full disk ----
gw.ctl("policy-set", data=policy(up).encode())
gw.ctl("stop")
size = max(os.path.getsize(gw.state + "/" + f) for f in os.listdir(gw.state) if f.startswith("ledger.db"))
gw.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size + 60000, resource.RLIM_INFINITY)))
n, statuses = len(up.requests), []
for i in range(3000):
    r = call(S, "POST", "/v1/messages", engine, message())
    statuses.append(r.status)
    if r.status == 503:
        break
check("a ledger that cannot be written denies", statuses[-1] == 503 and r.h["x-berthfs-rule"] == "ledger" and len(up.requests) - n == statuses.count(200) > 0,
      statuses[-3:], len(up.requests) - n)
check("and the status says so", "ledger failing" in gw.ctl("status"))
resource.prlimit(gw.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
check("until there is room again", within(60, lambda: call(S, "POST", "/v1/messages", engine, message()).status == 200))
gw.ctl("stop")
p = subprocess.run([BERTHFS, "ledger", "verify"], env=gw.env, stdout=subprocess.PIPE)
check("the chain holds", p.returncode == 0, p.stdout)

# ---- each record on the disk before the request ----
os.environ["SYNC_EACH"] = gw.env["SYNC_EACH"] = "1"
gw.start()
equal("ledger.sync = each", call(S, "POST", "/v1/messages", engine, message()).status, 200)

# ---- told to end ----
c = Client(S).ask("POST", "/v1/messages", engine, message("claude-long", stream=True)).head()
c.chunk()
t = time.monotonic()
gw.ctl("stop")
check("a stop does not wait for streams", time.monotonic() - t < 50 and not c.body()[1], time.monotonic() - t)
gw.start()
equal("they have their outcome", (gw.outcome()[1].get("result"), "unknown 0" in gw.ctl("status")), ("the gateway ended", True))
os.kill(gw.pid, signal.SIGTERM)
check("SIGTERM ends it", within(60, lambda: not os.path.exists(S)))
sys.exit(failed)
