#!/bin/sh
# A sandbox that belongs to an enemy: after a crash of the daemon an enemy listens in the place of the tool daemon. The
# session can still be stopped and destroyed, the daemon ended, and neither the tree nor other sessions wait for it.
# time limit: 900 s
. "$(dirname "$0")/../lib.sh"
HOSTILE=${HOSTILE:-$(dirname "$BERTHFS")/tests/hostile}
printf '{"text":"one","tools":[{"name":"bash","input":{"command":"sleep 300"}}]}\n{"text":"first answer"}\n' >"$T/script"
printf '{"text":"fine"}\n' >"$T/calm"
start || exit 1

ms() { date +%s%3N; }
running() { grep -q '^running bash' "$S/$1/status"; }
stopped() { ! running "$1"; }
# in_time NAME SECONDS COMMAND...
in_time() {
	in_time_name=$1 in_time_from=$(ms) in_time_most=$(($2 * 1000))
	shift 2
	"$@" >/dev/null 2>&1
	in_time_took=$(($(ms) - in_time_from))
	check "$in_time_name" test $in_time_took -lt $in_time_most
	[ $in_time_took -lt $in_time_most ] || note "it took $in_time_took ms"
}

for how in silent pongs drip running codes; do
	(cd "$P" && echo begin >"$S/new/$how")
	check "$how: the command runs" within 30 running "$how"
	id=$(cat "$S/$how/id")
	kill -9 "$DAEMON"
	within 10 is_gone "$DAEMON"
	"$HOSTILE" "$T/run/berthfs/$id.sock" "$how" >"$T/ready" 2>&1 &
	enemy=$!
	own $enemy
	within 10 grep -q ready "$T/ready"
	start || exit 1
	in_time "$how: the tree can be read" 50 grep -r . "$S/$how"
	(cd "$P" && printf -- '---\nmodel: script:%s\n---\nhi\n' "$T/calm" >"$S/new/other-$how")
	in_time "$how: others go on" 60 timeout 60 cat "$S/other-$how/wait/reply"
	in_time "$how: umount" 50 stop
	start || exit 1
	if [ "$how" != codes ]; then
		check "$how: it still runs" running "$how"
		echo stop >"$S/$how/ctl"
		in_time "$how: stop" 60 within 20 stopped "$how"
	fi
	echo destroy force >"$S/$how/ctl"
	check "$how: destroyed" test ! -e "$S/$how"
	in_time "$how: its folder is removed" 100 within 60 test ! -e "$T/state/berthfs/sandboxes/$id"
	kill -9 $enemy
done
