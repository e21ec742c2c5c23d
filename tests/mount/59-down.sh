#!/bin/sh
# `down`: the sandbox stops, its token ends, its disk stays; whatever needs it next starts it again.
. "$(dirname "$0")/../lib.sh"
cat >"$T/script" <<'END'
{"tools":[{"name":"bash","input":{"command":"echo kept >~/mark; (setsid sleep 1000 >/dev/null 2>&1 &); echo done"}}]}
{"text":"first"}
{"tools":[{"name":"bash","input":{"command":"cat ~/mark; echo \"key ${ANTHROPIC_API_KEY:+is set}\""}}]}
{"text":"second"}
{"tools":[{"name":"bash","input":{"command":"sleep 300"}}]}
{"text":"third"}
END
start || exit 1
session s || exit 1
tokens() { cut -f1,2 "$M/gateway/tokens" | tr '\t\n' ' ;'; }
no_token() { [ -z "$(tokens)" ]; }
a_token() { [ "$(tokens)" = "1 sandbox;" ]; }
check "it has a token" within 15 a_token
old=$(cut -f3 "$M/gateway/tokens")
echo down >"$S/s/ctl"
equal "wait/idle ends with it" "$(timeout 60 cat "$S/s/wait/idle")" down
equal "sandbox" "$(cat "$S/s/sandbox")" "dir down"
equal "no process of it" "$(sandbox_pids)" ""
check "its token has ended" within 10 no_token
contains "root status counts it" "$(cat "$M/status")" "down 1"
echo down >"$S/s/ctl"
equal "twice is fine" "$(timeout 60 cat "$S/s/wait/idle")" down
check "its disk stays" test -s "$T/state/berthfs/sandboxes/1/home/mark"

# ---- over a restart, and up again
stop && start || exit 1
equal "a restart wakes nothing" "$(cat "$S/s/status"; cat "$S/s/sandbox"; sandbox_pids)" "down
dir down"
echo more >>"$S/s/input"
equal "a message wakes it" "$(timeout 60 cat "$S/s/wait/idle")" idle
contains "what was there is there" "$(cat "$S/s/transcript")" "kept
key is set"
check "with a token" within 15 a_token
other() { [ "$(cut -f3 "$M/gateway/tokens")" != "$old" ]; }
check "a new one" within 15 other
echo down >"$S/s/ctl"
timeout 60 cat "$S/s/wait/idle" >/dev/null
echo sync >"$S/s/ctl"
equal "sync wakes it, too" "$(timeout 60 cat "$S/s/wait/idle")" idle

# ---- not while it works
echo again >>"$S/s/input"
within 20 grep -q '^running bash' "$S/s/status"
equal "while a command runs: EBUSY" "$(errno_of sh -c "echo down | dd of=$S/s/ctl conv=notrunc")" EBUSY
contains "in words" "$(cat "$S/s/error")" "stop"
echo stop >"$S/s/ctl"
timeout 60 cat "$S/s/wait/idle" >/dev/null

# ---- killed in the middle of it
stop
BERTHFS_KILL_AT=down.stopped timeout 60 "$BERTHFS" mount "$M" || exit 1
DAEMON=$(daemon_pid)
echo down >"$S/s/ctl"
check "the daemon dies" within 30 is_gone "$DAEMON"
start || exit 1
equal "the next one ends it" "$(timeout 60 cat "$S/s/wait/idle"; cat "$S/s/sandbox")" "down
dir down"
check "a sandbox that is down can be destroyed" rmdir "$S/s"
gone() { [ ! -e "$T/state/berthfs/sandboxes/1" ]; }
check "and leaves nothing" within 20 gone
