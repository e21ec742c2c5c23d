#!/bin/sh
# `berthfs doctor` proves what the gateway promises, and leaves the instance's own alone. time limit: 900 s
. "$(dirname "$0")/../lib.sh"
start || exit 1
runs() { grep -q '^gateway running' "$M/status"; }
within 10 runs
printf 'sk-own-0123456789' >"$M/gateway/keys/anthropic"
echo 'feature url-content' >>"$M/gateway/policy"
within 10 grep -q '"policy changed"' "$M/gateway/ledger" # a moment after the write
heard() { grep -v '"kind":"checkpoint"' "$M/gateway/ledger"; } # one follows after a minute
heard >"$T/before"
mkdir "$T/tmp"
doctor() { TMPDIR=$T/tmp "$BERTHFS" doctor >"$T/doctor"; }
from=$(date +%s)
doctor
gateway_lines=$(sed -n '/^.. *key custody/,$p' "$T/doctor")
equal "every line of it is ok" "$(echo "$gateway_lines" | grep -v '^ok ')" ""
for what in "key swap" "key echo" "deny: token" "deny: sharing" "deny: route" "deny: query" "deny: model" "deny: field" \
	"deny: beta" "deny: tools" "deny: twice" "deny: smuggling" "deny: upgrade" "deny: network" "deny: address" "deny: port" \
	"deny: loopback" "revoked" "deny: limit" "ledger"; do
	contains "it tells of $what" "$gateway_lines" "$what "
done
contains "and of what the own policy has switched on" "$(grep '^ok *policy' "$T/doctor")" "off by default: url-content"
check "in seconds, or on a busy machine in minutes" [ $(($(date +%s) - from)) -le 400 ]
equal "nothing is left of it" "$(ls -A "$T/tmp")" ""
equal "the own ledger has heard nothing" "$(heard | cmp "$T/before" - 2>&1)" ""
equal "and there is the own key alone" "$(ls "$M/gateway/keys")" anthropic
contains "a machine where it cannot run" "$(TMPDIR=$T/nowhere "$BERTHFS" doctor)" "no    gateway"
printf 'route nowhere\n' >"$T/state/berthfs/gateway/policy"
contains "a policy that does not hold" "$(TMPDIR=$T/tmp "$BERTHFS" doctor)" "no    policy       line 1"
