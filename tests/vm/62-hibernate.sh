#!/bin/sh
# A session's VM goes to disk by itself and comes back with all that ran in it: its token, its clock, kills of the daemon
# at each step, a disk without room for it. time limit: 900 s
[ "${1:-}" = inside ] || ! unshare -m true 2>/dev/null || exec unshare -m --propagation private sh "$0" inside
. "$(dirname "$0")/../lib.sh"
mkdir -p "$T/config/berthfs" "$T/state"
[ "${1:-}" = inside ] && mount -t tmpfs -o size=600m none "$T/state" 2>/dev/null && small=1
trap 'stop >/dev/null 2>&1; for pid in $(sandbox_pids) $(gateway_pid); do kill -9 "$pid" 2>/dev/null; done
[ -z "${small:-}" ] || umount -l "$T/state"; finish' EXIT
{
	echo '{"tools":[{"name":"bash","input":{"command":"(setsid sleep 100000 >/dev/null 2>&1 & echo $! >~/pid); sleep 0.2"}}]}'
	echo '{"text":"first"}'
	i=0
	while [ $i -lt 12 ]; do
		echo '{"tools":[{"name":"bash","input":{"command":"readlink /proc/$(cat ~/pid)/exe || echo no process; echo clock $(date +%s); echo resumed $(grep -c . ~/resumed) times; echo token $(printf %s \"$ANTHROPIC_API_KEY\" | sha256sum | cut -c1-8)"}}]}'
		echo '{"text":"more"}'
		i=$((i + 1))
	done
} >"$T/script"
mkdir -p "$P/.agents"
echo 'date >>~/resumed' >"$P/.agents/resume"
git -C "$P" add . && git -C "$P" commit -qm resume
use_vm
start || exit 1
(cd "$P" && echo hello >"$S/new/s")
timeout 300 cat "$S/s/wait/idle" >/dev/null || { cat "$S/s/log"; exit 1; }

sandbox_is() { [ "$(cat "$S/s/sandbox")" = "$1" ]; }
settings() { printf 'sandbox = vm\nsize = mini\nmodel = script:%s\n%s\n' "$T/script" "$1" >"$M/config"; }
never() { settings 'idle.pause = off'; }
has_token() { [ -n "$(token)" ]; }
no_token() { [ -z "$(token)" ]; }
token() { awk -F'\t' '$2 == "sandbox" { print $3 }' "$M/gateway/tokens"; }
none() { [ -z "$(sandbox_pids)" ]; }
idle() { timeout 300 cat "$S/s/wait/idle" >/dev/null; }
resumed=0
# say NAME: a message wakes it; what ran in there runs, with the clock right and a token of its own that is another one.
say() {
	was=$(wc -c <"$S/s/transcript") sent=$(date +%s)
	echo go on >>"$S/s/input"
	equal "$1: it answers" "$(timeout 300 cat "$S/s/wait/idle")" idle
	said=$(tail -c +"$was" "$S/s/transcript")
	clock=$(printf '%s\n' "$said" | sed -n 's/^clock //p')
	resumed=$((resumed + 1))
	contains "$1: what ran in it runs" "$said" /sleep
	contains "$1: .agents/resume ran once" "$said" "resumed $resumed times"
	check "$1: the clock is right" [ "${clock:-0}" -ge "$((sent - 1))" -a "${clock:-0}" -le "$(($(date +%s) + 1))" ]
	counts() { now=$(token) && [ -n "$now" ] && printf '%s\n' "$said" | grep -qF "token $now"; }
	check "$1: the token inside is the one that counts" within 15 counts
	sandbox_is "vm running tcg" || not_ok "$1: it is said to run"
}
# by_hand VERB WORD: refused while the guest has not closed its end of the last connection, so it is asked again
by_hand() {
	echo "$1" >"$S/s/ctl"
	idle && sandbox_is "vm $2"
}
hibernate() { check "$1" within 120 by_hand hibernate hibernated; }

# ---- by itself: paused, then on disk; a message brings it back
never
check "it has a token" within 15 has_token
first=$(token)
settings 'idle.pause = 1 s'
check "it is paused" within 300 sandbox_is "vm paused"
printf 'sandbox = vm\nsize = mini\nmodel = script:%s\nidle.pause = 1 s\nidle.hibernate = 2 s\n' "$T/script" >"$M/config"
check "it goes to disk by itself" within 300 sandbox_is "vm hibernated"
never
equal "its session is idle" "$(head -n 1 "$S/s/status")" idle
lacks() { ! grep -q "$1" "$2"; }
check "it was never down" lacks "vm down" "$M/events"
check "log says why" within 60 grep -q "sandbox hibernated: nothing was asked of it for the time of idle.hibernate" "$S/s/log"
check "its token is revoked" within 15 no_token
check "nothing of it runs" within 30 none
check "its memory is a file" test -s "$T/state/berthfs/sandboxes/1/memory"
say "after hibernation"
check "its token is a new one" [ "$(token)" != "$first" ]
check "the file is gone" test ! -e "$T/state/berthfs/sandboxes/1/memory"
contains "log says where it was" "$(cat "$S/s/log")" "the sandbox comes back from disk"

# ---- the daemon ends, and is killed, while it is on disk; and ends while it wakes
hibernate "ctl hibernate"
stop && start || exit 1
kill -9 "$DAEMON"
start || exit 1
equal "kill -9 does not wake it" "$(cat "$S/s/sandbox")" "vm hibernated"
check "and nothing of it runs" none
stop
BERTHFS_KILL_AT=rest.resuming timeout 60 "$BERTHFS" mount "$M" || exit 1
DAEMON=$(daemon_pid)
echo resume >"$S/s/ctl"
check "killed while it wakes" within 300 is_gone "$DAEMON"
start || exit 1
idle
equal "the next daemon goes on" "$(cat "$S/s/sandbox")" "vm running tcg"
resumed=$((resumed + 1))

# ---- killed at the steps on the way to disk: the next daemon finishes that
for point in revoked hibernated; do
	stop
	BERTHFS_KILL_AT=rest.$point timeout 60 "$BERTHFS" mount "$M" || exit 1
	DAEMON=$(daemon_pid)
	[ "$(cat "$S/s/sandbox")" = "vm running tcg" ] || resumed=$((resumed + 1)) # umount has paused it
	echo resume >"$S/s/ctl"
	idle
	killed_there() { is_gone "$DAEMON" || { by_hand hibernate hibernated; is_gone "$DAEMON"; } 2>/dev/null; }
	check "$point: killed there" within 300 killed_there
	start || exit 1
	idle
	equal "$point: it is on disk all the same" "$(cat "$S/s/sandbox")" "vm hibernated"
	check "$point: without a token" within 15 no_token
	say "killed at $point"
done

# ---- killed while its memory is on the way there: QEMU stands still meanwhile
saving() { [ "$(keeper_says 2>/dev/null | cut -d" " -f1)" = saving ]; }
qemu=$(for pid in $(sandbox_pids); do tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q '^[^ ]*qemu-system' && echo "$pid"; done | head -n 1)
within 120 by_hand pause paused || not_ok "saving: it is paused first: $(cat "$S/s/sandbox")"
kill -STOP "$qemu"
echo hibernate >"$S/s/ctl"
check "saving: it is on the way" within 60 saving
kill -9 "$DAEMON"
within 60 is_gone "$DAEMON"
start || exit 1
kill -CONT "$qemu"
check "saving: it is on disk in the end" within 300 sandbox_is "vm hibernated"
idle
say "killed while it was saved"

# ---- a disk that is too full for its memory: it goes on as before, and hibernates when there is room
if [ -n "${small:-}" ]; then
	free=$(df -k --output=avail "$T/state" | tail -n 1)
	fallocate -l "$((free - 16384))k" "$T/state/filler" || not_ok "the disk is filled"
	too_full() {
		echo hibernate >"$S/s/ctl"
		idle && grep -q "the VM cannot hibernate: " "$S/s/error"
	}
	check "a full disk: error says so" within 120 too_full
	contains "a full disk: in words" "$(cat "$S/s/error")" "No space left"
	equal "a full disk: it runs" "$(cat "$S/s/sandbox")" "vm running tcg"
	check "a full disk: it has a token" within 20 has_token
	check "a full disk: no half of its memory stays" test -z "$(ls "$T/state/berthfs/sandboxes/1" | grep '^memory')"
	resumed=$((resumed - 1)) # it was never away
	say "after a full disk"
	rm "$T/state/filler"
	hibernate "with room again"
	say "and back from there"
else
	skip "a full disk" "no tmpfs can be mounted here"
fi
