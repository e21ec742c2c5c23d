#!/bin/sh
# What the kernel keeps of names and attributes is never older than the last change. Runs the face with
# tests/unit/fake_backend.c; with and without the helper that makes events.
dir=$(dirname "${BERTHFS:-$(dirname "$0")/../../build/berthfs}")/tests
BERTHFS=$dir/berthfs-fake
. "$(dirname "$0")/../lib.sh"
mkdir -p "$T/state/berthfs"
tell() { while read -r a; do
	case $a in "not ok "*) not_ok "$1: ${a#not ok }" ;; "ok "*) ok "$1: ${a#ok }" ;; *) note "${a#\# }" ;; esac
done <"$T/out"; }
for options in "" "-o nowatch"; do
	echo "sessions 5 0" >"$T/state/berthfs/fake"
	start $options || exit 1
	timeout 60 "$dir/truth" "$S" "${SECONDS_EACH:-5}" >"$T/out"
	tell "${options:-watched}"
	equal "${options:-watched}: what is listed" "$(ls "$S" | grep -v "comes\|renamed" | tr '\n' ' ')" "new s s-1 s-2 s-3 s-4 "
	stop
done

# ---- a reader that takes its time: a short file is as it was when it was opened, byte by byte
start || exit 1
cat >"$T/slowly.py" <<'END'
import os, sys, threading, time
s, begun, done, over = sys.argv[1], 0, 0, False
def grow():
    global begun, done
    while not over:
        begun += 1
        with open(s + "/ctl", "w") as f: f.write("grow\n")
        done += 1
        time.sleep(0.001)
t = threading.Thread(target=grow)
t.start()
while done < 5: time.sleep(0.01)
looks, wrong, end = 0, [], time.monotonic() + 3
while looks < 40 or time.monotonic() < end:
    for name in "status", "plan":
        lo = done
        fd = os.open(s + "/" + name, os.O_RDONLY)
        size = 1 if name == "status" else max(64, os.fstat(fd).st_size // 16)
        text = os.read(fd, size)
        hi = begun
        while True:
            time.sleep(0.0005)
            part = os.read(fd, size)
            text += part
            if not part: break
        os.close(fd)
        n = int(text.split()[1]) if name == "status" else (len(text) - 6) // 10
        looks += 1
        if not lo <= n <= hi or (name == "plan" and text != b"hello\n" + b"123456789\n" * n):
            wrong.append((name, lo, n, hi))
over = True
t.join()
print("# %d looks at %d changes" % (looks, done))
print(("not ok" if wrong else "ok") + " a short file is one picture, however slowly it is read")
for w in wrong[:5]: print("# %s: %d, %d, %d" % w)
END
python3 "$T/slowly.py" "$S/s" >"$T/out"
tell slowly
stop

# ---- it is kept at all
start || exit 1
if have strace && strace -o /dev/null true 2>/dev/null; then
	stat "$S/s/status" >/dev/null
	stat "$S/s/status" >/dev/null
	timeout 60 strace -f -e trace=read,readv,splice -o "$T/trace" -p "$DAEMON" 2>"$T/err" &
	tracer=$!
	own $tracer
	attached() { grep -q attached "$T/err"; }
	within 5 attached
	python3 -c 'import os, sys
for i in range(100): os.stat(sys.argv[1])' "$S/s/status"
	kill $tracer
	wait $tracer 2>/dev/null
	n=$(grep -c "= [0-9][0-9]" "$T/trace")
	check "a hot stat asks nobody" test "$n" -lt 50
else
	skip "a hot stat asks nobody" "no strace"
fi
