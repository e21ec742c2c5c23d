# Sessions whose work is done by an agent of its own in the sandbox (KIND: dir, container or vm): the real ones from npm (AGENTS,
# installed in CLIENTS), through a real mount and a real gateway. The provider is ours.
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
from looks import holders, processes
from shopper import Shopper, tools
import base64, http.server, socketserver, tarfile

KIND = os.environ.get("KIND", "dir")
AGENTS = os.environ.get("AGENTS", "claude opencode codex pi").split()
CLIENTS = os.environ["CLIENTS"]
SLOW = int(os.environ.get("SLOW", 600))
CANARY = "sk-canary-" + base64.b32encode(os.urandom(25)).decode()
up, gw = Provider(), Instance()
M, P, S = gw.dir + "/m", gw.dir + "/project", gw.dir + "/m/sessions"
INSIDE = KIND != "dir"  # what it runs has to be put into it
if INSIDE:
    gw.env["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
gw.env.update(GIT_CONFIG_GLOBAL=gw.dir + "/gitconfig", GIT_CONFIG_NOSYSTEM="1", PATH=CLIENTS + "/bin:" + os.environ["PATH"])
for d in (M, P, gw.dir + "/home", gw.dir + "/config/berthfs"):
    os.makedirs(d, exist_ok=True)
open(gw.dir + "/gitconfig", "w").write("[user]\nname=t\nemail=t@example.org\n")
open(gw.dir + "/config/berthfs/config", "w").write("sandbox = %s\nsandbox.allow-dir = yes\nsize = small\nsandbox.boot-timeout = 240\n" % KIND + "".join(
    "provider.%s.kind = %s\nprovider.%s.url = %s\nprovider.%s.key = canary\n" % (n, k, n, up.url, n) for n, k in (("a", "anthropic"), ("o", "openai"), ("r", "responses"))))


def sh(*argv, **more):
    return subprocess.run(argv, env=gw.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SLOW, **more)


sh("sh", "-c", "cd %s && git init -q -b main && echo a >a && echo 'Speak softly.' >AGENTS.md && git add . && git commit -qm a" % P)


def end():
    sh(BERTHFS, "umount", M)
    for p, _ in processes(gw.dir):
        try:
            os.kill(p, signal.SIGKILL)
        except OSError:
            pass
    if os.path.ismount(M):
        subprocess.run(["umount", "-l", M])
atexit.register(end)


def status(name):
    return read("%s/%s/status" % (S, name)).split("\n")[0]


def entries(name):
    return [json.loads(l) for l in read("%s/%s/transcript.jsonl" % (S, name)).splitlines()]


def settled(name):
    return within(SLOW, lambda: status(name).split(":")[0] in ("idle", "failed")) and status(name)


def words(body):
    """All that a request's conversation says."""
    return json.dumps(body.get("messages", body.get("input")))


MODELS = {"claude": "a/stub-claude", "opencode": "o/stub-opencode", "codex": "r/stub-codex", "pi": "a/stub-pi"}
COMMIT = "echo line >>b && git add b && git commit -qm 'work %d' && echo told-$((40+%d))"


CARRIED = os.environ.get("CARRIED", "").split()  # agents whose conversations are looked at over restore and `from`
KILLED = os.environ.get("KILLED", "").split()  # agents below which the daemon is killed, and which are stopped
PROGRAMS = gw.dir + "/programs"
PI = "node_modules/@earendil-works/pi-coding-agent/dist/cli.js"


class Held:
    """A brain whose answers wait, once hold() was said, until each is let go."""

    def __init__(self, brain):
        self.brain, self.on, self.asked, self.go = brain, False, 0, threading.Semaphore(0)

    def __call__(self, c, r):
        if self.on and tools(r.json):
            self.asked += 1
            self.go.acquire(timeout=SLOW)
        return self.brain(c, r)


class Programs(http.server.SimpleHTTPRequestHandler):
    """Where a sandbox without a network card gets a program from: through the gateway, by a name that the policy maps here."""

    def __init__(self, *a):
        super().__init__(*a, directory=PROGRAMS)

    def log_message(self, *a):
        pass


def pack_pi(path):
    """What pi needs as one file: this machine's Node, and the packages but for other agents' programs."""
    def wanted(t):
        n = t.name.split("/")
        return None if t.name.endswith((".map", ".ts", ".md", ".exe")) or any(x.startswith(("claude-", "opencode-")) for x in n[1:3]) or n[1:3] == ["@openai", "codex"] else t
    with tarfile.open(path, "w") as tar:
        tar.add(CLIENTS + "/node_modules", "node_modules", filter=wanted)
        tar.add(subprocess.check_output(["node", "-p", "process.execPath"], text=True).strip(), "node")


def serve_programs():
    os.mkdir(PROGRAMS)
    for f in os.listdir(CLIENTS + "/bin"):
        os.symlink(CLIENTS + "/bin/" + f, PROGRAMS + "/" + f)
    if "pi" in AGENTS:
        pack_pi(PROGRAMS + "/pi.tar")
    s = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Programs)
    s.daemon_threads = True
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return s.server_address[1]


def install(name):
    """The session's sandbox with the program in it, by a command of the session's own engine."""
    script = gw.dir + "/install"
    get = "curl -sSf -o /tmp/p http://programs.test/%s; " % name
    if name == "pi":
        get = "curl -sSf http://programs.test/pi.tar | $root tar -C /opt -x; printf '#!/bin/sh\\nexec /opt/node /opt/%s \"$@\"\\n' >/tmp/p; " % PI
    command = ("set -e; root=sudo; [ -w /usr/local/bin ] && root=; sed -n 's/^ *\\([^ ]*\\):.*/\\1/p' /proc/net/dev; " + get +
               "chmod +x /tmp/p; $root mv /tmp/p /usr/local/bin/%s; %s --version" % (name, name))
    open(script, "w").write(json.dumps({"tools": [{"name": "bash", "input": {"command": command}}]}) + "\n" + '{"text":"installed"}\n')
    begin = time.monotonic()
    write(S + "/new/" + name, "---\nproject: %s\nmodel: script:%s\nnetwork: registries\n---\nInstall %s.\n" % (P, script, name))
    equal(name + ": it is installed", settled(name), "idle")
    given = next((x for x in entries(name) if x["kind"] == "tool_result"), {"error": True, "text": ""})
    check(name + ": with no network card", not given["error"] and given["text"].startswith("lo\n"), given)
    print("# %s: %.1f s to boot and install" % (name, time.monotonic() - begin))
    write("%s/%s/settings/network" % (S, name), "none\n")
    write("%s/%s/settings/model" % (S, name), MODELS[name] + "\n")
    write("%s/%s/settings/agent" % (S, name), name + "\n")


def hidden(name):
    """The key is not in the guest: neither in its memory nor on its disk, as the host sees them."""
    n = read("%s/%s/id" % (S, name)).strip()
    looked, found = holders("%s/state/berthfs/sandboxes/%s/" % (gw.dir, n), processes(gw.dir), CANARY.encode())
    check(name + ": the key is nowhere in the guest", looked >= 2 and not found, looked, found)


def agent(name):
    model = MODELS[name]
    brain = Shopper(up, COMMIT % (1, 2), "It says: %s")
    held = Held(brain)
    up.script[model[2:]] = lambda c, r: (up.usual if "count_tokens" in r.target else held)(c, r)
    begin = time.monotonic()
    skip, text = 0, "Do the work, word-%s-one.\n" % name
    if INSIDE:
        install(name)
        begin, skip = time.monotonic(), len(entries(name))
        write("%s/%s/input" % (S, name), text)
    else:
        write(S + "/new/" + name, "---\nproject: %s\nagent: %s\nmodel: %s\n---\n%s" % (P, name, model, text))
    equal(name + ": it works and rests", settled(name), "idle")
    print("# %s: %.1f s from the draft to the answer" % (name, time.monotonic() - begin))
    e = entries(name)[skip:]
    kinds = [x["kind"] for x in e]
    equal(name + ": message, text, call, result, answer", kinds, ["user", "assistant", "tool_call", "tool_result", "assistant"])
    if kinds != ["user", "assistant", "tool_call", "tool_result", "assistant"]:
        for x in e:
            print("# %r" % (x,))
        print("# " + read("%s/%s/log" % (S, name)).replace("\n", "\n# "))
        return
    check(name + ": as they were", e[1]["text"] == "I look." and "git commit" in json.dumps(e[2]["input"]) and "told-42" in e[3]["text"] and not e[3]["error"] and "told-42" in e[4]["text"], e)
    check(name + ": the answer", "It says:" in read("%s/%s/wait/reply" % (S, name)))
    n = read("%s/%s/id" % (S, name)).strip()
    equal(name + ": its commit is on its branch", sh("git", "-C", P, "log", "--format=%s", "sandbox/" + n).stdout.decode(), "work 1\na\n")
    rows = [l.split("\t") for l in read("%s/%s/usage" % (S, name)).splitlines()]
    row = next((r for r in rows if r[5] == model), ["0", "0", "0"])
    check(name + ": usage", int(row[0]) >= 1 and int(row[1]) >= 200 and int(row[2]) >= 14 and any(r[5].startswith("tool ") for r in rows), rows)
    first = words(brain.seen[-1][1]) + json.dumps(brain.seen[-1][1].get("system", "")) + json.dumps(brain.seen[-1][1].get("instructions", ""))
    check(name + ": it is told what holds here, and AGENTS.md", "```plan" in first.replace("\\n", "\n") and "Speak softly." in first, first[:3000])

    def follow(text, k, what, session=name, without=(), begin=False):
        """Another message: what its conversation says then has all that was said before, and nothing of `without`."""
        brain.command, brain.mark, before = COMMIT % (k, k + 1), "told-%d" % (40 + k + 1), len(brain.seen)
        if begin:
            write("%s/new/%s" % (S, session), "---\nfrom: %s\n---\n%s\n" % (name, text))
        else:
            write("%s/%s/input" % (S, session), text + "\n")
        equal("%s: %s" % (name, what), settled(session), "idle")
        said = words(brain.seen[-1][1])
        check("%s: %s: it remembers" % (name, what), "word-%s-one" % name in said and text in said and "told-42" in said and len(brain.seen) > before,
              said[-3000:], read("%s/%s/log" % (S, session)))
        check("%s: %s: and nothing else" % (name, what), not [w for w in without if w in said], without, said[-3000:])
        check("%s: %s: and is told what holds once" % (name, what), said.count("```plan") == 1, said.count("```plan"))
        check("%s: %s: the answer" % (name, what), "told-%d" % (40 + k + 1) in read("%s/%s/wait/reply" % (S, session)), entries(session)[-3:])
        return said
    follow("Go on, word-two.", 2, "a second message")
    if KIND == "vm":
        return hidden(name)
    write("%s/%s/ctl" % (S, name), "down\n")
    check(name + ": its sandbox goes down", within(SLOW, lambda: " down" in read("%s/%s/sandbox" % (S, name))))
    follow("And on, word-three.", 3, "after its sandbox was down")

    if name in CARRIED:
        carried(name, follow)
    if name in KILLED:
        killed(name, brain, held)
        follow("Once more, word-nine.", 9, "after it was stopped")


def carried(name, follow):
    """Its conversation goes where the disk goes: back, over to another session, and forth again."""
    def ctl(verb, log):
        write("%s/%s/ctl" % (S, name), verb + "\n")
        check("%s: %s" % (name, verb), within(SLOW, lambda: log in read("%s/%s/log" % (S, name))) and within(SLOW, lambda: status(name) in ("idle", "down")), read("%s/%s/log" % (S, name)))
    ctl("snapshot", "snapshot 1: ")
    follow("Then, word-four.", 4, "after a snapshot")
    ctl("restore 1", "restored snapshot 1")
    said = follow("Instead, word-five.", 5, "after a restore", without=["word-four", "told-45"])
    check(name + ": it has what was said before the snapshot", "word-two" in said and "word-three" in said, said)
    if INSIDE:  # elsewhere its folder is another one, by which some of them know their conversations
        said = follow("Beside it, word-six.", 6, "a session that begins as it", session=name + "-2", without=["word-four"], begin=True)
        check(name + ": it has all that was said there", "word-three" in said and "word-five" in said and "told-46" in said, said)
        n = read("%s/%s/id" % (S, name + "-2")).strip()
        log = sh("git", "-C", P, "log", "--format=%s", "sandbox/" + n).stdout.decode()
        equal(name + ": and its work", log, "work 6\nwork 5\nwork 3\nwork 2\nwork 1\na\n")
    ctl("restore 2", "restored snapshot 2")
    said = follow("At last, word-seven.", 7, "after it went forth again", without=["word-five", "word-six"])
    check(name + ": it has what was undone", "word-four" in said and "told-45" in said, said)


def die(what):
    pid = int(re.search(r"^pid (\d+)", read(gw.dir + "/state/berthfs/mount"), re.M).group(1))
    os.kill(pid, signal.SIGKILL)
    check(what, within(SLOW, lambda: not os.path.exists("/proc/%d" % pid)) and sh(BERTHFS, "mount", M).returncode == 0)


def killed(name, brain, held):
    """The daemon dies while the agent waits for the model, twice in one prompt: it works on, and runs once. Then it is stopped."""
    before = len(entries(name))
    brain.command, brain.mark = "echo ran >>ran && git add ran && " + COMMIT % (8, 9), "told-49"
    held.on = True
    write("%s/%s/input" % (S, name), "Through it all, word-eight.\n")
    for k in (1, 2):
        check("%s: it asks the model, %d" % (name, k), within(SLOW, lambda: held.asked >= k), status(name), read("%s/%s/log" % (S, name)))
        die("%s: the daemon is killed meanwhile, and there again" % name)
        held.go.release()
    equal(name + ": it works through that", settled(name), "idle")
    held.on = False
    e = entries(name)[before:]
    equal(name + ": all that it said is there, once", [x["kind"] for x in e], ["user", "assistant", "tool_call", "tool_result", "assistant"])
    equal(name + ": the model was asked twice", held.asked, 2)
    check(name + ": the answer is there", "told-49" in read("%s/%s/wait/reply" % (S, name)), e)
    n = read("%s/%s/id" % (S, name)).strip()
    equal(name + ": its command ran once", sh("git", "-C", P, "show", "sandbox/%s:ran" % n).stdout.decode(), "ran\n")

    ticks = "%s/state/berthfs/sandboxes/%s/%s/project/ticks" % (gw.dir, n, "root/home/agent" if INSIDE else "home")
    brain.command, brain.mark, before = "while echo tick >>ticks; do sleep 0.2; done", "never", len(entries(name))
    write("%s/%s/input" % (S, name), "For ever, word-stop.\n")
    check(name + ": it runs a command without an end", within(SLOW, lambda: os.path.exists(ticks)), status(name))
    write("%s/%s/ctl" % (S, name), "stop\n")
    equal(name + ": stopped", settled(name), "idle")
    e = entries(name)[before:]
    kinds = [x["kind"] for x in e]
    told = name != "opencode"  # which tells of a call when it has ended
    check(name + ": said so, and the call has a result", "stopped by the user" in json.dumps(e) and kinds.count("tool_call") == kinds.count("tool_result") >= told, e)
    size = os.path.getsize(ticks)
    time.sleep(1)
    equal(name + ": and its command has ended", os.path.getsize(ticks), size)
    os.unlink(ticks)


check("a mount", sh(BERTHFS, "mount", M).returncode == 0)
write(M + "/gateway/keys/canary", CANARY)
# Others that the policy lets serve models of these names, and that come first: their keys must not be used.
write(M + "/gateway/keys/other", "sk-of-the-others")
write(M + "/gateway/policy", "".join("provider other-%s %s %s key other\nmodel other-%s stub-*\n" % (k, k, up.url, k) for k in ("anthropic", "openai", "responses")) + read(M + "/gateway/policy"))
if INSIDE:
    programs = serve_programs()
    write(M + "/gateway/policy", read(M + "/gateway/policy") + "egress registries programs.test:80\nmap programs.test 127.0.0.1:%d\n" % programs)
check("the key is there", within(20, lambda: "canary" in os.listdir(M + "/gateway/keys")))
for a in AGENTS:
    agent(a)
check("the provider saw the key alone", {CANARY in str(r.headers) for r in up.requests} == {True})
if failed:
    for name in os.listdir(S):
        if name != "new":
            print("# %s: %s" % (name, status(name)) + "\n# " + read("%s/%s/log" % (S, name)).replace("\n", "\n# ")[-3000:])
sys.exit(failed)
