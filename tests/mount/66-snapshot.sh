#!/bin/sh
# Snapshots through the tree: verbs, words and waits; kills in the middle of each copy; a session that begins as another.
. "$(dirname "$0")/../lib.sh"
[ "${KIND:-dir}" = dir ] || use_image "$KIND"
answers() { for n in 1 2 3 4 5 6; do
	printf '{"tools":[{"name":"bash","input":{"command":"echo %s >> n; git add n; git commit -qm c%s"}}]}\n{"text":"done %s"}\n' $n $n $n
done; }
answers >"$T/script"
start || exit 1
idle() { timeout 60 cat "$S/$1/wait/idle" >/dev/null; }
tip() { git -C "$P" log -1 --format=%s "sandbox/$1"; }

session s "one" && idle s
equal "ctl tells the verbs" "$(grep -c '^snapshot \|^restore K ' "$S/s/ctl")" 2
check "snapshot" sh -c "echo snapshot >'$S/s/ctl'" && idle s
contains "log has its number" "$(cat "$S/s/log")" "snapshot 1: "
echo two >>"$S/s/input" && idle s
equal "work goes on" "$(tip 1)" c2
check "restore" sh -c "echo restore 1 >'$S/s/ctl'" && idle s
equal "the branch is back" "$(tip 1)" c1
contains "the reflog has the other head" "$(git -C "$P" log -g --format=%s sandbox/1)" c2
equal "files/ is what it was" "$(cat "$S/s/files/n")" 1
equal "an unknown number: ENOENT" "$(errno_of sh -c "echo restore 9 | dd of=$S/s/ctl conv=notrunc")" ENOENT
contains "in words" "$(cat "$S/s/error")" "there is no snapshot 9"

# ---- killed at each point
n=2
for point in snapshot.copied restore.moved restore.copied; do
	stop
	BERTHFS_KILL_AT=$point timeout 60 "$BERTHFS" mount "$M" || exit 1
	DAEMON=$(daemon_pid)
	case $point in
	snapshot*) echo snapshot >"$S/s/ctl" ;;
	*) echo restore 2 >"$S/s/ctl" ;;
	esac
	check "$point: the daemon dies" within 30 is_gone "$DAEMON"
	start || exit 1
	idle s
	n=$((n + 1))
	equal "$point: the next one ends it, once" "$(grep -c "snapshot $n: " "$S/s/log")" 1
	[ "$point" = snapshot.copied ] || equal "$point: and the work is there" "$(tip 1)" c2
done

# ---- another one begins as it
stop
BERTHFS_KILL_AT=clone.copied timeout 60 "$BERTHFS" mount "$M" || exit 1
DAEMON=$(daemon_pid)
printf -- '---\nfrom: s\nmodel: script:%s\n---\nthree\n' "$T/script" >"$S/new/t"
check "clone.copied: the daemon dies" within 30 is_gone "$DAEMON"
start || exit 1
idle t
equal "it has the work of the other, and its own" "$(cat "$S/t/files/n" | tr '\n' ' ')" "1 2 1 "
contains "and its transcript" "$(cat "$S/t/transcript")" "this session began as s"
equal "the other one stays as it was" "$(tip 1)" c2
equal "its own branch" "$(tip 2)" c1
check "each can be ended" rmdir "$S/s" "$S/t"
gone() { [ -z "$(ls "$T/state/berthfs/sandboxes")" ]; }
check "and leaves nothing" within 20 gone
