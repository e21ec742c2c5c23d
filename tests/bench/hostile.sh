#!/bin/sh
# What other sessions notice of a VM that belongs to an enemy (tests/vm/hostile_guest.py): the time to the answer of a
# stat that no cache answers, while the VM is idle and during each attack, beside the bar of twice as much. One stat a
# millisecond for LOOK seconds. Prints `bench NAME: FIGURE (bar BAR) RATIO`; judges nothing.
. "$(dirname "$0")/../lib.sh"
OPS=$(dirname "$BERTHFS")/tests/fs_ops
LOOK=${LOOK:-10} # seconds
cp "$ROOT/tests/vm/hostile_guest.py" "$P/" && git -C "$P" add . && git -C "$P" commit -qm hostile
use_vm
echo "sandbox.allow-dir = yes" >>"$T/config/berthfs/config"
echo '{"text":"fine"}' >"$T/script"
start || exit 1
for i in 1 2 3 4 5 6 7 8; do
	(cd "$P" && printf -- '---\nsandbox: dir\n---\ngo\n' >"$S/new/calm$i") && timeout 100 cat "$S/calm$i/wait/idle" >/dev/null
done
answers() { "$OPS" answers "$LOOK" "$S"/calm*/status "$S"/calm*/transcript; }
# the middle one of three, by its p99
quiet() { for _ in 1 2 3; do answers; done | sort -k 2 -n | sed -n 2p; }
anon() { awk '/^RssAnon/ { print $2 }' "/proc/$1/status"; }
(cd "$P" && printf -- '---\nsandbox: vm\n---\ngo\n' >"$S/new/idle") && timeout 300 cat "$S/idle/wait/idle" >/dev/null
sleep 3
read -r q50 q99 <<END
$(quiet)
END
echo "# with an idle VM: p50 $q50 us, p99 $q99 us"
echo "destroy force" >"$S/idle/ctl"
for what in flood bad streams disk memory forks; do
	echo '{"tools":[{"name":"bash","input":{"command":"exec sudo python3 hostile_guest.py '$what'"}}]}' >"$T/$what"
	(cd "$P" && printf -- '---\nsandbox: vm\nmodel: script:%s\n---\ngo\n' "$T/$what" >"$S/new/$what")
	id=$(cat "$S/$what/id")
	gone() { ! [ -e "$T/state/berthfs/sandboxes/$id" ]; }
	at_work() { grep -q '^running bash' "$S/$what/status"; }
	within 300 at_work
	sleep 5 # it is under way
	read -r p50 p99 <<-END
		$(answers)
	END
	printf 'bench stat during %s, p99: %s us (bar 2.00 of %s us) %s\n' "$what" "$p99" "$q99" \
		"$(awk -v a="$p99" -v b="$q99" 'BEGIN { printf "%.2f", b ? a / b : 0 }')"
	echo "# p50 $p50 us beside $q50; its keeper holds $(anon "$(cut -d' ' -f1 "$T/state/berthfs/sandboxes/$id/keeper.pid")") KiB, the daemon $(anon "$DAEMON") KiB"
	echo "destroy force" >"$S/$what/ctl"
	within 100 gone
done
