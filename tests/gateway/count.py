# When the size of the next request decides whether older parts are summed up first, the provider is asked how many tokens
# it has; a guess by bytes does where that cannot matter, or where nobody counts. Everything is real but the provider.
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
from looks import processes
import brains, peers

up, gw = Provider(), Instance()
M, P, S = gw.dir + "/m", gw.dir + "/project", gw.dir + "/m/sessions"
gw.env.update(GIT_CONFIG_GLOBAL=gw.dir + "/gitconfig", GIT_CONFIG_NOSYSTEM="1", LC_ALL="C.UTF-8")
for d in (M, P, gw.dir + "/home", gw.dir + "/config/berthfs"):
    os.makedirs(d, exist_ok=True)
open(gw.dir + "/gitconfig", "w").write("[user]\nname=t\nemail=t@example.org\n")
WINDOW, MOST = 20000, 15000  # a quarter stays free
open(gw.dir + "/config/berthfs/config", "w").write("sandbox = dir\nsandbox.allow-dir = yes\n" + "".join(
    "provider.%s.kind = %s\nprovider.%s.url = %s\nprovider.%s.key = canary\nmodel.%s/stub.window = %d\n" % (n, k, n, up.url, n, n, WINDOW)
    for n, k in (("a", "anthropic"), ("o", "openai"), ("r", "responses"))))


def sh(*argv):
    return subprocess.run(argv, env=gw.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90)


def mount():
    if sh(BERTHFS, "mount", M).returncode:
        check("a mount", False)
        sys.exit(1)


def end():
    sh(BERTHFS, "umount", M)
    sh("umount", "-l", M)
    for p, line in processes(gw.dir):
        try:
            if "tool-daemon" in line or "gateway" in line:
                os.kill(p, signal.SIGKILL)
        except OSError:
            pass


atexit.register(end)


def status(name):
    return read("%s/%s/status" % (S, name)).split("\n")[0]


def settled(name):
    return within(120, lambda: status(name).split(":")[0] in ("idle", "failed")) and status(name)


counts, answer = [], None


def model(c, r):
    if "_tokens" in r.target:
        counts.append(r)
        return answer(c, r)
    plain = r.json.get("tool_choice") == {"type": "none"} or "tools" not in r.json
    return up.stream(c, brains.EVENTS[r.target]("a summary of it" if plain else "an answer", [], 1))


def tells(n):
    return lambda c, r: up.reply(c, 200, json.dumps({"input_tokens": n}).encode())


up.script["stub"] = model

text = lambda size: " ".join("word%06d" % i for i in range(size // 11)) + "\n"


def ask(name, size, how, kind="a"):
    """A short message, then one of `size` bytes: how often the provider counted, and whether the first was summed up."""
    global answer
    answer = how
    del counts[:]
    if not os.path.exists(S + "/" + name):
        write(S + "/new/" + name, "---\nproject: %s\nmodel: %s/stub\n---\nBegin.\n" % (P, kind))
        settled(name)
    write("%s/%s/input" % (S, name), text(size))
    equal(name + ": it is answered", (settled(name), read("%s/%s/wait/reply" % (S, name))), ("idle", "an answer\n"))
    return len(counts), "compacted: from here on" in read("%s/%s/transcript" % (S, name))


sh("sh", "-c", "cd %s && git init -q -b main && echo a >a && git add . && git commit -qm a" % P)
mount()
write(M + "/gateway/keys/canary", KEY)
check("the key is there", within(20, lambda: "canary" in os.listdir(M + "/gateway/keys")))

equal("a guess that cannot be wrong by so much: nobody counts", ask("short", 8000, tells(10 ** 6)), (0, False))
equal("nor where it is too much anyhow", ask("long", 150000, tells(1)), (0, True))
equal("the provider counts, and less than was guessed", ask("less", 76000, tells(MOST)), (1, False))
body = counts[0].json
equal("it is asked for the whole request", (sorted(body), body["model"], brains.norm("/v1/messages", body), len(body["tools"])),
      (["messages", "model", "system", "tools"], "stub", [("user", "Begin.\n"), ("assistant", "an answer"), ("user", text(76000))], 4))
equal("by the gateway's key", counts[0].h.get("x-api-key"), KEY)
equal("or more", ask("more", 44000, tells(MOST + 1)), (1, True))
usage = [l.split("\t") for l in read(S + "/less/usage").splitlines() if "a/stub" in l]
equal("counting is no use of the model", [u[0] for u in usage], ["2"])
rows = gw.ledger()
counted = {r["seq"] for r in rows if r.get("kind") == "decision" and "count_tokens" in json.dumps(r)}
equal("the ledger has it, as free", ([r["nano"] for r in rows if r.get("of") in counted], len(counted)), ([0, 0], 2))

equal("nobody counts: the guess does", ask("none", 76000, lambda c, r: up.reply(c, 404, b'{"error":{"message":"no such page"}}')), (1, True))
check("which the log tells", "could not be counted, its size is guessed" in read(S + "/none/log"), read(S + "/none/log"))
equal("and where that finds room, nothing is summed up", ask("room", 44000, lambda c, r: up.reply(c, 500, b"{}")), (1, False))
equal("an answer without a number", ask("words", 76000, lambda c, r: up.reply(c, 200, b'{"input_tokens":"many"}')), (1, True))
equal("an answer of something else", ask("html", 76000, lambda c, r: up.reply(c, 200, b"<html>" * 100000, [("Content-Type", "text/html")])), (1, True))
for kind in "or":
    equal("Chat Completions does not count, Responses only if the policy lets it: " + kind, ask("other-" + kind, 76000, tells(1), kind), (0, True))
blocked = [r for r in gw.ledger() if "responses/input_tokens" in json.dumps(r)]
equal("without a line for it nobody tries", blocked, [])

write(M + "/gateway/policy", read(M + "/gateway/policy").replace("# route POST /v1/responses/", "route POST /v1/responses/"))
check("a policy that lets Responses count", within(60, lambda: "\nroute POST /v1/responses/input_tokens" in read(M + "/gateway/policy")))
equal("Responses counts, and less than was guessed", ask("r-less", 76000, tells(MOST), "r"), (1, False))
body = counts[0].json
equal("it is asked for what the request says", (counts[0].target, sorted(body), body["model"], brains.norm("/v1/responses", body), len(body["tools"])),
      ("/v1/responses/input_tokens", ["input", "instructions", "model", "tools"], "stub", [("user", "Begin.\n"), ("assistant", "an answer"), ("user", text(76000))], 4))
equal("by the gateway's key, too", counts[0].h.get("authorization"), "Bearer " + KEY)
equal("or more, too", ask("r-more", 44000, tells(MOST + 1), "r"), (1, True))
equal("a server that has no such page", ask("r-none", 76000, lambda c, r: up.reply(c, 404, b"no such page"), "r"), (1, True))
check("is told in the log", "could not be counted, its size is guessed" in read(S + "/r-none/log"), read(S + "/r-none/log"))
rows = gw.ledger()
counted = {r["seq"] for r in rows if r.get("kind") == "decision" and "responses/input_tokens" in json.dumps(r)}
equal("the ledger has that as free, too", ([r["nano"] for r in rows if r.get("of") in counted], len(counted)), ([0, 0, 0], 3))
usage = [l.split("\t") for l in read(S + "/r-less/usage").splitlines() if "r/stub" in l]
equal("and it is no use of the model", [u[0] for u in usage], ["2"])
equal("a change of the policy takes it back", (write(M + "/gateway/policy", read(M + "/gateway/policy").replace("\nroute POST /v1/responses/input", "\n# route POST /v1/responses/input")),
      bool(within(60, lambda: "\nroute POST /v1/responses/input_tokens" not in read(M + "/gateway/policy"))), ask("r-back", 76000, tells(1), "r")), (None, True, (0, True)))

# ---- it never answers ----
def never(c, r):
    c.recv(1)
    return "close"


def hangs(name):
    global answer
    answer = tells(1)
    write(S + "/new/" + name, "---\nproject: %s\nmodel: a/stub\n---\nBegin.\n" % P)
    settled(name)
    answer = never
    del counts[:]
    write("%s/%s/input" % (S, name), text(76000))
    check(name + ": the provider is asked", within(60, lambda: counts))


hangs("slow")
equal("it is not waited for longer than some seconds", (settled("slow"), read(S + "/slow/wait/reply")), ("idle", "an answer\n"))
check("then the guess does", "compacted" in read(S + "/slow/transcript") and "could not be counted" in read(S + "/slow/log"), read(S + "/slow/log"))
hangs("stop")
write(S + "/stop/ctl", "stop\n")
equal("stop ends it", settled("stop"), "idle")
check("and nothing was guessed after it", "compacted" not in read(S + "/stop/transcript") and "could not be counted" not in read(S + "/stop/log"))
hangs("killed")
os.kill(int(re.search(r"^pid (\d+)", read(gw.dir + "/state/berthfs/mount"), re.M).group(1)), signal.SIGKILL)
answer = tells(100)
sh("umount", "-l", M)
mount()
equal("a daemon that was killed asks again", (settled("killed"), read(S + "/killed/wait/reply"), len(counts)), ("idle", "an answer\n", 2))

# ---- it is killed when it has the number, and nobody else knows that ----
sh(BERTHFS, "umount", M)
gw.env["BERTHFS_KILL_AT"] = "compact.counted"
mount()
answer = tells(100)
write(S + "/new/counted", "---\nproject: %s\nmodel: a/stub\n---\nBegin.\n" % P)
settled("counted")
pid = re.search(r"^pid (\d+)", read(gw.dir + "/state/berthfs/mount"), re.M).group(1)
del counts[:], gw.env["BERTHFS_KILL_AT"]
try:
    write(S + "/counted/input", text(76000))
except OSError:
    pass  # it is committed before the daemon dies, but its close may hear of that death
check("it dies there", within(60, lambda: not os.path.exists("/proc/" + pid)))
sh("umount", "-l", M)
mount()
equal("the next one asks once more", (settled("counted"), read(S + "/counted/wait/reply"), len(counts)), ("idle", "an answer\n", 2))
sys.exit(peers.failed)
