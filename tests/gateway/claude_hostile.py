# A hostile program in the place of Claude Code, in the real jail, through a real mount: see claude_fake.py.
from claude_box import *
import shutil

folder = tempfile.mkdtemp(prefix="fake-", dir=os.environ.get("TMPDIR", "/tmp"))
atexit.register(shutil.rmtree, folder, True)
shutil.copy("claude_fake.py", folder + "/claude")
os.chmod(folder + "/claude", 0o755)
os.chmod(folder, 0o755)
box = Box(folder + "/claude", "answer.begin-timeout = 60 s\nanswer.idle-timeout = 15 s\nretry.limit = 1 s\n")
S, gw = box.S, box.gw
r = box.sh(BERTHFS, "models")
check("its words are cleaned before they are shown", b"ok  claude-code" in r.stdout and b"\x1b" not in r.stdout, r.stdout)

# what it does; what the session comes to; words in the status or the last answer
CASES = [
    ("well", "idle", "well"),
    ("garbage", "idle", "sense at last"),
    ("asks", "idle", "asked enough"),
    ("twice", "idle", "the first"),
    ("deep", "idle", "found"),
    ("calls", "idle", "after the tool"),
    ("flood", "failed", "prints without end"),  # or, on a slow machine, only by its retries: see below
    ("long-line", "failed", "a line of more than"),
    ("own-tools", "failed", 'a tool of its own that cannot be turned off, "Bash"'),
    ("no-tools", "failed", "does not take our tools"),
    ("runs", "failed", "tries to run tools"),
    ("may-i", "failed", "tries to run tools"),
    ("refuses", "failed", "cannot be used as a model"),
    ("dies-first", "failed", "no such thing here"),
    ("dies", "failed", "has ended"),
    ("hangs", "failed", "stalled"),
    ("error", "failed", "bad  [31m news"),
]
for how, _, _ in CASES:
    words = box.create(how, model="claude-code/" + how)
    check("%s: a session is made" % how, not words, words)
for how, state, words in CASES:
    got = str(box.idle(how, 400))
    text = got if state == "failed" else (box.texts(how) or [""])[-1]
    fits = words in text or (how == "flood" and "retry.limit is reached" in text)
    check("%s: %s, %s" % (how, state, words), got.split(":")[0] == state and fits, got, text)
ran = subprocess.run(["find", gw.dir, "-name", "ran", "-not", "-path", box.M + "/*"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode().split()
equal("nothing has run but the one call that is one", [open(f).read() for f in ran], ["ran\n"])
results = [e for e in box.entries("calls") if e["kind"] == "tool_result"]
check("the others are told off", len(results) == 4 and [bool(e.get("error")) for e in results] == [False, True, True, True], results)

# ---- what it sees ----
box.create("looks", model="claude-code/looks")
box.idle("looks", 120)
found = json.loads(box.texts("looks")[-1])
for what, got in found.items():
    if what.startswith(("write ", "dial ")):
        equal(what, got, "no")
    elif what.startswith("ask CONNECT example.org") or what.startswith(("ask CONNECT api.anthropic.com:22", "ask CONNECT x:443")):
        equal(what + ": by the gateway", got, "HTTP/1.1 403")
    elif what.startswith("ask "):
        equal(what + ": not carried", got, "")
equal("it sees no file of others", [found[p] for p in found if p.startswith("/")], ["FileNotFoundError"] * 5)
equal("no secret in its environment", found["environment"], [])
check("and no process but its own", found["processes"] <= 4, found["processes"])
rows = [r for r in gw.ledger() if r.get("kind") == "decision" or r.get("method") == "CONNECT"]
equal("what it asked of the gateway is in the ledger, refused", sorted({r.get("rule") for r in rows if r.get("verdict") != "allowed"}), ["egress.vendor"])
within(30, lambda: len(box.jails()) <= 4)
check("no more wait than may", len(box.jails()) <= 4, box.jails())
check("a flood leaves the daemon small", int(re.search(r"VmRSS:\s+(\d+)", open("/proc/%d/status" % box.daemon()).read()).group(1)) < 400000)
before = {p for p, _ in box.jails()}
box.create("ends", model="claude-code/well")
box.idle("ends")
new = {p for p, _ in box.jails()} - before
box.write(S + "/ends/ctl", "destroy force\n")
check("one ends with its session", new and within(20, lambda: not new & {p for p, _ in box.jails()}), new)
box.sh(BERTHFS, "umount", box.M)
check("with the daemon all of them end", within(20, lambda: not box.jails()), box.jails())
sys.exit(peers.failed)
