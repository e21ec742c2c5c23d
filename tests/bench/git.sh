#!/bin/sh
# Git delivery: a project of 20,000 files and 300 commits, and one of 1 GiB. The figures stand beside their bars; only what
# fails to work counts. KIND=vm: the ship in a VM. time limit: 1800 s
. "$(dirname "$0")/../lib.sh"
[ "${KIND:-dir}" = vm ] && use_vm
now() { date +%s%3N; }
bar() { echo "$1: $2 ms, bar $3 ms; load $(cut -d' ' -f1 /proc/loadavg)"; }

# ---- 20,000 files, 300 commits
git init -q --bare -b main "$T/remote.git"
mkdir -p "$P/.agents" && cd "$P" || exit 1
python3 - <<'END'
import os, random
random.seed(1)
words = [f"{random.randrange(1 << 32):08x}" for _ in range(5000)]
for i in range(20000):
    name = f"d{i % 100}/e{i // 100 % 20}/f{i}"
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w") as f:
        f.write("\n".join(random.choices(words, k=random.randrange(20, 120))) + "\n")
END
echo '{"checks":[{"name":"one","command":"test -e d0"},{"name":"two","command":"git status --porcelain | wc -l"}]}' >.agents/project.json
git add . && git -c gc.auto=0 commit -qm "20,000 files"
python3 - <<'END' | git fast-import --quiet
import random
random.seed(2)
for i in range(300):
    print(f"commit refs/heads/main\ncommitter a <a@x> {1700000000 + i} +0000\ndata 5\nc{i:04}")
    if i == 0:
        print("from refs/heads/main^0")
    for _ in range(40):
        k = random.randrange(20000)
        text = "\n".join(f"{random.randrange(1 << 32):08x}" for _ in range(30))
        print(f"M 644 inline d{k % 100}/e{k // 100 % 20}/f{k}\ndata {len(text)}\n{text}")
END
git reset -q --hard && git -c gc.auto=0 repack -qad && git remote add origin "$T/remote.git" && git push -q -u origin main && cd / || exit 1
note "$(git -C "$P" ls-files | wc -l) files, $(git -C "$P" rev-list --count main) commits, $(du -sm "$P/.git" | cut -f1) MiB"

cat >"$T/work.script" <<'END'
{"text":"nothing yet"}
{"tools":[{"name":"bash","input":{"command":"for i in $(seq 20); do for j in $(seq 40); do k=$((i * 40 + j)); echo $i >>d$((k % 100))/e$((k / 100 % 20))/f$k; done; git commit -qam work$i; done"}}]}
{"text":"20 commits"}
{"tools":[{"name":"bash","input":{"command":"git rebase -q refs/berthfs/base"}}]}
{"text":"SHIP-READY"}
END
start || exit 1
(cd "$P" && printf -- '---\nmodel: script:%s\n---\ngo\n' "$T/work.script" >"$S/new/work")
timeout 900 cat "$S/work/wait/idle" >/dev/null
log_ms() { sed -n "s/^\([^ ]*\) $1.*/\1/p" "$S/work/log" | tail -n 1 | { read -r at && date -d "$at" +%s%3N; }; }
head=$(git -C "$P" rev-parse main)
from=$(now)
echo "$head" | git -C "$P" pack-objects --revs --stdout --thin --delta-base-offset -q | wc -c >"$T/size"
bar "the template's bundle ($(($(cat "$T/size") >> 20)) MiB), as it is packed" $(($(now) - from)) 1000

echo more >>"$S/work/input"
timeout 900 cat "$S/work/wait/idle" >/dev/null
clone=$T/state/berthfs/sandboxes/1/home/project
if [ -d "$clone" ]; then # 20 commits more, that nobody has synced yet
	(
		cd "$clone" && for i in $(seq 20); do
			for j in $(seq 40); do k=$((i * 40 + j)); echo "more $i" >>d$((k % 100))/e$((k / 100 % 20))/f$k; done
			git commit -qam "more$i"
		done
	)
	from=$(now)
	echo sync >"$S/work/ctl" && timeout 100 cat "$S/work/wait/idle" >/dev/null
	bar "sync of 20 commits, with its texts" $(($(now) - from)) 1000
fi
grep -q "20 files\|files changed" "$S/work/changes" || not_ok "the work came home"
from=$(now)
echo sync >"$S/work/ctl" && timeout 100 cat "$S/work/wait/idle" >/dev/null
bar "sync of nothing new, with its texts (diff of $(wc -c <"$S/work/diff") bytes)" $(($(now) - from)) 1000
"$ROOT/build/tests/git_ops" "$P" main "sandbox/$(cat "$S/work/id")" || not_ok "git_ops"

from=$(now)
echo >"$S/work/ship" && timeout 900 cat "$S/work/wait/shipped" >"$T/shipped"
bar "ship, two checks, sandbox ${KIND:-dir}" $(($(now) - from)) 20000
grep -q ^landed "$T/shipped" || not_ok "it lands"

[ "${KIND:-dir}" = dir ] || exit 0

# ---- 1 GiB
git init -q -b main "$T/big" && cd "$T/big" || exit 1
for i in $(seq 64); do head -c 16777216 /dev/urandom >"f$i"; done
git -c core.compression=0 add . && git commit -qm big && cd / || exit 1
printf '{"tools":[{"name":"bash","input":{"command":"echo x >x; head -c 100000000 /dev/urandom >y; git add .; git commit -qm x"}}]}\n{"text":"done"}\n' >"$T/big.script"
rss() { sed -n "s/^$1:[^0-9]*\([0-9]*\).*/\1/p" "/proc/$DAEMON/status"; }
echo 5 >"/proc/$DAEMON/clear_refs"
before=$(rss VmRSS)
(cd "$T/big" && printf -- '---\nmodel: script:%s\n---\ngo\n' "$T/big.script" >"$S/new/big")
from=$(now)
timeout 900 cat "$S/big/wait/idle" >/dev/null
note "cloned, 100 MB more, synced and shown in $(($(now) - from)) ms"
cat "$S/big/files/f7" >/dev/null
[ "$(git -C "$T/big" show "sandbox/$(cat "$S/big/id"):x")" = x ] || not_ok "the work of the large one came home"
echo "a project of 1 GiB: the daemon grew from $before to $(rss VmHWM) KiB at most, bar +65536 KiB; load $(cut -d' ' -f1 /proc/loadavg)"
[ $FAILED = 1 ] || ok "git delivery"
