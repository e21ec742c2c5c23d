#!/bin/sh
# SIGTERM while a message is being written: what was written is committed as it is, and the rest is refused, so that one
# message never becomes two. The backend is tests/unit/fake_backend.c, which can be told to take its time.
BERTHFS=$(dirname "${BERTHFS:-$(dirname "$0")/../../build/berthfs}")/tests/berthfs-fake
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
start || exit 1
: >"$T/state/berthfs/messages"
echo "message 3000 0" >"$T/state/berthfs/fake"
python3 - "$S/s" "$T/state/berthfs/log" "$DAEMON" "$S/new" >"$T/py" <<'END'
import errno, os, signal, sys, time
session, log, daemon, new = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
def opened(): return os.open(session + "/input", os.O_WRONLY | os.O_APPEND)
def name(fn):
    try: fn(); return "ok"
    except OSError as e: return errno.errorcode[e.errno]
half, fresh, late = opened(), opened(), opened()
draft = os.open(new + "/fresh", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
os.write(draft, b"a draft\n")
os.write(half, "first half, \u00e4".encode()[:-1]) # to the middle of a character
os.kill(daemon, signal.SIGTERM)
end = time.time() + 60
while "finishing" not in open(log).read() and time.time() < end: time.sleep(0.01)
print("rest", name(lambda: os.write(half, b"second half\n")))
print("new", name(lambda: os.write(fresh, b"a new one\n")))
print("nothing", name(lambda: os.close(late)))
print("id", name(lambda: os.read(draft, 100)))
print("close", name(lambda: os.close(half)))
END
check "the daemon ends" within 20 is_gone "$DAEMON"
DAEMON=
equal "the rest of a message that was cut is refused, and its close says so" "$(grep 'rest\|close' "$T/py" | tr '\n' ' ')" \
	"rest ESHUTDOWN close ESHUTDOWN "
equal "a new one is refused" "$(grep new "$T/py")" "new ESHUTDOWN"
equal "a close of what wrote nothing is not" "$(grep nothing "$T/py")" "nothing ok"
equal "what was there is committed, once" "$(cat "$T/state/berthfs/messages" | tr -d '\n' | grep -o '"text":"[^"]*"')" \
	'"text":"first half, "'
equal "a draft is not read back where the id of its session is expected" "$(grep id "$T/py")" "id ESHUTDOWN"
check "and nothing is mounted" sh -c "! grep -q ' $M ' /proc/self/mountinfo"
