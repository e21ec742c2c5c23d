# A project with lockfiles is set up in a template (KIND: dir, vm or container): npm and pip fetch what they list from stand-ins on
# loopback, by the gateway's proxy, with a token of the build's own; the sessions have it all and no such network.
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from peers import *
import base64, glob, hashlib, http.server, io, shutil, socketserver, tarfile, zipfile

KIND = os.environ.get("KIND", "dir")
WITH = os.environ.get("WITH", "npm pip").split()
SLOW = 300 if KIND == "dir" else 900
if KIND == "dir" and not shutil.which("npm"):
    print("skip templates: npm is not on this machine")
    sys.exit(0)
gw = Instance()
M, P, FILES = gw.dir + "/m", gw.dir + "/project", gw.dir + "/files"
if KIND != "dir":
    gw.env["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
gw.env.update(GIT_CONFIG_GLOBAL=gw.dir + "/gitconfig", GIT_CONFIG_NOSYSTEM="1")
for name in [n for n in gw.env if n.lower().startswith(("npm_config", "pip_"))]:
    del gw.env[name]  # the machine's own settings are not the sandbox's
for d in (M, P, gw.dir + "/home", gw.dir + "/config/berthfs", FILES + "/simple/berthtest"):
    os.makedirs(d, exist_ok=True)
open(gw.dir + "/gitconfig", "w").write("[user]\nname=t\nemail=t@example.org\n")
open(gw.dir + "/config/berthfs/config", "w").write("sandbox = %s\nsandbox.allow-dir = yes\nsize = mini\nsandbox.boot-timeout = 120\n" % KIND)


def sh(*argv, **more):
    return subprocess.run(argv, env=gw.env, stdout=gw.log, stderr=gw.log, timeout=120, **more).returncode


def read(name):
    return open(M + "/" + name).read()


def write(name, text):
    """One write, and what it says."""
    fd = os.open(M + "/" + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(fd, text.encode())
        return 0
    except OSError as e:
        return e.errno
    finally:
        os.close(fd)


def end():
    for s in os.listdir(M + "/sessions") if os.path.ismount(M) else []:
        if s != "new":
            write("sessions/%s/ctl" % s, "destroy force\n")
    sh(BERTHFS, "umount", M)
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(p) != os.getpid() and gw.dir.encode() in open("/proc/%s/cmdline" % p, "rb").read():
                os.kill(int(p), signal.SIGKILL)
        except OSError:
            pass
    if os.path.ismount(M):
        subprocess.run(["umount", "-l", M])
    for note in glob.glob(gw.env["XDG_CACHE_HOME"] + "/berthfs/templates/*/state"):
        if open(note).read() == gw.env["XDG_STATE_HOME"] + "/berthfs\n":
            shutil.rmtree(os.path.dirname(note))  # it may be the user's cache
atexit.register(end)


# ---- package hosts ----
seen = []


class Files(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *a):
        super().__init__(*a, directory=FILES)

    def do_GET(self):
        seen.append((self.headers["Host"], self.path))
        super().do_GET()

    def log_message(self, *a):
        pass


web = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Files)
web.daemon_threads = True
threading.Thread(target=web.serve_forever, daemon=True).start()
with zipfile.ZipFile(FILES + "/simple/berthtest/berthtest-1.0-py3-none-any.whl", "w") as z:
    z.writestr("berthtest.py", "print('by pip')\n")
    z.writestr("berthtest-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: berthtest\nVersion: 1.0\n")
    z.writestr("berthtest-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("berthtest-1.0.dist-info/RECORD", "")
with tarfile.open(FILES + "/berthtest-1.0.0.tgz", "w:gz") as t:
    for name, text in {"package.json": '{"name":"berthtest","version":"1.0.0","main":"index.js"}', "index.js": "console.log('by npm')\n"}.items():
        i = tarfile.TarInfo("package/" + name)
        i.size, i.mode = len(text), 0o644
        t.addfile(i, io.BytesIO(text.encode()))
digest = base64.b64encode(hashlib.sha512(open(FILES + "/berthtest-1.0.0.tgz", "rb").read()).digest()).decode()

# ---- the project ----
if "curl" in WITH:  # the quickest: a script of the project's own
    os.makedirs(P + "/.agents")
    open(P + "/.agents/setup", "w").write("set -eu\nmkdir -p node_modules/berthtest\ncurl -sSf http://npm.test/berthtest-1.0.0.tgz | tar -xz -C node_modules/berthtest --strip-components 1\n")
    open(P + "/.gitignore", "w").write("/node_modules/\n")
app = {"name": "app", "version": "1.0.0", "dependencies": {"berthtest": "1.0.0"}}
lock = {"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": {
    "": app, "node_modules/berthtest": {"version": "1.0.0", "resolved": "http://npm.test/berthtest-1.0.0.tgz", "integrity": "sha512-" + digest}}}
if "npm" in WITH:
    open(P + "/package.json", "w").write(json.dumps(app))
    open(P + "/package-lock.json", "w").write(json.dumps(lock))
if "pip" in WITH:
    open(P + "/requirements.txt", "w").write("--index-url http://index.test/simple\n--trusted-host index.test\nberthtest==1.0\n")
sh("sh", "-c", "cd %s && git init -q -b main && git add . && git commit -qm a" % P)

check("it mounts", sh(BERTHFS, "mount", M) == 0)
within(30, lambda: "gateway running" in read("status"))
provider = Provider()
rules = "egress registries npm.test:80 index.test:80\nmap npm.test 127.0.0.1:%d\nmap index.test 127.0.0.1:%d" % ((web.server_address[1],) * 2)
equal("the policy is taken", write("gateway/policy", policy(provider, rules)), 0)


def session(name, command):
    script = "%s/script-%s" % (gw.dir, name)
    open(script, "w").write(json.dumps({"tools": [{"name": "bash", "input": {"command": command, "timeout": 100}}]}) + "\n" + json.dumps({"text": "done"}) + "\n")
    os.chdir(P)
    rc = write("sessions/new/" + name, "---\nmodel: script:%s\n---\nrun it\n" % script)
    os.chdir("/")
    equal(name + ": it is made", rc, 0)
    return name


def result(name):
    subprocess.run(["timeout", str(SLOW), "cat", M + "/sessions/%s/wait/idle" % name], stdout=subprocess.DEVNULL)
    rows = [json.loads(l) for l in read("sessions/%s/transcript.jsonl" % name).splitlines()]
    return ([r["text"] for r in rows if r["kind"] == "tool_result"] or [read("sessions/%s/log" % name)])[-1]


USE = ("node -e 'require(\"berthtest\")' && " if "npm" in WITH else "cat node_modules/berthtest/index.js && ") + (".venv/bin/python -m berthtest && " if "pip" in WITH else "") + "git status --porcelain && curl -s -o /dev/null -m 20 -w %{http_code} http://index.test/"
names = [session("one", USE), session("two", USE)]
for name in names:
    got = result(name)
    check(name + ": what was installed is there, nothing is uncommitted, and package hosts are out of reach", ("console.log('by npm')\n" if "curl" in WITH else "".join("by %s\n" % w for w in WITH)) + "403" in got, got)
equal("each was fetched once", sorted(p for h, p in seen if p.endswith((".tgz", ".whl"))),
      ["/berthtest-1.0.0.tgz", "/simple/berthtest/berthtest-1.0-py3-none-any.whl"][:len(WITH)])
t = os.listdir(M + "/templates")
equal("there is one template", len(t), 1)
equal("and it is ready", read("templates/%s/status" % t[0]), "ready\n")
log = read("templates/%s/log" % t[0])
check("its log tells of it", (".agents/setup" if "curl" in WITH else "npm ci") in log and ("pip" not in WITH or ("pip install" in log and "berthtest-1.0" in log)), log)
rows = [json.loads(l) for l in read("gateway/ledger").splitlines()]
hosts = {"npm.test"} | ({"index.test"} if "pip" in WITH else set())
check("the ledger has the build under a number of its own", hosts <= {str(r.get("host", r.get("target"))).split(":")[0] for r in rows if str(r.get("session")) == str((1 << 40) + 1)},
      [r for r in rows if "npm.test" in json.dumps(r)][:2])
check("whose token has ended", within(30, lambda: not [l for l in read("gateway/tokens").splitlines() if l.startswith(str((1 << 40) + 1))]))
