# A real mount whose sandboxes (KIND: dir or vm) make requests through the gateway: whose token it is and how long it
# lasts, what dies when, and that the key is nowhere but in its one file.
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
from looks import memory
import base64, hashlib

KIND = os.environ.get("KIND", "dir")
SLOW = 240 if KIND == "vm" else 100  # seconds for what has to boot first
CANARY = ("sk-canary-" + base64.b32encode(os.urandom(25)).decode()).encode()
gw = Instance()
provider = Provider()
M, P = gw.dir + "/m", gw.dir + "/project"
if KIND == "vm":
    gw.env["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
gw.env.update(GIT_CONFIG_GLOBAL=gw.dir + "/gitconfig", GIT_CONFIG_NOSYSTEM="1")
for d in (M, P, gw.dir + "/home", gw.dir + "/config/berthfs"):
    os.makedirs(d, exist_ok=True)
open(gw.dir + "/gitconfig", "w").write("[user]\nname=t\nemail=t@example.org\n")
open(gw.dir + "/config/berthfs/config", "w").write("sandbox = %s\nsandbox.allow-dir = yes\nsize = mini\nsandbox.boot-timeout = 120\n" % KIND)


def sh(*argv, **more):
    return subprocess.run(argv, env=gw.env, stdout=gw.log, stderr=gw.log, timeout=90, **more).returncode


sh("sh", "-c", "cd %s && git init -q -b main && echo a >a && git add a && git commit -qm a" % P)


# ---- processes ----

def ours():
    """pid -> command line of every process that names our folder, but this one."""
    found = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open("/proc/%s/cmdline" % p, "rb").read()
            env = open("/proc/%s/environ" % p, "rb").read() if int(p) != os.getpid() else b""
        except OSError:
            continue
        if int(p) != os.getpid() and (gw.dir.encode() in line or gw.dir.encode() in env):
            found[int(p)] = line.replace(b"\0", b" ").decode(errors="replace")
    return found


def sandboxes():
    return [p for p, l in ours().items() if "tool-daemon" in l or "vm-keeper" in l or "qemu-system" in l]


def end():
    sh(BERTHFS, "umount", M)
    for p in ours():
        try:
            os.kill(p, signal.SIGKILL)
        except OSError:
            pass
    if os.path.ismount(M):
        subprocess.run(["umount", "-l", M])
atexit.register(end)


def mount():
    return sh(BERTHFS, "mount", M) == 0


def read(name):
    return open(M + "/" + name).read()


def write(name, text):
    """One write, and what close says."""
    fd = os.open(M + "/" + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(fd, text if isinstance(text, bytes) else text.encode())
        return 0
    except OSError as e:
        return e.errno
    finally:
        os.close(fd)


def daemon_pid():
    return int(re.search(r"^pid (\d+)", read("status"), re.M).group(1))


def gateway_pid():
    m = re.search(r"^gateway running pid (\d+)", read("status"), re.M)
    return int(m.group(1)) if m else 0


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return within(10, lambda: ended(pid))


def ledger():
    return [json.loads(l) for l in read("gateway/ledger").splitlines()]


def tokens():
    """session -> rows of gateway/tokens"""
    rows = {}
    for l in read("gateway/tokens").splitlines():
        w = l.split("\t")
        rows.setdefault(w[0], []).append(w)
    return rows


# ---- sessions: the model is a script of one command after the other ----

class Session:
    def __init__(self, name, command):
        self.name, self.script = name, "%s/script-%s" % (gw.dir, name)
        open(self.script, "w").write("")
        self.add(command)
        os.chdir(P)
        rc = write("sessions/new/" + name, "---\nmodel: script:%s\n---\nrun it\n" % self.script)
        os.chdir("/")
        if rc:
            raise RuntimeError(read("error"))
        self.id = read("sessions/%s/id" % name).strip()

    def add(self, command):
        with open(self.script, "a") as f:
            f.write(json.dumps({"tools": [{"name": "bash", "input": {"command": command, "timeout": 60}}]}) + "\n" + json.dumps({"text": "done"}) + "\n")

    def result(self):
        """Waits for the run's end; output of the last command."""
        subprocess.run(["timeout", str(SLOW), "cat", M + "/sessions/%s/wait/idle" % self.name], stdout=subprocess.DEVNULL)
        rows = [json.loads(l) for l in read("sessions/%s/transcript.jsonl" % self.name).splitlines()]
        return ([json.dumps(r) for r in rows if r["kind"] == "tool_result"] or [read("sessions/%s/log" % self.name)])[-1]

    def run(self, command):
        self.add(command)
        write("sessions/%s/input" % self.name, "again\n")
        return self.result()


ASK = ("curl -sS -m 50 $ANTHROPIC_BASE_URL/v1/messages -H \"x-api-key: $ANTHROPIC_API_KEY\" -H 'content-type: application/json' -d '%s'")
SHOW = "echo TOKEN=$(printf %s \"$ANTHROPIC_API_KEY\" | base64 -w0)."
ORDINARY = ASK % json.dumps(message())
STREAM = ASK % json.dumps(message("claude-slow", stream=True))


def token_in(text):
    m = re.search(r"TOKEN=([A-Za-z0-9+/=]+)\.", text)
    return base64.b64decode(m.group(1)).decode() if m else ""


def short(token):
    return hashlib.sha256(token.encode()).hexdigest()[:8]


started = threading.Event()


def slow(c, r):
    started.set()
    return provider.stream(c, anthropic_events("x" * 2000), pause=0.05)


provider.script["claude-slow"] = slow


def stream_of(session):
    started.clear()
    session.add(STREAM)
    write("sessions/%s/input" % session.name, "stream\n")
    return started.wait(SLOW)


# ---- a key, a policy, two sandboxes ----

check("it mounts", mount())
check("the gateway runs", within(15, gateway_pid))
equal("the key is taken", write("gateway/keys/anthropic", CANARY + b"\n"), 0)
equal("the policy is taken", write("gateway/policy", policy(provider)), 0)
one = Session("one", ORDINARY + "; " + SHOW)
out = one.result()
check("a sandbox asks the model", '\\"type\\": \\"message\\"' in out or "message" in out and provider.requests, out)
equal("the provider got the key", provider.requests and provider.requests[-1].h.get("x-api-key"), CANARY.decode())
first = token_in(out)
check("the sandbox has a token", first.startswith("berth-"), out)
of_one = lambda: [r[1:3] for r in tokens().get(one.id, [])]
within(15, lambda: of_one() == [["sandbox", short(first)]])
equal("gateway/tokens tells of it", of_one(), [["sandbox", short(first)]])
names = one.run("env | cut -d= -f1 | grep -E 'ANTHROPIC|OPENAI|PROXY|proxy' | sort | tr '\\n' ' '")
for want in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "NO_PROXY"):
    check("its environment has " + want, want in names, names)
box = gw.dir + "/run/berthfs/gateway-%s.sock" % one.id
two = None
if KIND == "dir":  # one VM is enough to wait for
    two = Session("two", SHOW)
    second = token_in(two.result())
    check("another sandbox has another token", second.startswith("berth-") and second != first)
    equal("which counts for nothing on the first one's socket", call(box, "POST", "/v1/messages", second, message()).status, 403)

# ---- network
out = one.run("curl -sS -o /dev/null -w '%{http_connect}' https://nothing.test/; true")
check("network none: the proxy refuses", "403" in out, out)
equal("settings/network is taken", write("sessions/one/settings/network", "registries\n"), 0)
check("and holds", within(60, lambda: tokens()[one.id][0][6] == "registries"), tokens())
write("sessions/one/settings/network", "none\n")
check("and back", within(60, lambda: tokens()[one.id][0][6] == "none"), tokens())

# ---- the daemon dies: the sandbox, its token and the gateway stay
pid, gpid = daemon_pid(), gateway_pid()
check("the daemon is killed", kill(pid))
equal("meanwhile the sandbox's token counts", call(box, "POST", "/v1/messages", first, message()).status, 200)
check("the next one mounts", mount() and within(15, gateway_pid))
equal("it has taken over the gateway", gateway_pid(), gpid)
out = one.run(SHOW + "; " + ORDINARY)
equal("the sandbox kept its token", token_in(out), first)
sh(BERTHFS, "umount", M)
check("an unmount leaves the gateway to the sandboxes", not ended(gpid))
check("until the next mount", mount() and within(15, gateway_pid))
equal("which takes it over", gateway_pid(), gpid)

# ---- the gateway dies in the middle of an answer
check("a stream is under way", stream_of(one))
t = time.monotonic()
kill(gpid)
check("another gateway runs soon", within(60, lambda: gateway_pid() not in (0, gpid)))
print("# after %.2f s" % (time.monotonic() - t))
out = one.result()
check("the request under way failed, and was not taken for complete", "curl: (" in out, out[-300:])
check("its outcome is unknown, and the ledger says so", any(r.get("result") == "unknown" for r in ledger()))
out = one.run(ORDINARY + "; " + SHOW)
check("the same token goes on", token_in(out) == first and "message" in out, out[-300:])

# ---- the sandbox goes down, and comes up again
for p in sandboxes():
    if "/%s" % one.id in ours().get(p, ""):
        kill(p)
out = one.run(ORDINARY + "; " + SHOW)
third = token_in(out)
check("up again it has a new token", third.startswith("berth-") and third != first, out[-400:])
equal("and the old one is refused", call(box, "POST", "/v1/messages", first, message()).status, 401)
if two:
    for p in sandboxes():
        if "/%s" % two.id in ours().get(p, ""):
            kill(p)
    check("a sandbox that has died loses its token", within(15, lambda: two.id not in tokens()), tokens())

# ---- where the key is

def holds(pid, what):
    try:
        return any(what in piece for piece in memory(pid))
    except OSError:  # it has ended
        return False


watched = {p: l for p, l in ours().items() if p != gateway_pid()}
check("the look into memory sees what is there", holds(daemon_pid(), M.encode()))
check("the daemon, its helper and a sandbox are looked at", len(watched) >= 3, watched)
equal("no process but the gateway has the key in memory", [l for p, l in watched.items() if holds(p, CANARY)], [])
bad = []
for p in filter(str.isdigit, os.listdir("/proc")):
    for f in ("environ", "cmdline"):
        try:
            if int(p) != os.getpid() and CANARY in open("/proc/%s/%s" % (p, f), "rb").read():
                bad.append((p, f))
        except OSError:
            pass
equal("nor any in its arguments or environment", bad, [])
bad = []
for folder, _, files in os.walk(gw.dir):
    for f in files:
        path = folder + "/" + f
        try:
            if os.path.isfile(path) and not os.path.islink(path) and CANARY in open(path, "rb").read():
                bad.append(path[len(gw.dir):])
        except OSError:
            pass
equal("nor any file, in the mount or of the state, but one", bad, ["/state/berthfs/gateway/keys/anthropic"])
check("neither does the system's log of the daemon", CANARY not in open(gw.dir + "/log", "rb").read())

# ---- the daemon dies between the token and its handing over
if KIND == "dir":
    sh(BERTHFS, "umount", M)
    gw.env["BERTHFS_KILL_AT"] = "gate.minted"
    check("it mounts with a point to die at", mount() and within(15, gateway_pid))
    pid = daemon_pid()
    os.chdir(P)
    open(gw.dir + "/script-four", "w").write(json.dumps({"tools": [{"name": "bash", "input": {"command": SHOW}}]}) + "\n")
    try:
        write("sessions/new/four", "---\nmodel: script:%s/script-four\nnetwork: internet\n---\nrun it\n" % gw.dir)
    except OSError:
        pass  # it is committed before the daemon dies, but its close may hear of that death
    os.chdir("/")
    check("it dies there", within(20, lambda: ended(pid)))
    del gw.env["BERTHFS_KILL_AT"]
    check("the next one goes on", within(10, mount) and within(15, gateway_pid))
    four = Session.__new__(Session)
    four.name = "four"
    out = four.result()
    rows_of_four = lambda: tokens().get(read("sessions/four/id").strip(), [])
    within(15, lambda: [r[2] for r in rows_of_four()] == [short(token_in(out))])
    row = rows_of_four()
    equal("with one token, which is the one inside", [r[2] for r in row], [short(token_in(out))])
    equal("and has the draft's network", [r[6] for r in row], ["internet"])

# ---- destroyed
check("a stream is under way once more", stream_of(one))
before = provider.aborted
t = time.monotonic()
write("sessions/one/ctl", "destroy force\n")
check("destroy cuts it at once", within(60, lambda: provider.aborted > before))
print("# after %.2f s" % (time.monotonic() - t))
check("no token is left of it", within(5, lambda: one.id not in tokens()))
cut = lambda: [r for r in ledger() if r.get("kind") == "outcome"][-1]
check("the ledger says why", within(60, lambda: cut().get("result") == "revoked"), cut())

# ---- keys from elsewhere
if two:
    two.run(SHOW)
    sh(BERTHFS, "umount", M)
    check("an unmount leaves it running for a sandbox", [l for l in ours().values() if " gateway " in l])
else:
    sh(BERTHFS, "umount", M)
for p in sandboxes():
    kill(p)
check("with no sandbox up the gateway has ended, or does so by itself", within(20, lambda: not [l for l in ours().values() if " gateway " in l]), ours())
lent = gw.dir + "/credentials"
os.makedirs(lent)
open(lent + "/openai", "w").write("sk-lent-0123456789\n")
open(gw.dir + "/state/berthfs/gateway/keys/local", "w").write("sk-local-0123456789\n")
os.chmod(gw.dir + "/state/berthfs/gateway/keys/local", 0o644)
gw.env["CREDENTIALS_DIRECTORY"] = lent
check("it mounts with a key that others can read", mount())
check("status says what is wrong with it", within(10, lambda: "chmod 600" in read("status")), read("status"))
os.chmod(gw.dir + "/state/berthfs/gateway/keys/local", 0o600)
check("put right, the gateway comes up", within(20, gateway_pid), read("status"))
equal("with the keys of its folder and of the credentials", sorted(os.listdir(M + "/gateway/keys")), ["anthropic", "local", "openai"])
equal("each with its fingerprint", read("gateway/keys/openai").strip(), "sha256:" + hashlib.sha256(b"sk-lent-0123456789").hexdigest()[:16])
try:
    os.unlink(M + "/gateway/keys/openai")
    check("a lent one cannot be removed", False)
except OSError as e:
    check("a lent one cannot be removed", e.errno == 30, e)
sys.exit(failed)
