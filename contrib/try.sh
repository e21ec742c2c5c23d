#!/bin/sh
# A first look at berthfs: a project with a failing test, a session that mends it in a micro-VM, and a push to a remote.
# Needs no key and no model: the answers come from try.script. Everything happens in a temporary folder and is taken
# away again; only the program (build/) and the sandbox image (~/.cache/berthfs) stay, so that the next time is quick.
#
#   sh contrib/try.sh                     in a VM
#   TRY_SANDBOX=dir sh contrib/try.sh     without isolation, in seconds
set -u
source=$(cd "$(dirname "$0")/.." && pwd)
sandbox=${TRY_SANDBOX:-vm}
berthfs=${BERTHFS:-} # a program that is built already; else build/berthfs is built
work='' session='' pid=''

if [ -t 1 ]; then bold=$(printf '\033[1m') dim=$(printf '\033[2m') plain=$(printf '\033[0m'); else bold='' dim='' plain=''; fi

# What the reader is told, and what the reader could type.
say() { printf '\n%s# %s%s\n' "$dim" "$*" "$plain"; }
show() { printf '%s$ %s%s\n' "$bold" "$1" "$plain"; }
run() {
	show "$1"
	eval "$1" || fail "that did not work"
}

fail() {
	printf '\n%s: %s.\n' try.sh "$1" >&2
	if [ -n "$session" ] && [ -r berth/sessions/fix-total/status ]; then
		echo "status: $(cat berth/sessions/fix-total/status)" >&2
		tail -n 15 berth/sessions/fix-total/log berth/sessions/fix-total/error >&2
	fi
	[ ! -s berth/error ] || sed 's/^/error: /' berth/error >&2
	echo "What works on this machine: $berthfs doctor" >&2
	exit 1
}

mounted() { [ -n "$work" ] && grep -q " $work/berth " /proc/self/mountinfo; }
sandboxes_left() { [ -n "$(ls "$XDG_STATE_HOME/berthfs/sandboxes" 2>/dev/null)" ]; }

# Ends the session with its sandbox, also when the daemon is gone, unmounts, and removes the folder.
tidy() {
	code=$?
	trap - EXIT INT TERM HUP
	[ -z "$pid" ] || kill "$pid" 2>/dev/null
	if [ -n "$work" ]; then
		cd "$work" || exit 1
		if ! mounted && sandboxes_left; then "$berthfs" mount berth >/dev/null 2>&1; fi
		if mounted; then
			for s in berth/sessions/*/ctl; do
				[ ! -e "$s" ] || echo destroy force >"$s"
			done 2>/dev/null
			tries=0
			while sandboxes_left && [ $tries -lt 100 ]; do
				tries=$((tries + 1))
				sleep 0.2
			done
			"$berthfs" umount berth >/dev/null 2>&1
		fi
		cd /
		tries=0 # what was just killed may still be writing its last words
		until rm -rf --one-file-system "$work" 2>/dev/null || [ $tries = 100 ]; do
			tries=$((tries + 1))
			sleep 0.2
		done
		[ ! -e "$work" ] || echo "try.sh: $work could not be removed" >&2
	fi
	exit "$code"
}
trap tidy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# wait_for FILE: `cat FILE`, and while it blocks, each change of the status.
wait_for() {
	show "cat berth/sessions/fix-total/wait/$1"
	(
		last=
		while now=$(cat berth/sessions/fix-total/status 2>/dev/null); do
			[ "$now" = "$last" ] || printf '%s  ... %s%s\n' "$dim" "$now" "$plain"
			last=$now
			sleep 0.2
		done
	) &
	pid=$!
	cat "berth/sessions/fix-total/wait/$1"
	wait_code=$?
	kill $pid 2>/dev/null
	wait $pid 2>/dev/null
	pid=
	[ $wait_code = 0 ] || fail "the wait ended with an error"
}

# ---- the program ----

# On a terminal ninja shows where it is; elsewhere only what goes wrong is shown.
build() {
	log=$(mktemp) || return
	{ [ -f "$source/build/build.ninja" ] || meson setup "$source/build" "$source" >"$log" 2>&1; } &&
		if [ -t 1 ]; then meson compile -C "$source/build"; else meson compile -C "$source/build" >"$log" 2>&1; fi
	built=$?
	[ $built = 0 ] || tail -n 30 "$log" >&2
	rm -f "$log"
	return $built
}

case $sandbox in
vm) uses="build vm" ;;
dir) uses="build" ;;
*)
	echo "try.sh: TRY_SANDBOX is vm or dir" >&2
	exit 64
	;;
esac
if [ -z "$berthfs" ]; then
	sh "$source/contrib/packages.sh" $uses || exit 1
	berthfs=$source/build/berthfs
	say "Build the program."
	show "meson setup build && meson compile -C build"
	build || {
		echo "try.sh: it does not build; the reason stands above." >&2
		exit 1
	}
fi
if [ ! -w /dev/fuse ] && ! { [ "$(id -u)" = 0 ] && modprobe fuse 2>/dev/null && [ -w /dev/fuse ]; }; then
	echo "try.sh: you cannot open /dev/fuse, so nothing can be mounted. As root: modprobe fuse; chmod 666 /dev/fuse" >&2
	exit 1
fi

# ---- a place for it all ----

work=$(mktemp -d "${TMPDIR:-/tmp}/berth-try.XXXXXX") || exit 1
cd "$work" || exit 1
export XDG_STATE_HOME="$work/state" XDG_CONFIG_HOME="$work/config" XDG_RUNTIME_DIR="$work/run"
mkdir -p config/berthfs run
chmod 700 run
PATH=$(dirname "$berthfs"):$PATH
script=$source/contrib/try.script

say "A place for all that follows, and an instance of its own (yours in ~/.local/state and ~/.config is not touched)."
show "cd $work; PATH=$(dirname "$berthfs"):\$PATH"
show "export XDG_STATE_HOME=\$PWD/state XDG_CONFIG_HOME=\$PWD/config XDG_RUNTIME_DIR=\$PWD/run"

if [ "$sandbox" = vm ]; then
	say "Once: the image that sandboxes start from (minutes; it stays in the cache)."
	run "berthfs image build"
else
	printf 'sandbox = dir\nsandbox.allow-dir = yes\n' >config/berthfs/config
fi

say "A project whose test fails, and the remote it is pushed to."
git init -q -b main app && git init -q --bare -b main remote.git || fail "git does not work"
cd app || exit 1
git config user.name "Try Out" && git config user.email try@example.org
cat >price.py <<'END'
def total(prices):
    return sum(prices[1:])
END
cat >test_price.py <<'END'
import unittest
from price import total


class TestTotal(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([5, 7, 8]), 20)
END
mkdir .agents
echo '{"checks": [{"name": "unittest", "command": "python3 -m unittest -q"}]}' >.agents/project.json
echo '__pycache__/' >.gitignore
{ git add . && git commit -qm "A shop" && git remote add origin ../remote.git && git push -q -u origin main; } ||
	fail "the project cannot be made"
cd ..
run "git -C app log --oneline"
show "cat app/price.py"
cat app/price.py

# ---- the tour ----

say "Mount the tree of sessions."
mkdir berth
run "berthfs mount berth"
run "ls berth berth/sessions"

say "A file in the drop box is a session. The checkout that you stand in is its project."
show "cd app"
show "cat > ../berth/sessions/new/fix-total"
cd app || exit 1
session=1
printf -- '---\nmodel: script:%s\nafter-run: none\n---\nThe test in test_price.py fails. Find out why and fix it.\n' "$script" |
	tee ../berth/sessions/new/fix-total || fail "the session was refused"
show "cd .."
cd ..

case $sandbox in
vm) say "Its commands run in a micro-VM of its own, on a clone that has no remote. Wait until it is done." ;;
dir) say "Its commands run in a clone that has no remote (and, this time, without isolation). Wait until it is done." ;;
esac
wait_for idle

say "The conversation."
run "cat berth/sessions/fix-total/transcript"
say "Its newest plan, and what the project's own checks say of the commit."
run "cat berth/sessions/fix-total/plan"
run "cat berth/sessions/fix-total/checks"
grep -q '^pass' berth/sessions/fix-total/checks || fail "the check does not pass"
say "Its work, which is also the branch sandbox/1 of the checkout."
run "cat berth/sessions/fix-total/diff"
run "git -C app log --oneline -n 2 sandbox/1"

say "Push it: the model rebases, the host verifies for itself and pushes."
run "echo > berth/sessions/fix-total/ship"
wait_for shipped
run "cat berth/sessions/fix-total/ship"
grep -q '^landed main' berth/sessions/fix-total/ship || fail "it was not shipped"
run "git -C remote.git log --oneline main"
[ "$(git -C remote.git rev-parse main)" = "$(git -C app rev-parse sandbox/1)" ] || fail "the remote has another commit"

say "End the session; its transcript can still be read. Then unmount."
run "rmdir berth/sessions/fix-total"
session=
run "berthfs show fix-total | head -n 3"
run "berthfs umount berth"

say "That was all. Next: README.md, and README in your own mount:  $berthfs mount ~/berth"
