# Requests through the gateway: who may ask what, how answers come back, what the ledger says of it.
import os, struct, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *

up = Provider()
gw = Instance().start()
gw.ctl("policy-set", data=policy(up).encode())
gw.ctl("key", "anthropic", data=KEY.encode())
box = gw.dir + "/box.sock"
engine = gw.ctl("mint", "engine", "7", "app", "none", "")
sandbox = gw.ctl("mint", "sandbox", "7", "app", "none", box)
S = gw.sock

# ---- an ordinary request ----
r = call(S, "POST", "/v1/messages?beta=true", engine, message(), headers=["anthropic-version: 2023-06-01", "anthropic-beta: interleaved-thinking-2025-05-14, effort-2025-11-24", "OpenAI-Beta: responses=v2", "X-Other: 1", "User-Agent: me", "Cookie: a=b"])
equal("a request is answered", (r.status, r.json["content"][0]["text"], r.h.get("request-id")), (200, "hi", "r1"))
seen = up.requests[-1]
equal("the provider sees the key", seen.h.get("x-api-key"), KEY)
check("and never the token", engine not in str(seen.headers) + seen.body.decode())
equal("and the listed headers alone", sorted(seen.h), sorted(["host", "accept", "accept-encoding", "user-agent", "content-type", "anthropic-version", "anthropic-beta", "x-api-key", "content-length"]))
equal("and the checked query and body", (seen.target, seen.json), ("/v1/messages?beta=true", message()))
d, o = gw.outcome()
equal("the ledger has decision and outcome", (d["session"], d["model"], d["verdict"], o["result"], o["usage"]), ("7", "claude-a", "allowed", "complete", "reported"))
equal("with the price of what was used", o["nano"], 100 * 3000 + 7 * 15000 + 40 * 300)
equal("the sandbox's token on its own socket", call(box, "POST", "/v1/messages", sandbox, message(), auth="bearer").status, 200)
c = Client(S)
equal("several requests on one connection", [c.ask("POST", "/v1/messages", engine, message()).head().body()[1] and c.status for _ in range(5)], [200] * 5)
one = ("POST /v1/messages HTTP/1.1\r\nHost: h\r\nx-api-key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (engine, len(json.dumps(message())))).encode() + json.dumps(message()).encode()
c.send(one * 20)
equal("pipelined ones, in order", [c.head().body()[1] and c.status for _ in range(20)], [200] * 20)
c.close()
equal("chunked bodies", call(S, "POST", "/v1/messages", engine, None, headers=["Content-Type: application/json", "Transfer-Encoding: chunked", "", "%x" % len(json.dumps(message())), json.dumps(message()), "0"]).status, 200)
big = message(messages=[{"role": "user", "content": "x" * 20_000_000}])
equal("a body of 20 MB", call(S, "POST", "/v1/messages", engine, big).status, 200)
equal("one of 33 MB is too large", call(S, "POST", "/v1/messages", engine, None, headers=["Content-Length: %d" % (33 << 20)]).status, 413)
equal("models", call(S, "GET", "/v1/models", engine, headers=["anthropic-version: 2023-06-01"]).status, 200)
equal("count_tokens", (call(S, "POST", "/v1/messages/count_tokens", engine, {"model": "claude-a", "messages": []}).json, gw.outcome()[1]["nano"]), ({"input_tokens": 5}, 0))

# ---- what is refused ----
def refused(name, status, rule, *args, where=S, **kw):
    n = len(up.requests)
    r = call(where, *args, **kw)
    equal(name, (r.status, r.h.get("x-berthfs-rule"), len(up.requests) - n), (status, rule, 0))
    return r

refused("no token", 401, "token", "POST", "/v1/messages", None, message())
refused("a wrong token", 401, "token", "POST", "/v1/messages", engine[:-1] + "x", message())
refused("two tokens", 401, "token", "POST", "/v1/messages", engine, message(), headers=["Authorization: Bearer " + sandbox])
refused("the provider's own key", 401, "token", "POST", "/v1/messages", KEY, message())
refused("the engine's token in a sandbox", 403, "token.channel", "POST", "/v1/messages", engine, message(), where=box)
refused("a sandbox's token outside", 403, "token.channel", "POST", "/v1/messages", sandbox, message())
other = gw.dir + "/other.sock"
gw.ctl("mint", "sandbox", "8", "app", "none", other)
refused("or in another sandbox", 403, "token.channel", "POST", "/v1/messages", sandbox, message(), where=other)
for path in ["/v1/files", "/v1/messages/", "/v1//messages", "/v1/./messages", "/v1/x/../messages", "/v1/%6dessages", "/v1/messages%2f", "/v1/messages;x", "/V1/messages",
             "/v1/messages/batches", "/v1/responses/input_tokens", "/v1/complete", "/", "/v1/messages%00", "/v1/messages."]:
    refused("path " + path, 403, "route", "POST", path, engine, message())
for token, where, who in [(engine, S, "the daemon"), (sandbox, box, "a sandbox")]:
    for names, status in [(["nobody"], 403), (["openai"], 403), (["x" * 200], 400), ([""], 400), (["anthropic", "openai"], 400)]:
        refused("%s asks for the provider %s" % (who, " and ".join(names)), status, "model", "POST", "/v1/messages", token, message(), where=where,
                headers=["berthfs-provider: " + n for n in names])
    equal("or one that serves the model", call(where, "POST", "/v1/messages", token, message(), headers=["berthfs-provider: anthropic"]).status, 200)
refused("another method", 403, "route", "GET", "/v1/messages", engine)
refused("method override", 403, "route", "GET", "/v1/messages", engine, headers=["X-HTTP-Method-Override: POST"])
refused("a query that is not listed", 403, "query", "POST", "/v1/messages?model=claude-x", engine, message())
refused("a key in the query", 403, "query", "POST", "/v1/messages?beta=true&key=1", engine, message())
refused("a query with an escape", 403, "query", "POST", "/v1/messages?beta=a%0d%0ab", engine, message())
refused("an empty query", 403, "query", "POST", "/v1/messages?", engine, message())
refused("a model that is not allowed", 403, "model", "POST", "/v1/messages", engine, message("other"))
refused("a field that is not allowed", 403, "field", "POST", "/v1/messages", engine, message(mcp_servers=[]))
refused("a server tool", 403, "feature.server-tools", "POST", "/v1/messages", engine, message(tools=[{"type": "web_search_20250305", "name": "s"}]))
refused("a compressed body", 415, "encoding", "POST", "/v1/messages", engine, message(), headers=["Content-Encoding: gzip"])
refused("a form", 415, "type", "POST", "/v1/messages", engine, b"model=claude-a", headers=["Content-Type: application/x-www-form-urlencoded"])
refused("another charset", 415, "type", "POST", "/v1/messages", engine, message(), headers=["Content-Type: application/json; charset=utf-16"])
refused("no JSON", 400, "json", "POST", "/v1/messages", engine, b"{")
for name in ["files-api-2025-04-14", "code-execution-2025-08-25", "mcp-client-2025-11-20", "skills-2025-10-02", "never-heard-of-2031-01-01", "effort-2025-11-24,files-api-2025-04-14",
             "effort-2025-11-24 files-api-2025-04-14", "effort-2025-11-24,", ",", "effort-2025-11-24,,claude-code-20250219"]:
    for path in ["/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"]:
        r = refused("a beta that is not allowed: %s for %s" % (name, path), 403, "beta", "POST", path, engine, message(), headers=["anthropic-beta: " + name])
check("the refusal names it", "never-heard-of" in refused("one more", 403, "beta", "POST", "/v1/messages", engine, message(), headers=["anthropic-beta: never-heard-of"]).json["error"]["message"])
equal("none at all is none", call(S, "POST", "/v1/messages", engine, message(), headers=["anthropic-beta: "]).status, 200)
check("and goes nowhere", "anthropic-beta" not in up.requests[-1].h)
refused("a beta twice", 400, "header", "POST", "/v1/messages", engine, message(), headers=["anthropic-beta: effort-2025-11-24", "Anthropic-Beta: files-api-2025-04-14"])
refused("betas that are too long", 400, "header", "POST", "/v1/messages", engine, message(), headers=["anthropic-beta: " + ",".join(["effort-2025-11-24"] * 60)])
refused("a version that is too long", 400, "header", "POST", "/v1/messages", engine, message(), headers=["anthropic-version: " + "2" * 64])
refused("a beta with odd letters", 400, "header", "POST", "/v1/messages", engine, message(), headers=["anthropic-beta: a\"b"])
refused("an upgrade", 426, "upgrade", "GET", "/v1/responses", engine, headers=["Connection: Upgrade", "Upgrade: websocket"])
r = refused("in the shape of Messages", 403, "model", "POST", "/v1/messages", engine, message("x"))
equal("with type and no retry", (r.json["type"], r.json["error"]["type"], r.h["x-should-retry"]), ("error", "permission_error", "false"))
r = refused("in the shape of Chat Completions", 403, "model", "POST", "/v1/chat/completions", engine, {"model": "x", "messages": []}, auth="bearer")
equal("with code", r.json["error"]["code"], "model")
n = len(up.requests)
c = Client(S)
c.send(one.replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nContent-Length: "))
equal("a smuggled request", (c.head().status, c.body()[1], c.s.recv(1), len(up.requests) - n), (400, True, b"", 0))
c.close()
rules = lambda: {x["rule"] for x in gw.ledger() if x.get("verdict") == "denied"}
check("denials are in the ledger with their rule", within(60, lambda: {"token", "route", "model", "field", "query", "http"} <= rules()), rules())
check("and no token or key is", KEY not in gw.ctl("ledger") and engine not in gw.ctl("ledger"))

# ---- streams ----
def streamed(name, path, body, events, want=(60, 7, 40)):
    r = call(S, "POST", path, engine, dict(body, stream=True), auth="bearer")
    equal(name, (r.status, r.whole, r.data), (200, True, b"".join(events)))
    d, o = gw.outcome()
    equal(name + ": what was used", (o["result"], o["usage"], o["input"], o["output"], o["cache_read"]), ("complete", "reported") + want)

streamed("a stream of Messages", "/v1/messages", message(), anthropic_events(), (100, 7, 40))
streamed("of Chat Completions", "/v1/chat/completions", {"model": "gpt-a", "messages": [], "stream_options": {"include_usage": True}}, chat_events())
streamed("of Responses", "/v1/responses", {"model": "gpt-a", "input": "x"}, responses_events())
equal("store is off for Responses", up.requests[-1].json["store"], False)
r = call(S, "POST", "/v1/chat/completions", engine, {"model": "gpt-a", "messages": [], "stream": True, "max_tokens": 50}, auth="bearer")
d, o = gw.outcome()
equal("no usage said: charged as reserved", (r.whole, o["usage"], o["nano"]), (True, "reserved", d["reserved_nano"]))

# The provider goes on only when the client has what was sent so far: what is held back anywhere is never seen.
taken = threading.Semaphore(1)
up.script["claude-slow"] = lambda c, r: up.stream(c, (e for e in anthropic_events("abc") if taken.acquire(timeout=100)))
c = Client(S).ask("POST", "/v1/messages", engine, message("claude-slow", stream=True)).head()
got = []
while (piece := c.chunk()):
    got.append(piece)
    taken.release()
equal("events come as they are sent", got, list(anthropic_events("abc")))
c.close()

up.script["claude-long"] = lambda c, r: up.stream(c, anthropic_events("x" * 4000), pause=0.05)
n = up.aborted
c = Client(S).ask("POST", "/v1/messages", engine, message("claude-long", stream=True)).head()
c.chunk(), c.chunk(), c.chunk()
equal("a running request is seen", gw.ctl("activity", "7").split()[0], "1")
c.close()
check("a client that leaves cancels the provider's stream", within(60, lambda: up.aborted == n + 1))
d, o = gw.outcome()
check("which is charged for what came", o["result"] == "client left" and o["usage"] == "estimated" and o["input"] == 100 and 0 < o["output"] <= 100, o)
n = up.aborted
cs = [Client(S).ask("POST", "/v1/messages", engine, message("claude-long", stream=True)) for _ in range(30)]
for c in cs:
    c.head().chunk()
for c in cs:
    c.close()
check("30 of 30", within(60, lambda: up.aborted == n + 30), up.aborted - n)

def final_then_wait(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for e in responses_events():
        c.sendall(b"%x\r\n%s\r\n" % (len(e), e))
    c.recv(1)
    return "close"
up.script["gpt-final"] = final_then_wait
c = Client(S).ask("POST", "/v1/responses", engine, {"model": "gpt-final", "input": "x", "stream": True}).head()
while b"response.completed" not in c.chunk():
    pass
c.close()
d, o = gw.outcome()
equal("a client that leaves after the last event did not abort", (o["result"], o["usage"], o["output"]), ("complete", "reported", 7))

up.script["claude-cut"] = lambda c, r: up.stream(c, anthropic_events(end=False), cut=True)
up.script["claude-ends"] = lambda c, r: up.stream(c, anthropic_events(end=False))
for model, what in [("claude-cut", "a provider that breaks off"), ("claude-ends", "an end without the last event")]:
    r = call(S, "POST", "/v1/messages", engine, message(model, stream=True))
    equal(what + " does not look complete", (r.status, r.whole, gw.outcome()[1]["result"]), (200, False, "truncated"))
def short(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"a\":")
    return "close"
up.script["claude-short"] = short
r = call(S, "POST", "/v1/messages", engine, message("claude-short"))
equal("nor does a short answer", (r.whole, gw.outcome()[1]["result"]), (False, "truncated"))

# ---- what comes back ----
def echo(c, r):
    k = r.h["x-api-key"]
    body = b"data: {\"k\":\"" + k.encode() + b"\"}\n\n" + b"".join(anthropic_events())
    c.sendall(("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nrequest-id: %s\r\nset-cookie: a=b\r\nanthropic-organization-id: o\r\nanthropic-ratelimit-tokens-limit: 1\r\nTransfer-Encoding: chunked\r\n\r\n" % k).encode())
    for i in range(0, len(body), 3):
        c.sendall(b"%x\r\n%s\r\n" % (len(body[i:i + 3]), body[i:i + 3]))
    c.sendall(b"0\r\n\r\n")
up.script["claude-echo"] = echo
r = call(S, "POST", "/v1/messages", engine, message("claude-echo", stream=True))
check("the key is scrubbed over the borders of pieces", KEY.encode() not in r.data and b"*" * len(KEY) in r.data and r.data.endswith(b"".join(anthropic_events())), r.data[:200])
equal("and in headers, of which the listed ones pass", (r.h.get("request-id"), sorted(r.h)), ("*" * len(KEY), ["content-type", "request-id", "transfer-encoding"]))
for status, rule in [(401, "provider.key"), (403, "provider.key"), (302, "provider.redirect"), (307, "provider.redirect")]:
    up.script["claude-s"] = lambda c, r: up.reply(c, status, b"incorrect key " + KEY.encode(), [("Location", "http://127.0.0.1:%d/v1/messages" % up.port)])
    n = len(up.requests)
    r = call(S, "POST", "/v1/messages", engine, message("claude-s"))
    check("the provider's %d becomes 502 and nothing of it passes" % status, (r.status, r.h.get("x-berthfs-rule")) == (502, rule) and KEY not in r.data.decode() and len(up.requests) == n + 1, r.data)
up.script["claude-s"] = lambda c, r: up.reply(c, 429, b'{"type":"error"}', [("retry-after", "3")])
r = call(S, "POST", "/v1/messages", engine, message("claude-s"))
equal("its 429 passes, with its time", (r.status, r.h.get("retry-after"), r.json, gw.outcome()[1]["nano"]), (429, "3", {"type": "error"}, 0))
up.script["claude-s"] = lambda c, r: "close"
r = call(S, "POST", "/v1/messages", engine, message("claude-s"))
equal("no answer is 502 and may be tried again", (r.status, r.h.get("x-should-retry")), (502, "true"))

# A connection that is used again and breaks when it has the request: libcurl by itself would send that once more.
class Breaking(Provider):
    """Each connection answers its first request; at its second it reads all and breaks, by a reset or a plain end."""
    def serve(self, c):
        f, n = c.makefile("rb"), 0
        try:
            while (r := self.read(f)):
                n += 1
                with self.lock:
                    self.requests.append(r)
                if n == 1:
                    self.usual(c, r)
                    continue
                if "reset" in r.body.decode():
                    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                break
        except OSError:
            pass
        f.close()
        c.close()
breaking = Breaking()
gw.ctl("policy-set", data=policy(breaking).encode())
for how in ("reset", "end"):
    for stream in (False, True):
        equal("a new connection is answered (%s)" % how, call(S, "POST", "/v1/messages", engine, message()).status, 200)
        n, rows = len(breaking.requests), len([r for r in gw.ledger() if r["kind"] == "decision"])
        r = call(S, "POST", "/v1/messages", engine, message(stream=stream, messages=[{"role": "user", "content": how}]))
        equal("one that is used again and breaks (%s%s): 502, and may be asked again" % (how, ", stream" if stream else ""),
              (r.status, r.h.get("x-should-retry"), r.h.get("x-berthfs-rule")), (502, "true", "provider.closed"))
        equal("the provider has had it once", [x.body.count(how.encode()) for x in breaking.requests[n:]], [1])
        d, o = gw.outcome()
        equal("one decision, charged as it may have been used", (o["result"], o["nano"] > 0, len([r for r in gw.ledger() if r["kind"] == "decision"])), ("provider closed the connection", True, rows + 1))
gw.ctl("policy-set", data=policy(up).encode())

# ---- a slow reader ----
def flood(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"data: " + b"x" * 8000 + b"\n\n"
    for i in range(5000):
        c.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
    for e in anthropic_events():
        c.sendall(b"%x\r\n%s\r\n" % (len(e), e))
    c.sendall(b"0\r\n\r\n")
up.script["claude-flood"] = flood
def rss():
    return int(re.search(r"VmRSS:\s+(\d+)", open("/proc/%d/status" % gw.pid).read()).group(1))
before = rss()
cs = [Client(S).ask("POST", "/v1/messages", engine, message("claude-flood", stream=True)).head() for _ in range(10)]
time.sleep(1.5)
grown = rss() - before
check("ten readers that take nothing cost less than 20 MiB", grown < 20480, grown)
data, whole = cs[0].body()
check("and one that goes on gets all of it", whole and len(data) == 5000 * 8008 + sum(map(len, anthropic_events())), len(data))
for c in cs:
    c.close()

# ---- connections that rest ----
def closing(c, r):
    up.usual(c, r)
    return "close"


def used():
    return sum(map(int, open("/proc/%d/stat" % gw.pid).read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


up.script["claude-closing"] = closing
for _ in range(20):  # on the same descriptors: a request may come before the end of the connection is known
    check("a connection that the provider closes costs no request after it", within(60, lambda: call(S, "POST", "/v1/messages", engine, message("claude-closing")).status == 200)
          and within(60, lambda: call(S, "POST", "/v1/messages", engine, message()).status == 200))
call(S, "POST", "/v1/messages", engine, message("claude-closing"))
before = used()
time.sleep(0.5)
check("nor the processor", used() - before < 0.2, used() - before)
check("another one is answered", within(60, lambda: call(S, "POST", "/v1/messages", engine, message()).status == 200))

# ---- revoking ----
n = up.aborted
c = Client(box).ask("POST", "/v1/messages", sandbox, message("claude-long", stream=True)).head()
c.chunk()
t = time.monotonic()
gw.ctl("revoke", "sandbox", "7")
data, whole = c.body()
check("revoking cuts a stream at once, and not as if complete", not whole and time.monotonic() - t < 50, time.monotonic() - t)
check("also the provider's", within(60, lambda: up.aborted == n + 1))


def cut():
    token, before = gw.ctl("mint", "engine", "cut", "app", "none", ""), up.aborted
    c = Client(S).ask("POST", "/v1/messages", token, message("claude-long", stream=True)).head()
    c.chunk()
    t = time.monotonic()
    gw.ctl("revoke", "engine", "cut")
    c.body()
    t = time.monotonic() - t
    within(60, lambda: up.aborted > before)
    return t


equal("the ledger says so", gw.outcome()[1]["result"], "revoked")
check("its socket is gone", not os.path.exists(box))
done_in("revoking cuts a stream", 1, cut)
sandbox2 = gw.ctl("mint", "sandbox", "7", "app", "none", box)
refused("the old token is not taken again", 401, "token", "POST", "/v1/messages", sandbox, message(), where=box)
equal("a new one is", call(box, "POST", "/v1/messages", sandbox2, message()).status, 200)
equal("the engine's went on", call(S, "POST", "/v1/messages", engine, message()).status, 200)

# ---- policy at run time ----
words = gw.ctl("policy-set", data=policy(up, "limit session monkey 1").encode(), fail=True)
check("a bad policy is refused with its line", words and "line " in words and "monkey" not in gw.ctl("policy-get"), words)
gw.ctl("policy-set", data=policy(up, "feature server-tools").encode())
equal("a good one counts at once", call(S, "POST", "/v1/messages", engine, message(tools=[{"type": "web_search_20250305", "name": "s"}])).status, 200)
gw.ctl("key", "anthropic", data=b"")
gw.ctl("policy-set", data=policy(up).replace(up.url, "https://example.invalid").encode())
refused("no key", 403, "key", "POST", "/v1/messages", engine, message())
check("tokens are listed", len(gw.ctl("tokens").splitlines()) == 3 and gw.ctl("tokens").split("\t")[1] in ("engine", "sandbox"))
p = subprocess.run([BERTHFS, "ledger", "verify", "--expect-head", gw.ctl("head").split("head ")[1].split()[0]], env=gw.env, stdout=subprocess.PIPE)
check("the ledger holds", p.returncode == 0, p.stdout)
gw.ctl("stop")
sys.exit(failed)
