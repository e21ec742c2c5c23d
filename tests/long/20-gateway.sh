#!/bin/sh
# A gateway that hangs is replaced; one whose daemon has died ends when no sandbox needs it.
. "$(dirname "$0")/../lib.sh"
start || exit 1
gateway_pid() { sed -n 's/^gateway running pid \([0-9]*\),.*/\1/p' "$M/status"; }
runs() { [ -n "$(gateway_pid)" ]; }
within 10 runs
pid=$(gateway_pid)
kill -STOP "$pid"
printf 'sk-0123456789' >"$M/gateway/keys/x" 2>/dev/null # something that makes the daemon look
check "one that does not answer is ended" within 60 is_gone "$pid"
check "another one takes its place" within 20 runs
contains "events say so" "$(cut -f 5 "$M/events")" "is of no use any more"
pid=$(gateway_pid)
kill -9 "$DAEMON"
within 10 is_gone "$DAEMON"
kill -0 "$pid" && ok "it waits for the next daemon" || not_ok "it waits for the next daemon"
check "and ends when none comes" within 30 is_gone "$pid"
start || exit 1
session s
within 10 runs
pid=$(gateway_pid)
kill -9 "$DAEMON"
within 10 is_gone "$DAEMON"
sleep 25
kill -0 "$pid" && ok "with a sandbox it stays" || not_ok "with a sandbox it stays"
for box in $(sandbox_pids); do [ "$box" = "$pid" ] || kill -9 "$box"; done
check "until that has ended, too" within 30 is_gone "$pid"
