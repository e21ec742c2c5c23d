#!/bin/sh
# The conformance suite in a VM and in a container, and in one that dies under it. time limit: 600 s
. "$(dirname "$0")/../lib.sh"
XDG_CACHE_HOME=$IMAGES # where the base image is
for kind in vm container; do
	timeout 280 "$BERTHFS" conformance $kind >"$T/out" 2>&1
	equal "$kind: all cases hold" "$?" 0
	grep -v '^ok' "$T/out" | sed 's/^/# /'
	check "$kind: at least 29 cases" [ "$(grep -c '^ok ' "$T/out")" -ge 29 ]
	equal "$kind: nothing is left" "$(ls -d "$XDG_STATE_HOME"/berthfs/conformance.* 2>/dev/null)" ""
done

has_begun() { grep -q '^ok ' "$T/out"; }
: >"$T/out"
timeout 280 "$BERTHFS" conformance container >"$T/out" 2>&1 &
run=$!
own $run
within 60 has_begun
read -r pid _ <"$(echo "$XDG_STATE_HOME"/berthfs/conformance.*/sandboxes/1/keeper.pid)"
kill -9 "$pid"
wait $run
equal "a container that dies: its exit code" "$?" 70
check "a container that dies: the suite itself does not" grep -q '^container: [0-9]* cases, [1-9][0-9]* failed' "$T/out"
grep '^berthfs' "$T/out" | sed 's/^/# /'
equal "a container that dies: nothing is left" "$(ls -d "$XDG_STATE_HOME"/berthfs/conformance.* 2>/dev/null)" ""
