# For the tests of the model claude-code: a mount with a gateway whose vendor is a provider of ours, over TLS, and a login
# of the program's own that only it reads.
import atexit, base64, glob, json, os, subprocess, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
import brains, peers

LOGIN = "sk-ant-oat01-canary-" + "x" * 40
MODEL = "claude-sonnet-5"


class Box:
    """program: what claude-code.program is set to."""

    def __init__(self, program, config="", login=True):
        self.gw = gw = Instance()
        self.M, self.P, self.S, self.home = gw.dir + "/m", gw.dir + "/project", gw.dir + "/m/sessions", gw.dir + "/home"
        self.up = Provider(tls=test_ca(gw.dir + "/tls", "api.anthropic.com"))
        gw.env = {k: v for k, v in gw.env.items() if not k.startswith(("ANTHROPIC_", "CLAUDE_"))}
        gw.env.update(GIT_CONFIG_GLOBAL=gw.dir + "/gitconfig", GIT_CONFIG_NOSYSTEM="1", LC_ALL="C.UTF-8", NODE_EXTRA_CA_CERTS=gw.dir + "/tls/ca.pem",
                      SECRET_OF_THE_USER="canary-of-the-environment")
        os.makedirs(self.home + "/.claude")
        self.login = self.home + "/.claude/.credentials.json"
        if login:
            self.log_in()
        os.makedirs(self.M)
        self.sh("git", "config", "--global", "user.name", "T"), self.sh("git", "config", "--global", "user.email", "t@example.com")
        self.sh("git", "init", "-q", "-b", "main", self.P)
        open(self.P + "/a.txt", "w").write("hello\n")
        self.sh("git", "add", ".", cwd=self.P), self.sh("git", "commit", "-qm", "first", cwd=self.P)
        os.makedirs(gw.dir + "/config/berthfs")
        self.config = gw.dir + "/config/berthfs/config"
        open(self.config, "w").write("sandbox = dir\nsandbox.allow-dir = yes\nclaude-code.program = %s\n%s" % (program, config))
        atexit.register(self.end)
        if not self.mount():
            sys.exit(1)
        within(30, lambda: gw.ctl("status", fail=True) is None)
        policy = gw.ctl("policy-get")
        gw.ctl("policy-set", data=(policy + "map api.anthropic.com 127.0.0.1:%d\n" % self.up.port).encode())

    def log_in(self, ends=3600):
        with open(self.login + ".new", "w") as f:
            os.chmod(f.name, 0o600)
            json.dump({"claudeAiOauth": {"accessToken": LOGIN, "refreshToken": "sk-ant-ort01-y", "expiresAt": int(time.time() * 1000) + ends * 1000,
                                         "scopes": ["user:inference", "user:profile"], "subscriptionType": "max"}}, f)
        os.replace(f.name, self.login)  # a program may be about to read it

    def sh(self, *args, **kw):
        return subprocess.run(args, env=self.gw.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, **kw)

    def mount(self):
        r = self.sh(BERTHFS, "mount", self.M)
        if r.returncode:
            print("# " + r.stdout.decode())
        return r.returncode == 0

    def daemon(self):
        return int(re.search(r"^pid (\d+)", open(self.gw.dir + "/state/berthfs/mount").read(), re.M).group(1))

    def kill(self):
        os.kill(self.daemon(), signal.SIGKILL)
        within(20, lambda: not os.path.ismount(self.M))

    def jails(self):
        """Relays that name this instance: (pid, argv)."""
        out = []
        for d in glob.glob("/proc/[0-9]*"):
            try:
                words = open(d + "/cmdline").read().split("\0")
            except OSError:
                continue
            if words[1:3] == ["claude-jail", "run"] and any(self.gw.dir in w for w in words):
                out.append((int(d[6:]), words))
        return out

    def programs(self):
        """Every process of the jails' programs, by their command line."""
        return [d for d in glob.glob("/proc/[0-9]*") if b"stream-json" in self.cmdline(d) and b"claude-jail" not in self.cmdline(d)
                and b"bwrap" not in self.cmdline(d) and self.gw.dir.encode() in self.cgroup(d)]

    def cmdline(self, d):
        try:
            return open(d + "/cmdline", "rb").read()
        except OSError:
            return b""

    def cgroup(self, d):
        try:
            return open(d + "/environ", "rb").read()
        except OSError:
            return b""

    def end(self):
        self.sh(BERTHFS, "umount", self.M)
        self.sh("umount", "-l", self.M)
        for d in os.listdir("/proc"):
            words = self.cmdline("/proc/" + d) if d.isdigit() else b""
            if (b"tool-daemon" in words or b"claude-jail" in words) and self.gw.dir.encode() + b"/" in words:
                os.kill(int(d), signal.SIGKILL)
        self.gw.ctl("stop")

    def read(self, path):
        with open(path) as f:
            return f.read()

    def write(self, path, text):
        with open(path, "a" if path.endswith("input") else "w") as f:
            f.write(text)

    def create(self, name, text="Go.", model="claude-code/" + MODEL):
        """None, or the words of the refusal."""
        try:
            self.write(self.S + "/new/" + name, "---\nproject: %s\n%s---\n%s\n" % (self.P, "model: %s\n" % model if model else "", text))
        except OSError:
            return self.read(self.M + "/error").splitlines()[-1]

    def say(self, name, text):
        self.write("%s/%s/input" % (self.S, name), text + "\n")

    def status(self, name):
        return self.read("%s/%s/status" % (self.S, name)).split("\n")[0].strip()

    def idle(self, name, seconds=120):
        return within(seconds, lambda: self.status(name).split(":")[0] in ("idle", "failed")) and self.status(name)

    def entries(self, name):
        return [json.loads(l) for l in self.read("%s/%s/transcript.jsonl" % (self.S, name)).splitlines()]

    def texts(self, name):
        return [e["text"] for e in self.entries(name) if e["kind"] == "assistant"]

    def told(self, name):
        """The transcript as the provider should have been told it."""
        out = []
        for e in self.entries(name):
            if e["kind"] == "user":
                out.append(("user", e["text"]))
            elif e["kind"] == "assistant":
                out += [("thinking", json.dumps(b["raw"], sort_keys=True)) for b in e.get("replay", {}).get("blocks", []) if "raw" in b]
                if e["text"].strip():
                    out.append(("assistant", e["text"]))
            elif e["kind"] == "tool_call":
                out.append(("call", (e["id"], "mcp__berthfs__" + e["name"], e["input"])))
            elif e["kind"] == "tool_result":
                out.append(("result", (e["id"], e["text"])))
        return out


def norm(body):
    """As brains.norm, without what the program adds of its own: a role of its own, and reminders that stand alone."""
    messages = []
    for m in body["messages"]:
        content = m["content"] if isinstance(m["content"], list) else [{"type": "text", "text": m["content"]}]
        content = [b for b in content if not (b["type"] == "text" and b["text"].startswith("<system-reminder>"))]
        if m["role"] != "system":
            messages.append({"role": m["role"], "content": [{k: v for k, v in b.items() if k != "cache_control"} for b in content]})
    return brains.norm("/v1/messages", {"messages": messages})


count = [0]


def events(text, calls, n, model=MODEL):
    """As Anthropic sends them, whole."""
    for e in brains.anthropic(text, calls, n):
        count[0] += 1
        yield e.replace(b'{"id": "m", ', b'{"id": "msg_%d", "type": "message", "role": "assistant", "model": "%s", "content": [], "stop_reason": null, "stop_sequence": null, '
                        % (count[0], model.encode())).replace(b"sig/%d+=" % n, base64.b64encode(b"%032d" % n))
