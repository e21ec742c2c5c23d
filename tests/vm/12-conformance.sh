#!/bin/sh
# The conformance suite in a VM. time limit: 400 s
. "$(dirname "$0")/../lib.sh"
XDG_CACHE_HOME=$IMAGES # where the base image is
timeout 380 "$BERTHFS" conformance vm >"$T/out" 2>&1
equal "all cases hold" "$?" 0
grep -v '^ok' "$T/out" | sed 's/^/# /'
check "at least 29 cases" [ "$(grep -c '^ok ' "$T/out")" -ge 29 ]
equal "nothing is left" "$(ls -d "$XDG_STATE_HOME"/berthfs/conformance.* 2>/dev/null)" ""
