#!/bin/sh
# `berthfs conformance KIND`: all cases hold, a kind that cannot be made is refused in words, a sandbox that dies is no
# success, and nothing is left of a run, however it ended. time limit: 600 s
. "$(dirname "$0")/../lib.sh"

runs() { timeout 200 "$BERTHFS" conformance "$1" >"$T/out" 2>&1; }
# What is left of runs: folders, and processes that name them.
left() {
	ls -d "$XDG_STATE_HOME"/berthfs/conformance.* 2>/dev/null
	for dir in /proc/[0-9]*; do
		case $({ tr '\0' ' ' <"$dir/cmdline"; } 2>/dev/null) in
		*" tool-daemon "*"$T/"*) echo "${dir#/proc/}" ;;
		esac
	done
}
nothing_left() { [ -z "$(left)" ]; }
something() { [ -n "$(left)" ]; }

for kind in dir host; do
	check "$kind: it succeeds" runs $kind
	grep '^not ok\|^berthfs' "$T/out" | sed 's/^/# /'
	check "$kind: at least 29 cases" [ "$(grep -c '^ok ' "$T/out")" -ge 29 ]
	contains "$kind: the total" "$(tail -n 1 "$T/out")" "$kind: $(grep -c '^ok \|^skip ' "$T/out") cases, 0 failed"
	check "$kind: each with its time" [ "$(grep -c '^ok .* ([0-9.]* ms)$' "$T/out")" = "$(grep -c '^ok ' "$T/out")" ]
	check "$kind: nothing is left" within 10 nothing_left
done

"$BERTHFS" conformance moon >"$T/out" 2>&1
equal "an unknown kind" "$?" 69
contains "in words" "$(cat "$T/out")" 'no kind of sandbox called "moon"'
"$BERTHFS" conformance >"$T/out" 2>&1
equal "no kind" "$?" 64

# ---- told to end, killed, and a sandbox that dies under it
has_begun() { grep -q '^ok ' "$T/out"; }
"$BERTHFS" conformance dir >"$T/out" 2>&1 &
run=$!
own $run
within 60 has_begun
kill -TERM $run
wait $run
equal "told to end: its exit code" "$?" 143
check "told to end: nothing is left" within 30 nothing_left

: >"$T/out"
"$BERTHFS" conformance dir >"$T/out" 2>&1 &
run=$!
own $run
within 60 has_begun
kill -9 $run
wait $run 2>/dev/null
check "killed: its sandbox is there" something
check "the next run takes it away" runs dir
check "and leaves nothing itself" within 30 nothing_left

: >"$T/out"
"$BERTHFS" conformance dir >"$T/out" 2>&1 &
run=$!
own $run
within 60 has_begun
pid=$(cat "$XDG_STATE_HOME"/berthfs/conformance.*/sandboxes/1/tools.pid)
kill -9 "$pid"
wait $run
equal "a sandbox that dies: its exit code" "$?" 70
check "a sandbox that dies: cases have failed" grep -q '^not ok' "$T/out"
check "a sandbox that dies: the suite itself does not" grep -q '^dir: [0-9]* cases, [1-9][0-9]* failed' "$T/out"
grep '^berthfs' "$T/out" | sed 's/^/# /'
check "a sandbox that dies: nothing is left" within 30 nothing_left
