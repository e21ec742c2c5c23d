#!/bin/sh
# time limit: 900 s
# A session's VM is paused by itself and woken by what needs it: processes, clock, restarts, and what is killed when.
. "$(dirname "$0")/../lib.sh"
mkdir -p "$T/config/berthfs"
{
	echo '{"tools":[{"name":"bash","input":{"command":"(setsid sleep 100000 >/dev/null 2>&1 & echo $! >~/pid); sleep 0.2; cat ~/pid; readlink /proc/$(cat ~/pid)/exe"}}]}'
	echo '{"text":"first"}'
	i=0
	while [ $i -lt 12 ]; do
		echo '{"tools":[{"name":"bash","input":{"command":"readlink /proc/$(cat ~/pid)/exe || echo no process; echo clock $(date +%s); cat ~/resumed"}}]}'
		echo '{"text":"more"}'
		i=$((i + 1))
	done
} >"$T/script"
mkdir -p "$P/.agents"
echo 'echo "resumed $(date +%s)" >>~/resumed' >"$P/.agents/resume"
git -C "$P" add . && git -C "$P" commit -qm resume
use_vm
start || exit 1
(cd "$P" && echo hello >"$S/new/s")
timeout 300 cat "$S/s/wait/idle" >/dev/null || { cat "$S/s/log"; exit 1; }

sandbox_is() { [ "$(cat "$S/s/sandbox")" = "$1" ]; }
keeper() { cut -d' ' -f1 "$T/state/berthfs/sandboxes/1/keeper.pid"; }
qemu() { # the one that is no wrapper: it has no child
	for pid in $(sandbox_pids); do
		tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q '^[^ ]*qemu-system' && echo "$pid"
	done | head -n 1
}
settings() { printf 'sandbox = vm\nsize = mini\nmodel = script:%s\n%s\n' "$T/script" "$1" >"$M/config"; }
# say NAME: a message is answered, and what runs in the VM is still there, with the clock right.
say() {
	was=$(wc -c <"$S/s/transcript") sent=$(date +%s)
	echo go on >>"$S/s/input"
	equal "$1: it answers" "$(timeout 300 cat "$S/s/wait/idle")" idle
	said=$(tail -c +"$was" "$S/s/transcript")
	contains "$1: the process lives" "$said" /sleep
	clock=$(printf '%s\n' "$said" | sed -n 's/^clock //p' | tail -n 1)
	# read between these two times: right within a second
	check "$1: the clock is right" [ "${clock:-0}" -ge "$((sent - 1))" -a "${clock:-0}" -le "$(($(date +%s) + 1))" ]
	runs=$(printf '%s\n' "$said" | grep -c '^resumed ')
}
never() { settings 'idle.pause = off'; }
soon() { settings 'idle.pause = 1 s'; }
rest() {
	soon
	check "$1" within 300 sandbox_is "vm paused"
	never
}

# ---- by itself, woken by a message, twice and over restarts
rest "it is paused by itself"
equal "its session is idle" "$(head -n 1 "$S/s/status")" idle
# who looks at sandboxes may have seen it before the one that has paused it says why
check "log says so" within 60 grep -q "sandbox paused: nothing was asked of it" "$S/s/log"
contains "events say so" "$(cat "$M/events")" "vm paused"
contains "its token stays" "$(cut -f2 "$M/gateway/tokens")" sandbox
first=$(qemu)
say "after a pause"
equal "after a pause: .agents/resume ran first" "$runs" 1
sandbox_is "vm running tcg" || not_ok "it is said to run"
rest "again"
stop && start || exit 1
equal "a restart does not wake it" "$(cat "$S/s/sandbox")" "vm paused"
say "after a restart"
equal "after a restart: .agents/resume ran once more" "$runs" 2
equal "it is the same VM" "$(qemu)" "$first"

# ---- umount pauses what is at rest
settings 'idle.pause = 1 h'
umount_pauses() { stop && start && sandbox_is "vm paused"; }
check "umount has paused it" within 200 umount_pauses
never
say "after umount"

# ---- by hand
# it is refused while the guest has not closed its end of the last connection
by_hand() {
	echo pause >"$S/s/ctl"
	timeout 200 cat "$S/s/wait/idle" >/dev/null && sandbox_is "vm paused"
}
check "ctl pause" within 60 by_hand
echo resume >"$S/s/ctl"
timeout 200 cat "$S/s/wait/idle" >/dev/null
equal "ctl resume" "$(cat "$S/s/sandbox")" "vm running tcg"
within 60 by_hand || not_ok "ctl pause, again"

# ---- kill -9 of the daemon, at its steps and anywhere
kill -9 "$DAEMON"
start || exit 1
equal "kill -9 while it is paused" "$(cat "$S/s/sandbox")" "vm paused"
say "after kill -9"
stop
BERTHFS_KILL_AT=rest.paused timeout 60 "$BERTHFS" mount "$M" || exit 1
DAEMON=$(daemon_pid)
echo resume >"$S/s/ctl"
timeout 200 cat "$S/s/wait/idle" >/dev/null
soon
check "killed just after it was paused" within 300 is_gone "$DAEMON"
start || exit 1
check "the next daemon sees that" within 60 sandbox_is "vm paused"
never
echo resume >"$S/s/ctl"
timeout 200 cat "$S/s/wait/idle" >/dev/null
rest "and goes on as before"
stop
BERTHFS_KILL_AT=rest.resuming timeout 60 "$BERTHFS" mount "$M" || exit 1
DAEMON=$(daemon_pid)
echo go on >>"$S/s/input"
check "killed while .agents/resume runs" within 300 is_gone "$DAEMON"
start || exit 1
equal "the next daemon goes on with it" "$(timeout 300 cat "$S/s/wait/idle")" idle
say "after all that"

# ---- what keeps the VM dies while it is paused
for victim in qemu keeper; do
	rest "paused, then $victim is killed"
	pid=$($victim)
	check "$victim was found" [ -n "$pid" ]
	kill -9 "$pid"
	check "$victim killed: seen" within 60 sandbox_is "vm down"
	echo go on >>"$S/s/input"
	equal "$victim killed: it starts again" "$(timeout 300 cat "$S/s/wait/idle")" idle
	contains "$victim killed: what ran is gone" "$(tail -n 20 "$S/s/transcript")" "no process"
done

# ---- a person who comes by ssh wakes it, keeps it awake, and leaves it to rest again
rest "paused, then somebody comes"
mkfifo "$T/words"
timeout 300 "$BERTHFS" ssh s 'echo hello; read x; echo bye' <"$T/words" >"$T/said" 2>"$T/err" &
own $!
exec 4>"$T/words"
check "ssh wakes it" within 120 grep -q hello "$T/said"
check "the daemon sees that" within 60 sandbox_is "vm running tcg"
soon
kept() { grep -q 'kept awake: somebody is connected' "$S/s/log"; }
check "it stays awake for them" within 60 kept
echo >&4
exec 4>&-
check "they are done" within 120 grep -q bye "$T/said"
check "it rests again" within 120 sandbox_is "vm paused"
