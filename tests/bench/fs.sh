#!/bin/sh
# Figures of the mounted tree beside their bars (spec, "Numbers to reach"), at 10,000 sessions. The peers run here and now:
# libfuse's own example passthrough_ll (its source comes with libfuse3-dev) over a tmpfs, with cache=never and
# cache=always, and that tmpfs itself. Daemons and clients share one CPU: a wake-up across CPUs costs more on a virtual
# machine than the whole request, and differs from run to run; rates are per second of CPU time of both. The peers' tree is
# as deep as ours. Prints `bench NAME: FIGURE (bar BAR) RATIO`; judges nothing.
. "$(dirname "$0")/../lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
dir=$(dirname "$BERTHFS")/tests
OPS=$dir/fs_ops
N=${N:-10000} # sessions
FEW=1000      # of them, for what opens a file each: the peer keeps a descriptor for every one
CPU=$(($(nproc) - 1))
have python3 && [ -x "$OPS" ] || { skip all "no python3, or no program $OPS"; exit 0; }
pin() { taskset -c $CPU "$@"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", b ? a / b : 0 }'; }
# bench NAME FIGURE UNIT BAR-WORDS [PEER]
bench() { printf 'bench %s: %s%s (bar %s)%s\n' "$1" "$2" "$3" "$4" "${5:+ $(ratio "$2" "$5")}"; }
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }
dirty() { awk '/^Private_Dirty/ { n += $2 } END { print n }' "/proc/$1/smaps_rollup"; }
threads() { ls "/proc/$1/task" | wc -l; }
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
ms() { # ms COMMAND...: how long it takes, the best of three
	for _ in 1 2 3; do
		ms_from=$(date +%s%N)
		"$@" >"$T/out"
		echo $((($(date +%s%N) - ms_from) / 10000))
	done | sort -n | head -n 1 | awk '{ printf "%.1f", $1 / 100 }'
}

# ---- ten thousand sessions: copies of one, in the database
start || exit 1
session one hello || exit 1
creates() { # hundredths of a millisecond, sorted: from the first word to the directory there
	(cd "$P" && for i in $(seq 15); do
		from=$(date +%s%N)
		echo "go on" >"$S/new/$1$i"
		[ -d "$S/$1$i" ] || echo "# no session after its close" >&2
		echo $((($(date +%s%N) - from) / 10000))
		timeout 60 cat "$S/$1$i/wait/idle" >"$T/out" # its preparation is not to be measured with the next one
	done) | sort -n
}
creates alone >"$T/alone"
few=$(dirty "$DAEMON")
stop
python3 - "$T/state/berthfs/berthfs.db" "$N" <<'END' || exit 1
import sqlite3, sys
db, n = sqlite3.connect(sys.argv[1]), int(sys.argv[2])
columns = [r[1] for r in db.execute("PRAGMA table_info(sessions)")]
new = {"id": "c.i", "name": "'crowd'||c.i"}
db.execute("WITH RECURSIVE c(i) AS (SELECT 17 UNION ALL SELECT i+1 FROM c WHERE i<%d) INSERT INTO sessions(%s) SELECT %s "
           "FROM c, sessions s WHERE s.id=1" % (n, ",".join(columns), ",".join(new.get(c, "s." + c) for c in columns)))
db.execute("INSERT OR REPLACE INTO counters VALUES('session',%d)" % n)
db.commit()
END
BERTHFS_=$BERTHFS
printf '#!/bin/sh\nexec taskset -c %s %s "$@"\n' "$CPU" "$BERTHFS_" >"$T/pinned"
chmod +x "$T/pinned"
BERTHFS=$T/pinned
from=$(date +%s%N)
start || exit 1
bench "start with $N sessions" "$((($(date +%s%N) - from) / 1000000))" " ms" "1000 ms"
busy() { # the backend looks at all of them once
	busy_from=$(ticks "$DAEMON")
	sleep 1
	[ $(($(ticks "$DAEMON") - busy_from)) -gt 2 ]
}
n=0
while busy && [ $n -lt 90 ]; do n=$((n + 1)); done
bench "memory with $N sessions" "$(($(dirty "$DAEMON") / 1024))" " MiB" "100 MiB"
bench "memory of each" "$(awk -v a="$(dirty "$DAEMON")" -v b="$few" -v n="$N" 'BEGIN { printf "%.2f", (a - b) / n }')" " KiB" "4 KiB"
cold=$(date +%s%N)
pin ls -l "$S" >"$T/out"
cold=$((($(date +%s%N) - cold) / 1000000))
bench "ls of $N sessions" "$(ms pin ls "$S")" " ms" "100 ms"
bench "ls -l of $N sessions, for the first time" "$cold" " ms" "500 ms"
bench "ls -l of $N sessions, again" "$(ms pin ls -l "$S")" " ms" "500 ms"
bench "memory after that" "$(($(dirty "$DAEMON") / 1024))" " MiB" "100 MiB"

# ---- ours, and the peers
files() { for i in $(seq 17 $((FEW + 16))); do echo "$1/crowd$i/status"; done; }
run() { # run ROOT NAME...: numbers of a tree into the variables NAME_hot, NAME_random...
	for what in stat open; do
		eval "$2_${what}_hot=\$(pin \"$OPS\" $what \"$1/crowd17/status\")"
		eval "$2_${what}_random=\$(pin \"$OPS\" $what \$(files \"$1\"))"
	done
	eval "$2_readdir=\$(pin \"$OPS\" readdir \"$1\")"
}
export DAEMON
run "$S" ours

taskset -a -p -c "0-$CPU" "$DAEMON" >"$T/out" # what it starts, git above all, is not pinned either
creates late >"$T/create"
bench "one more session's create, median of 15" "$(awk '{ a[NR] = $1 } END { printf "%.1f", a[int((NR + 1) / 2)] / 100 }' "$T/create")" " ms" "50 ms"
bench "one more session's create, worst of 15" "$(awk 'END { printf "%.1f", $1 / 100 }' "$T/create")" " ms" "50 ms"
echo "# the first ones, when there were no others: median $(awk '{ a[NR] = $1 } END { printf "%.1f", a[int((NR + 1) / 2)] / 100 }' "$T/alone") ms"
stop
mkdir "$T/tmpfs" "$T/peer"
if ! mount -t tmpfs bench "$T/tmpfs" 2>/dev/null; then
	rmdir "$T/tmpfs"
	mkdir "/dev/shm/berthfs-$$" && ln -s "/dev/shm/berthfs-$$" "$T/tmpfs"
fi
peers_end() {
	grep -q " $T/peer " /proc/self/mountinfo && umount -l "$T/peer"
	umount "$T/tmpfs" 2>/dev/null
	rm -rf "/dev/shm/berthfs-$$"
	finish
}
trap peers_end EXIT
python3 -c 'import os, sys
for i in range(1, int(sys.argv[2]) + 1):
    d = sys.argv[1] + "/sessions/crowd%d" % i
    os.makedirs(d)
    open(d + "/status", "w").write("idle\n")' "$T/tmpfs" "$N"
DAEMON= run "$T/tmpfs/sessions" tmpfs
example=/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c
ulimit -n "$(ulimit -Hn)"
if cc -O2 -D_GNU_SOURCE -I"${example%/*}" "$example" -o "$T/passthrough_ll" $(pkg-config --cflags --libs fuse3) 2>"$T/err"; then
	for cache in never always; do
		pin "$T/passthrough_ll" -s -o "source=$(readlink -f "$T/tmpfs"),cache=$cache" "$T/peer" || break
		DAEMON=$(pgrep -f "^$T/passthrough_ll ")
		run "$T/peer/sessions" "$cache"
		umount "$T/peer"
	done
else
	skip "passthrough_ll" "it does not compile here"
fi
for what in stat_random open_hot open_random readdir; do
	eval "ours=\$ours_$what never=\${never_$what:-} always=\${always_$what:-} tmpfs=\$tmpfs_$what"
	bench "$what" "$ours" "/s" "passthrough_ll without cache, ${never:-?}/s; ratio" "$never"
	echo "# beside its cache=always, $always/s: $(ratio "$ours" "$always"); tmpfs, $tmpfs/s: $(ratio "$ours" "$tmpfs")"
done
bench stat_hot "$ours_stat_hot" "/s" "0.8 of passthrough_ll with cache=always, ${always_stat_hot:-?}/s; ratio" "${always_stat_hot:-0}"
echo "# beside its cache=never, $never_stat_hot/s: $(ratio "$ours_stat_hot" "$never_stat_hot"); tmpfs, $tmpfs_stat_hot/s: $(ratio "$ours_stat_hot" "$tmpfs_stat_hot")"

# ---- watchers and waiters, with a backend that changes at will
rm -rf "$T/state"
mkdir -p "$T/state/berthfs"
BERTHFS=$dir/berthfs-fake
fake() { printf '%s\n' "$@" >"$T/state/berthfs/fake"; }
fake "sessions 60 0"
start || exit 1
"$OPS" latency "$S" 50 >"$T/latency"
read -r p50 p99 <"$T/latency"
bench "change to event, p50" "$p50" " us" "20000 us"
bench "change to event, p99" "$p99" " us" "20000 us"
before=$(rss "$DAEMON") tasks=$(threads "$DAEMON")
mkfifo "$T/go" "$T/said"
"$OPS" block "$S/s/wait/change" 1000 <"$T/go" >"$T/said" &
pid=$!
own $pid
exec 8>"$T/go" 9<"$T/said"
read -r said <&9
bench "1000 blocked readers: memory" "$(($(rss "$DAEMON") - before))" " KiB" "10240 KiB"
bench "1000 blocked readers: threads" "$(($(threads "$DAEMON") - tasks))" "" "0"
from=$(date +%s%N)
echo grow >"$S/s/ctl"
exec 8>&-
wait $pid
bench "1000 blocked readers: all gone" "$((($(date +%s%N) - from) / 1000000))" " ms after" "-"
exec 9<&-
stop
cost() { # cost CHANGES-A-SECOND: milliseconds of CPU in a second, daemon and helpers; a backend's own share is in it
	fake "sessions $N 0" "changes $1 1"
	start || exit 1
	cat "$S"/s/* >"$T/out" 2>&1
	inotifywait -m "$S/s" "$M" >"$T/events" 2>"$T/err" &
	pid=$!
	own $pid
	until grep -q established "$T/err"; do sleep 0.05; done
	who="$DAEMON $(pgrep -P "$DAEMON")"
	for p in $(pgrep -P "$DAEMON"); do who="$who $(pgrep -P "$p")"; done
	a=0 b=0
	for p in $who; do a=$((a + $(ticks "$p"))); done
	sleep 5
	for p in $who; do b=$((b + $(ticks "$p"))); done
	kill $pid
	stop
	echo $(((b - a) * 1000 / $(getconf CLK_TCK) / 5))
}
bench "1000 changes a second: CPU" "$(awk -v n="$(cost 1000)" 'BEGIN { printf "%.1f", n / 10 }')" " %" "10 % of a core"
