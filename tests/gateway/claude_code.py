# The real Claude Code as a model. The provider is ours, over TLS behind the gateway's CONNECT; all it is asked is looked at.
from claude_box import *

PROGRAM = os.environ.get("CLAUDE", os.environ.get("CLIENTS", "") + "/bin/claude")
box = Box(PROGRAM)
up, gw, S = box.up, box.gw, box.S


def slow(all, pause):
    for i, e in enumerate(all):
        if i and pause:
            time.sleep(pause)
        yield e


class Brain:
    """Five rounds of tools, by what the conversation says; each request may first meet a fault."""

    def __init__(self, faults=()):
        self.faults, self.tries, self.bodies, self.hold = dict(faults), {}, [], {}

    def __call__(self, c, r):
        said = norm(r.json)
        last = max(i for i, (who, _) in enumerate(said) if who == "user")
        rounds = len([1 for who, _ in said[last:] if who == "assistant"])
        text = said[last][1]
        self.bodies.append(r)
        n = self.tries[last, rounds] = self.tries.get((last, rounds), 0) + 1
        if n == 1 and rounds in self.faults:
            return self.faults[rounds](c, r)
        if "quick" in text or not r.json.get("tools"):
            return up.stream(c, events("quick answer to: " + text[:60], [], 99))
        bash = "mcp__berthfs__bash"
        if rounds == 2:  # two at once
            calls = [(bash, {"command": "echo 3 >> rounds; echo left"}), (bash, {"command": "echo 3b >> rounds; echo right"})]
        elif rounds < 5:
            calls = [(bash, {"command": "echo %d >> rounds; cat rounds" % (rounds + 1)})]
        else:
            calls = []
        return up.stream(c, slow(events("round %d \u00e9" % (rounds + 1) if calls else "all done", calls, 100 * last + rounds), self.hold.get(rounds, 0)))


def error(status, kind, *headers, **more):
    return lambda c, r: up.reply(c, status, json.dumps({"type": "error", "error": {"type": kind, "message": more.get("message", "from the test")}}).encode(), headers)


def stall(c, r):
    up.stream(c, list(events("begun and", [], 9))[:4], end=False)
    c.settimeout(60)
    c.recv(1)  # until it is given up
    return "close"


def cut(c, r):
    return up.stream(c, list(events("cut off in the middle", [("mcp__berthfs__bash", {"command": "echo WRONG >> rounds"})], 9))[:-3], cut=True)


# ---- a session with five rounds of tools, two calls at once, and the daemon killed in the middle ----
b = up.script[MODEL] = Brain()
b.hold = {3: 0.3}
words = box.create("rounds")
check("a session is made", not words, words)
within(120, lambda: max([k[1] for k in b.tries] or [0]) >= 3)
pids = {p for p, _ in box.jails()}
box.kill()
check("the daemon was killed, and is back", box.mount())
check("what served it has ended with it", within(20, lambda: not pids & {p for p, _ in box.jails()}))
equal("it ends by itself", box.idle("rounds"), "idle")
equal("the answer", box.texts("rounds")[-1], "all done")
results = [e["text"].split() for e in box.entries("rounds") if e["kind"] == "tool_result"]
equal("each call ran once, in order", results, [["1"], ["1", "2"], ["left"], ["right"], ["1", "2", "3", "3b", "4"], ["1", "2", "3", "3b", "4", "5"]])
equal("the provider was told the transcript, exactly", norm(b.bodies[-1].json), box.told("rounds")[:-1])
# Older versions, when an answer comes slowly, ask once more by themselves; that is cut off, and counts for nothing.
check("one request a turn, one more for the kill, and hardly one of its own", sorted(b.tries) == [(0, i) for i in range(6)] and sum(b.tries.values()) <= 8, b.tries, box.read(S + "/rounds/log"))
equal("our tools are all that there are", sorted(t["name"] for t in b.bodies[-1].json["tools"]), sorted("mcp__berthfs__" + t for t in ("bash", "edit", "read", "write")))
check("our prompt is told", "You are a coding agent" in json.dumps(b.bodies[-1].json["system"]))
equal("the login is the program's own", {r.h.get("authorization") for r in b.bodies}, {"Bearer " + LOGIN})
check("one process serves the turns after the restart", len(box.jails()) == 1, box.jails())
use = box.read(S + "/rounds/usage").splitlines()
check("usage counts", any("claude-code/" + MODEL in l for l in use), use)
pids = {p for p, _ in box.jails()}
box.say("rounds", "Be quick.")
equal("the next message", (box.idle("rounds"), box.texts("rounds")[-1]), ("idle", "quick answer to: Be quick.\n"))
equal("is answered by the same process", {p for p, _ in box.jails()}, pids)
equal("which knows the whole talk", norm(b.bodies[-1].json), box.told("rounds")[:-1])

# ---- what the ledger has, and what the jail shows ----
rows = gw.ledger()
tunnels = [r for r in rows if r.get("method") == "CONNECT"]
equal("its traffic is in the ledger, to the vendor alone", {(r["target"], r["verdict"], r["via"], r["session"]) for r in tunnels}, {("api.anthropic.com:443", "allowed", "engine", "1")})
reports = [r for r in rows if r.get("what") == "usage reported"]
equal("and its usage, as reported", {(r["model"], r["input"], r["output"], r["cached"], r["session"]) for r in reports}, {("claude-code/" + MODEL, 140, 7, 40, "1")})
pid = box.jails()[0][0]
inside = within(20, lambda: [p for p in subprocess.run(["ps", "-eo", "pid,args"], stdout=subprocess.PIPE).stdout.decode().splitlines()
                             if "--input-format" in p and "claude-jail" not in p and gw.dir in box.cgroup("/proc/" + p.split()[0]).decode(errors="replace")])[0].split()[0]


def look(path):
    try:
        return sorted(os.listdir("/proc/%s/root%s" % (inside, path)))
    except OSError as e:
        return type(e).__name__


equal("it sees its login and no project", (look(box.home + "/.claude")[:1], look(box.P), look(gw.dir + "/run"), look(gw.dir + "/config")),
      ([".credentials.json"], "FileNotFoundError", "FileNotFoundError", "FileNotFoundError"))
environ = open("/proc/%s/environ" % inside).read()
check("nothing of the user's environment, and no token of the gateway", "canary-of-the-environment" not in environ and "berth-" not in environ, environ)
equal("it has a network of its own", os.readlink("/proc/%s/ns/net" % inside) != os.readlink("/proc/self/ns/net"), True)
links = [l.split(":")[0].strip() for l in open("/proc/%s/net/dev" % inside).read().splitlines()[2:]]
equal("with nothing but itself in it", links, ["lo"])
check("the login stands in no file of ours", not subprocess.run(["grep", "-rlF", LOGIN, gw.dir + "/state", gw.dir + "/run", gw.dir + "/cache"], stdout=subprocess.PIPE).stdout)

# ---- every kind of fault, unattended ----
FAULTS = {0: error(529, "overloaded_error"), 1: error(429, "rate_limit_error", ("retry-after", "1")), 2: stall, 3: cut, 4: error(500, "api_error")}
box.write(box.M + "/config", box.read(box.M + "/config") + "answer.idle-timeout = 5 s\n")
b = up.script[MODEL] = Brain(FAULTS)
box.create("faults")
equal("faults: it ends by itself", (box.idle("faults", 240), box.texts("faults")[-1:]), ("idle", ["all done"]))
results = [e["text"].split() for e in box.entries("faults") if e["kind"] == "tool_result"]
equal("faults: each call ran once, in order", results, [["1"], ["1", "2"], ["left"], ["right"], ["1", "2", "3", "3b", "4"], ["1", "2", "3", "3b", "4", "5"]])
equal("faults: the provider was told the transcript, exactly", norm(b.bodies[-1].json), box.told("faults")[:-1])
equal("faults: each was met", sorted(k[1] for k, n in b.tries.items() if n > 1), [0, 1, 2, 3, 4])

# ---- the program is killed while it answers; the user stops it; a message comes while tools run ----
box.write(box.M + "/config", box.read(box.M + "/config").replace("answer.idle-timeout = 5 s\n", ""))
b = up.script[MODEL] = Brain()
b.hold = {0: 0.5}
box.create("killed")
check("killed: it answers", within(60, lambda: b.bodies))
within(30, lambda: [box.sh("kill", "-9", str(p)) for p, w in box.jails()])
b.hold = {}
equal("killed: it goes on by itself", (box.idle("killed", 120), box.texts("killed")[-1:]), ("idle", ["all done"]))
b = up.script[MODEL] = Brain()
b.hold = {0: 0.5}
box.say("killed", "Again.")
check("stop: it answers", within(60, lambda: b.bodies))
box.write(S + "/killed/ctl", "stop\n")
equal("stop: it has stopped", box.idle("killed"), "idle")
b.hold = {}
box.say("killed", "Be quick.")
equal("stop: and goes on with the next message", (box.idle("killed"), box.texts("killed")[-1]), ("idle", "quick answer to: Be quick.\n"))
equal("stop: with the talk as it is kept", norm(b.bodies[-1].json), box.told("killed")[:-1])

# ---- a tool that is none, and arguments that are none: the program would go on by itself ----
def strange(c, r):
    said = norm(r.json)
    if [w for who, w in said if who == "result"]:
        return up.stream(c, events("well then", [], 8))
    return up.stream(c, events("hm", [("Bash", {"command": "touch " + gw.dir + "/RAN"}), ("mcp__berthfs__read", {"path": "a.txt"})], 7))


up.script[MODEL] = strange
box.create("strange")
equal("a tool that is none", (box.idle("strange"), box.texts("strange")), ("idle", ["hm", "well then"]))
results = [e for e in box.entries("strange") if e["kind"] == "tool_result"]
equal("is a call that fails, beside one that does not", [(r["error"] if "error" in r else False) for r in results], [True, False])
check("and nothing ran", not os.path.exists(gw.dir + "/RAN"))

# ---- a summary, another model, no login ----
b = up.script[MODEL] = Brain()
box.write(S + "/rounds/ctl", "compact\n")
within(60, lambda: box.status("rounds") == "idle" and b.bodies)
box.say("rounds", "Be quick once more.")
equal("a summary is made, and the talk goes on", (box.idle("rounds"), box.texts("rounds")[-1]), ("idle", "quick answer to: Be quick once more.\n"))
check("without tools it is asked for", b.bodies and not b.bodies[0].json.get("tools"), b.bodies[0].json.get("tools"))
os.unlink(box.login)
box.create("stranger")
box.idle("stranger")
check("without a login it fails in words", "not logged in" in box.status("stranger") and "/login" in box.status("stranger"), box.status("stranger"))
r = box.sh(BERTHFS, "models")
check("and berthfs models says so", "no  claude-code" in r.stdout.decode() and "not logged in" in r.stdout.decode(), r.stdout)
words = box.create("defaulted", model=None)
check("it is no default then", words and "no model is set" in words, words)
box.log_in()
box.write(S + "/stranger/ctl", "retry\n")
equal("once logged in, it goes on", (box.idle("stranger"), box.texts("stranger")[-1:]), ("idle", ["all done"]))
r = box.sh(BERTHFS, "models")
check("berthfs models lists it", "ok  claude-code " in r.stdout.decode(), r.stdout)
words = box.create("defaulted", "Be quick.", model=None)
equal("and it is the default", (words, box.read(S + "/defaulted/settings/model").strip()), (None, "claude-code"))
box.idle("defaulted")
check("not more wait than may", within(20, lambda: len(box.jails()) <= 4), box.jails())
box.write(S + "/defaulted/ctl", "destroy force\n")
sys.exit(peers.failed)
