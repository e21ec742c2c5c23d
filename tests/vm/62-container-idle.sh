#!/bin/sh
# A session's container is paused by itself and woken by what needs it: processes, restarts, and what is killed when.
# time limit: 600 s
. "$(dirname "$0")/../lib.sh"
mkdir -p "$T/config/berthfs"
{
	echo '{"tools":[{"name":"bash","input":{"command":"(setsid sleep 100000 >/dev/null 2>&1 & echo $! >~/pid); sleep 0.2; cat ~/pid; readlink /proc/$(cat ~/pid)/exe"}}]}'
	echo '{"text":"first"}'
	i=0
	while [ $i -lt 14 ]; do
		echo '{"tools":[{"name":"bash","input":{"command":"readlink /proc/$(cat ~/pid)/exe || echo no process; cat ~/resumed"}}]}'
		echo '{"text":"more"}'
		i=$((i + 1))
	done
} >"$T/script"
mkdir -p "$P/.agents"
echo 'echo "resumed $(date +%s)" >>~/resumed' >"$P/.agents/resume"
git -C "$P" add . && git -C "$P" commit -qm resume
use_image container
start || exit 1
(cd "$P" && echo hello >"$S/new/s")
timeout 300 cat "$S/s/wait/idle" >/dev/null || { cat "$S/s/log"; exit 1; }
D=$T/state/berthfs/sandboxes/1

sandbox_is() { [ "$(cat "$S/s/sandbox")" = "container $1" ]; }
keeper() { cut -d' ' -f1 "$D/keeper.pid"; }
below() { ps -o pid= --ppid "$1" | tr -d ' '; }
init() { below "$(ps -o pid=,comm= --ppid "$(keeper)" | awk '$2 == "bwrap" { print $1 }')"; }
settings() { printf 'sandbox = container\nsize = mini\nmodel = script:%s\n%s\n' "$T/script" "$1" >"$M/config"; }
# say NAME: a message is answered, and what runs in the container is still there.
say() {
	was=$(wc -c <"$S/s/transcript")
	echo go on >>"$S/s/input"
	equal "$1: it answers" "$(timeout 300 cat "$S/s/wait/idle")" idle
	said=$(tail -c +"$was" "$S/s/transcript")
	contains "$1: the process lives" "$said" /sleep
	runs=$(printf '%s\n' "$said" | grep -c '^resumed ')
}
never() { settings 'idle.pause = off'; }
soon() { settings 'idle.pause = 1 s'; }
rest() {
	soon
	check "$1" within 300 sandbox_is paused
	never
}
by_hand() { ctl pause && sandbox_is paused; }
ctl() { # ctl VERB: and it is done
	echo "$1" >"$S/s/ctl"
	timeout 200 cat "$S/s/wait/idle" >/dev/null
}

# ---- by itself, woken by a message, twice and over restarts
rest "it is paused by itself"
equal "its session is idle" "$(head -n 1 "$S/s/status")" idle
# who looks at sandboxes may have seen it before the one that has paused it says why
check "log says so" within 60 grep -q "sandbox paused: nothing was asked of it" "$S/s/log"
contains "events say so" "$(cat "$M/events")" "container paused"
contains "its token stays" "$(cut -f2 "$M/gateway/tokens")" sandbox
first=$(init)
say "after a pause"
equal "after a pause: .agents/resume ran first" "$runs" 1
sandbox_is running || not_ok "it is said to run"
rest "again"
stop && start || exit 1
equal "a restart does not wake it" "$(cat "$S/s/sandbox")" "container paused"
say "after a restart"
equal "after a restart: .agents/resume ran once more" "$runs" 2
equal "it is the same container" "$(init)" "$first"

# ---- umount pauses what is at rest
settings 'idle.pause = 1 h'
umount_pauses() { stop && start && sandbox_is paused; }
check "umount pauses it" within 200 umount_pauses
never
say "after umount"

# ---- by hand
check "ctl pause" within 60 by_hand
ctl resume
equal "ctl resume" "$(cat "$S/s/sandbox")" "container running"
equal "ctl hibernate" "$(errno_of bash -c "echo hibernate >'$S/s/ctl'")" EOPNOTSUPP
contains "and why not" "$(cat "$S/s/error")" "a sandbox of kind container cannot hibernate"
within 60 by_hand || not_ok "ctl pause, again"

# ---- kill -9 of the daemon, at its steps and anywhere
kill -9 "$DAEMON"
start || exit 1
equal "kill -9 while it is paused" "$(cat "$S/s/sandbox")" "container paused"
say "after kill -9"
stop
BERTHFS_KILL_AT=rest.paused timeout 60 "$BERTHFS" mount "$M" || exit 1
DAEMON=$(daemon_pid)
ctl resume
soon
check "killed just after it was paused" within 300 is_gone "$DAEMON"
start || exit 1
check "the next daemon sees that" within 60 sandbox_is paused
never
ctl resume
rest "and goes on as before"
stop
BERTHFS_KILL_AT=rest.resuming timeout 60 "$BERTHFS" mount "$M" || exit 1
DAEMON=$(daemon_pid)
echo go on >>"$S/s/input"
check "killed while .agents/resume runs" within 300 is_gone "$DAEMON"
start || exit 1
equal "the next daemon goes on with it" "$(timeout 300 cat "$S/s/wait/idle")" idle
say "after all that"

# ---- what keeps the container dies while it is paused
for victim in keeper init; do
	rest "paused, then its $victim is killed"
	kill -9 "$($victim)"
	check "its $victim is killed: seen" within 60 sandbox_is down
	echo go on >>"$S/s/input"
	equal "its $victim is killed: it starts again" "$(timeout 300 cat "$S/s/wait/idle")" idle
	contains "its $victim is killed: what ran is gone" "$(tail -n 20 "$S/s/transcript")" "no process"
done

# ---- a person who comes by ssh wakes it, keeps it awake, and leaves it to rest again
rest "paused, then somebody comes"
mkfifo "$T/words"
timeout 300 "$BERTHFS" ssh s 'echo hello; read x; echo bye' <"$T/words" >"$T/said" 2>"$T/err" &
own $!
exec 4>"$T/words"
check "ssh wakes it" within 120 grep -q hello "$T/said"
check "the daemon sees that" within 60 sandbox_is running
soon
kept() { grep -q 'kept awake: somebody is connected' "$S/s/log"; }
check "it stays awake for them" within 60 kept
echo >&4
exec 4>&-
check "they are done" within 120 grep -q bye "$T/said"
check "it rests again" within 120 sandbox_is paused
never

# ---- what says that it is busy is not paused by itself; the end of a session that is paused
ctl resume
"$BERTHFS" ssh s 'touch /run/berthfs/busy/work' || not_ok "a word of it"
soon
busy() { grep -q 'kept awake: /run/berthfs/busy/work' "$S/s/log"; }
check "busy is awake" within 120 busy
sandbox_is running || not_ok "it is paused in spite of it"
"$BERTHFS" ssh s 'rm /run/berthfs/busy/work'
check "and rests once it is not" within 120 sandbox_is paused
left="$(keeper) $(init)"
echo 'destroy force' >"$S/s/ctl"
within 60 test ! -e "$S/s" || not_ok "the session ends"
within 60 test ! -e "$D" || not_ok "its folder goes"
for pid in $left; do within 60 is_gone "$pid" || not_ok "process $pid is left"; done
