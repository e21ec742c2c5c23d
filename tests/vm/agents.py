# A session whose agent is a small program of the project's: it asks a model through the gateway and does what that says.
# The provider is ours; everything else is real. The key must be nowhere in the guest.
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gateway"))
from peers import *
from looks import holders, processes
import base64, peers

CANARY = "sk-canary-" + base64.b32encode(os.urandom(25)).decode()
MARK = base64.b32encode(os.urandom(10)).decode()
SLOW = 300
cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
up, gw = Provider(), Instance()
M, P, S, W = gw.dir + "/m", gw.dir + "/project", gw.dir + "/m/sessions", gw.dir + "/m/sessions/work"
gw.env.update(GIT_CONFIG_GLOBAL=gw.dir + "/gitconfig", GIT_CONFIG_NOSYSTEM="1", XDG_CACHE_HOME=cache, LC_ALL="C.UTF-8")
for d in (M, P, gw.dir + "/home", gw.dir + "/config/berthfs"):
    os.makedirs(d, exist_ok=True)
open(gw.dir + "/gitconfig", "w").write("[user]\nname=t\nemail=t@example.org\n")
open(gw.dir + "/config/berthfs/config", "w").write(
    "sandbox = vm\nsize = mini\nsandbox.boot-timeout = 240\nprovider.p.kind = anthropic\nprovider.p.url = %s\nprovider.p.key = canary\n" % up.url)

AGENT = r'''#!/bin/bash
prompt=$(cat)
ask() { # TOKEN: the status, and the answer's text
	python3 - "$1" "$prompt" <<'END'
import json, os, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
body = {"model": os.environ["BERTHFS_MODEL"], "max_tokens": 100, "messages": [{"role": "user", "content": sys.argv[2]}]}
q = urllib.request.Request(url, json.dumps(body).encode(), {"x-api-key": sys.argv[1], "content-type": "application/json"})
try:
    with urllib.request.urlopen(q, timeout=200) as r:
        print(r.status, json.load(r)["content"][0]["text"])
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())
END
}
told=$(ask "$ANTHROPIC_API_KEY")
bash -c "${told#* }"
echo "status: ${told%% *}"
echo "cards: $(ls /sys/class/net)"
echo "token: ${ANTHROPIC_API_KEY%%-*}"
echo "another token: $(ask "${ANTHROPIC_API_KEY%?????}xxxxx" | head -c 3)"
echo "the provider: $(curl -sS --noproxy '*' -m 5 -o /dev/null PROVIDER 2>&1 | head -c 100)"
keys=$(sudo cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -aE 'sk-[a-z]+-' | wc -l)
files=$(sudo grep -raslE 'sk-[c]anary-[A-Z2-7]{40}' /etc /home /root /run /tmp /var 2>/dev/null | wc -l)
echo "keys: $keys $files"
[[ $prompt == *SHIP-READY* ]] && echo SHIP-READY
exit 0
'''


def sh(*argv):
    return subprocess.run(argv, env=gw.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SLOW)


def end():
    sh(BERTHFS, "umount", M)
    for p, _ in processes(gw.dir):
        try:
            os.kill(p, signal.SIGKILL)
        except OSError:
            pass
    sh("umount", "-l", M)


atexit.register(end)


def status():
    return read(W + "/status").split("\n")[0]


def settled():
    return within(SLOW, lambda: status().split(":")[0] in ("idle", "failed")) and status()


seen = []


def model(c, r):
    seen.append(r)
    n = len(seen)
    told = "echo line-%d >>b && git add b && git commit -qm 'work %d' && echo did-%d%s" % (n, n, n, "; sleep 5" if n == 2 else "")
    return up.reply(c, 200, json.dumps({"type": "message", "role": "assistant", "content": [{"type": "text", "text": told}], "stop_reason": "end_turn",
                                        "usage": {"input_tokens": 10, "output_tokens": 5}}).encode())


up.script["stub"] = model
open(P + "/agent.sh", "w").write(AGENT.replace("PROVIDER", up.url))
sh("sh", "-c", "cd %s && git init -q -b main && git add . && git commit -qm a && git init -q --bare -b main ../remote && git remote add origin ../remote && git push -q origin main" % P)
check("a mount", sh(BERTHFS, "mount", M).returncode == 0)
write(M + "/gateway/keys/canary", CANARY)
check("the key is there", within(60, lambda: "canary" in os.listdir(M + "/gateway/keys")))
begin = time.monotonic()
write(S + "/new/work", "---\nproject: %s\nagent: bash agent.sh\nmodel: p/stub\nnetwork: none\n---\nDo the work, %s.\n" % (P, MARK))
equal("an agent in a VM does its work", settled(), "idle")
print("# %.1f s" % (time.monotonic() - begin))
answer = read(W + "/wait/reply")
for line in ("did-1", "status: 200", "cards: lo", "token: berth", "another token: 401", "keys: 0 0"):
    check("it says %s" % line, line in answer.split("\n"), answer, read(W + "/log"))
check("it does not reach the provider by itself", re.search(r"the provider: curl: \([0-9]+\)", answer), answer)
check("the provider was asked for what the user said", [MARK in json.dumps(r.json) for r in seen] == [True], [r.json for r in seen])
equal("with the key that the gateway has", [r.h.get("x-api-key") for r in seen], [CANARY])
number = read(W + "/id").strip()
git = lambda *a: sh("git", "-C", P, *a).stdout.decode()
equal("its commit is on its branch", git("log", "--format=%s", "sandbox/" + number), "work 1\na\n")
config = read(M + "/config")
write(W + "/input", "More, please.\n")
check("it works on a second message", within(SLOW, lambda: len(seen) == 2))
before = len(read(W + "/log"))
write(M + "/config", config + "idle.pause = 1 s\n")
equal("which is answered", (settled(), "did-2" in read(W + "/wait/reply")), ("idle", True))
log = read(W + "/log")[before:]
check("its VM is not paused while it works", "synced" in log and "paused" not in log.split("synced")[0], log)
check("and is, once it does not", within(SLOW, lambda: "paused" in read(W + "/sandbox")), read(W + "/log"))
write(M + "/config", config)
write(W + "/ship", "\n")
shipped = read(W + "/wait/shipped")
check("it is shipped", shipped.startswith("landed main "), shipped, read(W + "/log"))
sh("git", "-C", P, "fetch", "-q", "origin")
log = git("log", "--format=%s", "origin/main").split()
check("with all that it made", "1" in log and "2" in log and log[-1] == "a", log)
check("the remote has it", "line-1\nline-2\n" in git("show", "origin/main:b"), git("show", "origin/main:b"))
folder = "%s/state/berthfs/sandboxes/%s/" % (gw.dir, number)
looked, found = holders(folder, processes(gw.dir), CANARY.encode())
check("the key is nowhere in the guest's memory or on its disk", looked >= 2 and not found, looked, found)
_, found = holders(folder, processes(gw.dir), MARK.encode())
check("where what the user said is", found)
if peers.failed:
    print("# " + read(W + "/log").replace("\n", "\n# ")[-3000:] + "\n# " + read(W + "/transcript").replace("\n", "\n# ")[-3000:])
sys.exit(peers.failed)
