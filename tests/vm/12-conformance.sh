#!/bin/sh
# The conformance suite in a VM and in a container. time limit: 600 s
. "$(dirname "$0")/../lib.sh"
XDG_CACHE_HOME=$IMAGES # where the base image is
for kind in vm container; do
	timeout 280 "$BERTHFS" conformance $kind >"$T/out" 2>&1
	equal "$kind: all cases hold" "$?" 0
	grep -v '^ok' "$T/out" | sed 's/^/# /'
	check "$kind: at least 29 cases" [ "$(grep -c '^ok ' "$T/out")" -ge 29 ]
	equal "$kind: nothing is left" "$(ls -d "$XDG_STATE_HOME"/berthfs/conformance.* 2>/dev/null)" ""
done
