# Sessions with models of each format, from the file that creates one to the provider's socket and back: a daemon, a mount,
# a gateway, a sandbox of kind dir. The provider is ours; all it is asked is looked at.
import base64, email.utils, os, subprocess, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
import brains, peers

up = Provider()
gw = Instance()
M, P, S = gw.dir + "/m", gw.dir + "/project", gw.dir + "/m/sessions"
gw.env.update(GIT_CONFIG_GLOBAL=gw.dir + "/gitconfig", GIT_CONFIG_NOSYSTEM="1", LC_ALL="C.UTF-8")


def sh(*args, **kw):
    return subprocess.run(args, env=gw.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90, **kw)


def mount():
    r = sh(BERTHFS, "mount", M)
    if r.returncode:
        print("# " + r.stdout.decode())
    return r.returncode == 0


def daemon():
    return int(re.search(r"^pid (\d+)", open(gw.dir + "/state/berthfs/mount").read(), re.M).group(1))


def end():
    sh(BERTHFS, "umount", M)
    sh("umount", "-l", M)
    for d in os.listdir("/proc"):  # tool daemons of our sandboxes
        try:
            words = open("/proc/%s/cmdline" % d).read()
        except OSError:
            continue
        if "tool-daemon" in words and gw.dir + "/" in words:
            os.kill(int(d), signal.SIGKILL)
    gw.ctl("stop")


atexit.register(end)  # before the instance's own end takes the folder away


def create(name, model, text="Go."):
    """None, or the words of the refusal."""
    try:
        write(S + "/new/" + name, "---\nproject: %s\n%s---\n%s\n" % (P, "model: %s\n" % model if model else "", text))
    except OSError:
        return read(M + "/error").splitlines()[-1]


def status(name):
    return read("%s/%s/status" % (S, name)).split("\n")[0].strip() # a second line names what is uncommitted


def idle(name, seconds=200):
    return within(seconds, lambda: status(name).split(":")[0] in ("idle", "failed")) and status(name)


def entries(name):
    return [json.loads(l) for l in read("%s/%s/transcript.jsonl" % (S, name)).splitlines()]


def told(name):
    """The transcript as the provider should have been told it."""
    out = []
    for e in entries(name):
        if e["kind"] == "user":
            out.append(("user", e["text"]))
        elif e["kind"] == "assistant":
            out += [("thinking", json.dumps(b["raw"], sort_keys=True)) for b in e.get("replay", {}).get("blocks", []) if "raw" in b]
            if e["text"].strip():
                out.append(("assistant", e["text"]))
        elif e["kind"] == "tool_call":
            out.append(("call", (e["id"], e["name"], e["input"])))
        elif e["kind"] == "tool_result":
            out.append(("result", (e["id"], e["text"])))
    return out


# ---- the model: five rounds of tools, by what the conversation says; each request may first meet a fault ----

class Brain:
    def __init__(self, faults=()):
        self.faults, self.tries, self.bodies, self.keys, self.hold = dict(faults), {}, [], set(), None
        self.gaps, self.at = {}, {}

    def __call__(self, c, r):
        said = brains.norm(r.target, r.json)
        last = max(i for i, (who, _) in enumerate(said) if who == "user")
        rounds = len([1 for who, _ in said[last:] if who == "assistant"])
        self.keys.add(r.h.get("x-api-key") or r.h.get("authorization"))
        self.bodies.append((r.target, r.json))
        n = self.tries[last, rounds] = self.tries.get((last, rounds), 0) + 1
        if n == 2:
            self.gaps[rounds] = time.time() - self.at[last, rounds]
        self.at[last, rounds] = time.time()
        text = said[last][1]
        fault = self.faults.get(rounds)
        if fault and n == 1:
            return fault(c, r)
        if "tools" not in r.json or r.json.get("tool_choice") in ({"type": "none"}, "none"):
            calls, text = [], "quick: a summary of what was said"
        elif "quick" in text:
            calls, text = [], "quick answer to: " + text
        elif rounds == 2:  # two at once
            calls = [("bash", {"command": "echo 3 >> rounds; echo left"}), ("bash", {"command": "echo 3b >> rounds; echo right"})]
        elif rounds < 5:
            calls = [("bash", {"command": "echo %d >> rounds; cat rounds" % (rounds + 1)})]
        else:
            calls = []
        if self.hold is not None and rounds == self.hold:
            self.hold = None
            return up.stream(c, brains.EVENTS[r.target](("slow " * 1000), calls, 1000), pause=0.1)
        text = text if "quick" in text else "round %d \u00e9" % (rounds + 1) if calls else "all done"
        return up.stream(c, brains.EVENTS[r.target](text, calls, 100 * last + rounds))


def error(status, kind, *headers, **more):
    def f(c, r):
        o = {"type": kind, "message": more.get("message", "from the test")}
        body = {"type": "error", "error": o} if r.target == "/v1/messages" else {"error": o}
        up.reply(c, status, json.dumps(body).encode(), [h() if callable(h) else h for h in headers])
    return f


def reset(c, r):
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    return "close"


def stall(c, r):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n: hi\n\r\n")
    c.recv(1)  # until it is given up
    return "close"


def cut(c, r):
    events = list(brains.EVENTS[r.target]("cut off in the middle of it", [("bash", {"command": "echo WRONG >> rounds"})], 9))
    return up.stream(c, events[:-3], cut=True)


def error_in_stream(c, r):
    e = {"/v1/messages": b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
         "/v1/chat/completions": b'data: {"error":{"message":"Overloaded","code":"server_overloaded"}}\n\n',
         "/v1/responses": b'event: response.failed\ndata: {"type":"response.failed","response":{"error":{"code":"server_error","message":"x"}}}\n\n'}
    return up.stream(c, list(brains.EVENTS[r.target]("begun", [], 9))[:2] + [e[r.target]])


soon = lambda: ("retry-after", email.utils.formatdate(time.time() + 5, usegmt=True))
FAULTS = {
    "claude-sonnet-4-5": {0: error(529, "overloaded_error"), 1: error(429, "rate_limit_error", ("retry-after", "4")), 2: reset, 3: stall, 4: cut, 5: error_in_stream},
    "qwen3:8b": {0: error(429, "rate_limit_error", ("retry-after-ms", "3500")), 1: error(500, "server_error"), 2: cut, 3: error_in_stream, 4: stall, 5: reset},
    "gpt-test": {0: error(429, "rate_limit_exceeded", soon), 1: error(503, "x", ("x-should-retry", "true")), 2: stall,
                 3: reset, 4: error_in_stream, 5: cut},
}
NAMES = {"anthropic": ("claude-sonnet-4-5", "claude-sonnet-4-5"), "chat": ("ollama/qwen3:8b", "qwen3:8b"), "responses": ("resp/gpt-test", "gpt-test")}

# ---- a start without any model ----
os.makedirs(M)
sh("git", "config", "--global", "user.name", "T"), sh("git", "config", "--global", "user.email", "t@example.com")
sh("git", "init", "-q", "-b", "main", P)
open(P + "/a.txt", "w").write("hello\n")
sh("git", "add", ".", cwd=P), sh("git", "commit", "-qm", "first", cwd=P)
os.makedirs(gw.dir + "/config/berthfs", exist_ok=True)
CONFIG = "sandbox = dir\nsandbox.allow-dir = yes\nanswer.idle-timeout = 5 s\n"
write(gw.dir + "/config/berthfs/config", CONFIG)
if not mount():
    sys.exit(1)
words = create("none", None)
check("with nothing set a session says how to set a model", words and "gateway/keys/anthropic" in words and "contrib/try.sh" in words, words)
words = create("nobody", "llama3")
check("a model that nobody serves", words and "no provider is known" in words, words)
r = sh(BERTHFS, "models")
equal("models: none can be used yet", (r.returncode, b"no  anthropic" in r.stdout and b"no key: echo KEY >" in r.stdout), (69, True))
PROVIDERS = "provider.anthropic.url = %s\nprovider.ollama.url = %s\nprovider.resp.kind = responses\nprovider.resp.url = %s/v1\nprovider.resp.key = anthropic\n" % (up.url, up.url, up.url)
PROVIDERS += "model.resp/gpt-test.thinking = on\n"
write(M + "/config", CONFIG + PROVIDERS)
within(15, lambda: gw.ctl("status", fail=True) is None)
write(M + "/gateway/keys/anthropic", KEY + "\n")

r = sh(BERTHFS, "models")
listed = re.findall(r"^ok  (\S+)", r.stdout.decode(), re.M)
check("models: now some can", r.returncode == 0 and "claude-sonnet-5*" in listed and "resp/gpt-test" in listed and "ollama/NAME" in listed and "gpt-4.1*" not in listed, r.stdout)
equal("models takes no argument", sh(BERTHFS, "models", "x").returncode, 64)

# ---- every format through every fault, unattended, at the same time; the daemon dies in the middle ----
brain = {}
for name, (model, id) in NAMES.items():
    up.script[id] = brain[name] = Brain(FAULTS[id])
    words = create(name, model)
    check("%s: a session is made" % name, not words, words)
within(30, lambda: all(max([k[1] for k in b.tries] or [0]) >= 2 for b in brain.values()))
os.kill(daemon(), signal.SIGKILL)
within(10, lambda: not os.path.ismount(M))
check("the daemon was killed, and is back", mount())
for name, (model, id) in NAMES.items():
    b = brain[name]
    equal("%s: it ends by itself" % name, idle(name), "idle")
    e = entries(name)
    equal("%s: the answer" % name, [x["text"] for x in e if x["kind"] == "assistant"][-1], "all done")
    results = [x["text"].split() for x in e if x["kind"] == "tool_result"]
    equal("%s: each call ran once, in order" % name, results, [["1"], ["1", "2"], ["left"], ["right"], ["1", "2", "3", "3b", "4"], ["1", "2", "3", "3b", "4", "5"]])
    target, body = b.bodies[-1]
    equal("%s: the provider was told the transcript, exactly" % name, brains.norm(target, body), told(name)[:-1])
    equal("%s: every fault was met" % name, sorted(k[1] for k, n in b.tries.items() if n > 1), list(range(6)))
    check("%s: and no more than one try after it, or one for the kill" % name, sum(n - 2 for n in b.tries.values()) <= 1, b.tries)
    use = read("%s/%s/usage" % (S, name)).splitlines()
    check("%s: usage counts and costs" % name, any(model in l for l in use) and all(float(l.split("\t")[4]) >= 0 for l in use if "tool" not in l), use)
    check("%s: tools are declared" % name, len(body["tools"]) == 4, body.get("tools"))
waits = (brain["anthropic"].gaps[1], brain["chat"].gaps[0], brain["responses"].gaps[0])
check("the server's waits are kept: seconds, milliseconds, a date", waits[0] >= 4 and waits[1] >= 3.5 and waits[2] >= 3.9, waits)
equal("thinking goes back signed, as it came", [json.loads(w)["signature"] for who, w in brains.norm(*brain["anthropic"].bodies[-1]) if who == "thinking"], ["sig/%d+=" % n for n in range(5)])
equal("reasoning goes back encrypted, as it came", [json.loads(w)["encrypted_content"] for who, w in brains.norm(*brain["responses"].bodies[-1]) if who == "thinking"], ["enc/%d+=" % n for n in range(5)])
equal("a server of one's own costs nothing", [l.split("\t")[4] for l in read(S + "/chat/usage").splitlines() if "ollama" in l], ["0.000000"])
marks = json.dumps(brain["anthropic"].bodies[-1][1]).count("cache_control")
equal("four marks for the cache", marks, 4)

# ---- keys and tokens ----
equal("the provider gets the key", (brain["anthropic"].keys, brain["responses"].keys), ({KEY}, {"Bearer " + KEY}))
equal("and none where none is", brain["chat"].keys, {None})
sent = b"".join(r.body for r in up.requests) + repr([r.headers for r in up.requests]).encode()
check("no token leaves the machine", b"berth-" not in sent and b"berthfs-provider" not in sent)


def holders(text):
    out = []
    for at, dirs, files in os.walk(gw.dir):
        if at == M:
            dirs[:] = []
            continue
        for f in files:
            try:
                if text in open(os.path.join(at, f), "rb").read():
                    out.append(os.path.relpath(os.path.join(at, f), gw.dir))
            except OSError:
                pass
    return out


equal("the key is in no file but the gateway's", [f for f in holders(KEY.encode()) if not f.startswith("state/berthfs/gateway/keys/")], [])
check("and not in the transcript", KEY not in "".join(read("%s/%s/transcript.jsonl" % (S, n)) for n in NAMES))
with open("/proc/%d/environ" % daemon()) as f:
    check("nor in the daemon's environment", KEY not in f.read())
rows = [r for r in gw.ledger() if r.get("kind") == "decision" and r.get("verdict") == "allowed"]
came = len([r for r in up.requests if r.method == "POST"])
lost = len([r for r in gw.ledger() if str(r.get("result")).startswith(("client left", "provider closed")) and not r.get("status")])  # perhaps before they were sent
check("every request is in the ledger", 0 <= len(rows) - came <= lost and {r["provider"] for r in rows} == {"config-anthropic", "ollama", "resp"}, len(rows), came, lost)

# ---- stop, another model, a token that is gone ----
for name, (model, id) in NAMES.items():

    def stop():
        b = up.script[id] = brain[name] = Brain()
        b.hold = 0
        before = up.aborted
        write("%s/%s/input" % (S, name), "Again.\n")
        within(20, lambda: b.bodies)
        within(20, lambda: "slow" in read("%s/%s/transcript" % (S, name)) or status(name) == "running")
        at = time.monotonic()
        write("%s/%s/ctl" % (S, name), "stop\n")
        idle(name)
        at = time.monotonic() - at
        check("%s: and at the provider too" % name, within(60, lambda: up.aborted > before))
        return at
    done_in("%s: stop ends the answer" % name, 1.5, stop)
b = up.script["qwen3:8b"] = Brain()
write(S + "/anthropic/settings/model", "ollama/qwen3:8b\n")
write(S + "/anthropic/input", "Be quick.\n")
equal("another model goes on", (idle("anthropic"), entries("anthropic")[-1]["text"]), ("idle", "quick answer to: Be quick.\n"))
target, body = b.bodies[-1]
equal("it gets the talk without the other's thinking", brains.norm(target, body), [x for x in told("anthropic")[:-1] if x[0] != "thinking"])
gw.ctl("revoke", "engine", read(S + "/chat/id").strip())
write(S + "/chat/input", "quick again\n")
equal("a token that is gone is made anew", (idle("chat"), entries("chat")[-1]["text"]), ("idle", "quick answer to: quick again\n"))
gw.kill()
write(S + "/chat/input", "quick once more\n")
equal("and so is the gateway", (idle("chat"), entries("chat")[-1]["text"]), ("idle", "quick answer to: quick once more\n"))

# ---- thinking that the provider does not take back ----
class Forgetful(Brain):
    def __call__(self, c, r):
        if any(who == "thinking" for who, _ in brains.norm(r.target, r.json)) or "thinking" in r.json or "include" in r.json:
            self.bodies.append("refused")
            return error(400, "invalid_request_error", message="thinking blocks in the latest assistant message cannot be modified")(c, r)
        return super().__call__(c, r)


write(S + "/anthropic/settings/model", "claude-sonnet-4-5\n")
for name, id in (("anthropic", "claude-sonnet-4-5"), ("responses", "gpt-test")):
    b = up.script[id] = Forgetful()
    write("%s/%s/input" % (S, name), "quick and forgetful\n")
    equal("%s: a session survives it" % name, (idle(name), entries(name)[-1]["text"], b.bodies[0], len(b.bodies)), ("idle", "quick answer to: quick and forgetful\n", "refused", 2))
    check("%s: and the log says so" % name, "sent again without thinking" in read("%s/%s/log" % (S, name)))

# ---- a conversation that is too long, and an image ----
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
LONG = {"claude-sonnet-4-5": error(400, "invalid_request_error", message="prompt is too long: 210000 tokens > 200000 maximum"),
        "qwen3:8b": error(400, "invalid_request_error", message="prompt too long; exceeded max context length by 10 tokens"),
        "gpt-test": lambda c, r: up.stream(c, [b'event: response.failed\ndata: {"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"x"}}}\n\n'])}
write(M + "/config", CONFIG + PROVIDERS + "model.resp/gpt-test.images = yes\nmodel.ollama/qwen3:8b.images = yes\n")
for name, (model, id) in NAMES.items():
    b = Brain()
    up.script[id] = lambda c, r, b=b, id=id: b(c, r) if b.bodies else b.bodies.append((r.target, r.json)) or LONG[id](c, r)
    open("%s/%s/attach/dot.png" % (S, name), "wb").write(PNG)
    write("%s/%s/input" % (S, name), "quick: what is in the image?\n")
    equal("%s: it is summed up and goes on" % name, (idle(name), entries(name)[-1]["text"]), ("idle", "quick answer to: quick: what is in the image?\n"))
    sent = json.dumps(b.bodies[-1][1])
    check("%s: with the image, and less of the talk" % name, base64.b64encode(PNG).decode() in sent and "a summary of what was said" in sent and len(sent) < len(json.dumps(b.bodies[0][1])), len(sent), len(json.dumps(b.bodies[0][1])))

# ---- what is never tried again, and what the default is ----
up.script["gpt-test"] = Brain({0: error(400, "invalid_request_error")})
write(S + "/responses/input", "quick: fail\n")
check("a bad request fails in words", "from the test" in str(idle("responses")), status("responses"))
check("and is sent once", len(up.script["gpt-test"].bodies) == 1)
up.script["gpt-test"] = Brain({0: error(529, "overloaded", ("x-should-retry", "false"))})
write(S + "/responses/input", "quick: fail again\n")
check("so does one that the server says is not to be sent again", "529" in str(idle("responses")) and len(up.script["gpt-test"].bodies) == 1, status("responses"))
up.script["gpt-test"] = Brain({0: error(401, "authentication_error")})
write(S + "/responses/input", "quick: a bad key\n")
check("nor a key that the provider refuses", "refused the gateway's key" in str(idle("responses")) and len(up.script["gpt-test"].bodies) == 1, status("responses"))
write(S + "/responses/ctl", "retry\n")
within(20, lambda: status("responses") == "idle")
up.script["claude-sonnet-5-5"] = Brain()
words = create("default", None, "quick default")
equal("the first provider with a key is the default", (words, idle("default"), read(S + "/default/settings/model")), (None, "idle", "claude-sonnet-5-5\n"))
up.script["claude-sonnet-5-5"] = lambda c, r: c.recv(1)  # never begins, until it is given up
write(M + "/config", CONFIG + "answer.begin-timeout = 1 s\nretry.limit = 1 s\n" + PROVIDERS)
write(S + "/default/input", "quick\n")
check("an answer that never begins is given up", "did not begin to answer within 1 s" in str(idle("default")), status("default"))
up2 = Provider()
up2.script["claude-sonnet-5-5"] = lambda c, r: up2.stream(c, brains.anthropic("from the second", [], 1))
write(M + "/config", CONFIG + PROVIDERS.replace("provider.anthropic.url = " + up.url, "provider.anthropic.url = " + up2.url))
write(S + "/default/input", "quick there\n")
equal("config moves a provider, and the policy follows", (idle("default"), entries("default")[-1]["text"]), ("idle", "from the second"))
sys.exit(peers.failed)
