#!/bin/sh
# stat on a real mount while 50 sessions run scripted turns with tools: p50 and p99 beside the bar, and turns a second.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
for i in $(seq 30); do
	echo '{"text":"a turn that says a few words while it works","tools":[{"name":"bash","input":{"command":"true"}}],"delay_ms":50}'
done >"$T/script"
echo '{"text":"done"}' >>"$T/script"
start || exit 1
for i in $(seq 50); do (cd "$P" && echo go >"$S/new/t$i"); done
python3 - "$S" <<'EOF'
import os, random, sys, time
s = sys.argv[1]
paths = ["%s/t%d/%s" % (s, i, f) for i in range(1, 51) for f in ("status", "transcript", "plan", "usage")]
took = []
end = time.time() + 10
while time.time() < end:
    p = random.choice(paths)
    t = time.perf_counter()
    os.stat(p)
    took.append((time.perf_counter() - t) * 1000)
    time.sleep(0.001)
took.sort()
n = len(took)
print("bench stat while 50 sessions run turns: p50 %.3f ms, p99 %.3f ms (bar 5 ms), worst %.1f ms, %d calls, load %.1f" %
      (took[n // 2], took[n * 99 // 100], took[-1], n, os.getloadavg()[0]))
EOF
calls=$(cat "$S"/t*/usage | awk -F'\t' '$6 ~ /^tool/ || $0 ~ /tool bash/ { n += $1 } END { print n + 0 }')
echo "bench tool calls of them meanwhile: $calls"
