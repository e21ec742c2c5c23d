#!/bin/sh
# A full disk is an ordinary event: what cannot be kept is refused in words, what was acknowledged is not lost, and work
# that was going on goes on when there is room again. The state folder is a small tmpfs of its own mount namespace.
[ "${1:-}" = inside ] || exec unshare -m --propagation private sh "$0" inside
. "$(dirname "$0")/../lib.sh"

mkdir -p "$T/state"
mount -t tmpfs -o size=24m none "$T/state" || { skip all "no tmpfs can be mounted here"; exit 0; }
trap 'stop >/dev/null 2>&1; umount -l "$T/state"; finish' EXIT
cat >"$T/script" <<END
{"text":"one","tools":[{"name":"bash","input":{"command":"while [ ! -e $T/go ]; do sleep 0.1; done; echo ran >> $T/count"}}]}
{"text":"first answer"}
{"text":"second answer"}
END
start || exit 1
fill() { dd if=/dev/zero of="$T/state/filler" bs=4k 2>/dev/null; }
room() { rm -f "$T/state/filler"; }

(cd "$P" && echo "begin" >"$S/new/s")
check "the command runs" within 30 grep -q '^running bash' "$S/s/status"
fill

# A message on a full disk: the writer is told at close, and the words say what to do.
printf 'lost-or-not\n' >"$T/message"
sent=0 refused=0
for i in 1 2 3 4 5 6 7 8 9 10; do
	fill
	if dd if="$T/message" of="$S/s/input" conv=notrunc 2>"$T/dd"; then sent=$((sent + 1)); else
		refused=$((refused + 1))
		cp "$T/dd" "$T/dd-refused"
	fi
done
check "a full disk refuses a message" test "$refused" -gt 0
contains "ENOSPC at close" "$(cat "$T/dd-refused" 2>/dev/null)" "No space left"
contains "words for it" "$(cat "$S/s/error" "$M/error")" "full"
check "the tree can be read meanwhile" grep -q '^running' "$S/s/status"

# The command ends while the disk is full: its result waits for room.
room
: >"$T/go"
fill
sleep_until_stuck() { ! grep -q '^running bash' "$S/s/status"; }
within 2 sleep_until_stuck
room
check "the run goes on when there is room" within 60 grep -q first.answer "$S/s/transcript"
timeout 200 cat "$S/s/wait/idle" >/dev/null
equal "the command ran once" "$(cat "$T/count")" ran
equal "each acknowledged message stands once" "$(grep -c lost-or-not "$S/s/transcript.jsonl")" "$sent"
echo again >>"$S/s/input"
check "and it takes messages again" within 30 grep -q again "$S/s/transcript"
