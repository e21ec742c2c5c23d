#!/bin/sh
# after-run: merge brings each run's work to the checked-out branch, when nothing of the user's is in the way; and a second
# ship of what is upstream already pushes nothing.
. "$(dirname "$0")/../lib.sh"
git init -q --bare -b main "$T/remote.git"
(cd "$P" && git remote add origin "$T/remote.git" && git push -q -u origin main) || exit 1
step() { printf '{"tools":[{"name":"bash","input":{"command":"%s; git add .; git commit -qm %s"}}]}\n{"text":"%s"}\n' "$2" "$1" "$1"; }
{
	step one 'echo one >made.txt'
	step two 'echo two >>made.txt'
	step three 'echo three >three.txt'
	step four 'echo four >four.txt'
	step five 'echo five >five.txt'
	printf '{"tools":[{"name":"bash","input":{"command":"git rebase -q refs/berthfs/base"}}]}\n{"text":"SHIP-READY"}\n{"text":"SHIP-READY"}\n'
} >"$T/script"
start || exit 1
run() {
	echo "$1" >>"$S/s/input"
	timeout 200 cat "$S/s/wait/idle" >/dev/null
}
main() { git -C "$P" rev-parse main; }
work() { git -C "$P" rev-parse sandbox/1; }
before=$(main)
(cd "$P" && printf -- '---\nafter-run: merge\n---\none\n' >"$S/new/s")
timeout 200 cat "$S/s/wait/idle" >/dev/null
equal "the checked-out branch has the work" "$(main) $(git -C "$P" symbolic-ref HEAD)" "$(work) refs/heads/main"
equal "so has the work tree" "$(cat "$P/made.txt") $(git -C "$P" status --porcelain)" "one "
equal "it is one commit further" "$(git -C "$P" rev-list "$before..main" | wc -l) $(git -C "$P" rev-parse main~)" "1 $before"
contains "log says so" "$(cat "$S/s/log")" "was fast-forwarded"

echo mine >>"$P/made.txt"
old=$(main)
run two
equal "a file with changes of the user's: nothing moves" "$(main) $(tail -n 1 "$P/made.txt")" "$old mine"
contains "error says which one" "$(cat "$S/s/error")" "your uncommitted made.txt"
check "the work is on its branch" test "$(work)" != "$old"

git -C "$P" checkout -q made.txt
echo dirty >>"$P/a.txt"
echo note >"$P/untracked.txt"
run three
equal "with changes elsewhere all of it comes" "$(main) $(cat "$P/made.txt" "$P/three.txt" | tr '\n' ' ')" "$(work) one two three "
equal "and those stay" "$(git -C "$P" status --porcelain | tr '\n' ' ')$(tail -n 1 "$P/a.txt")" " M a.txt ?? untracked.txt dirty"

echo none >"$S/s/settings/after-run"
old=$(main)
run four
equal "after-run: none does nothing" "$(main)" "$old"
echo merge >"$S/s/ctl"
timeout 200 cat "$S/s/wait/idle" >/dev/null
equal "merge in ctl does" "$(main)" "$(work)"

(cd "$P" && git commit -q --allow-empty -m "the user's own")
old=$(main)
echo merge >"$S/s/settings/after-run"
run five
equal "a branch with a commit of its own: no merge commit is made" "$(main)" "$old"
contains "in words" "$(cat "$S/s/error")" "has commits that sandbox/1 lacks"

# ---- ship, and ship again
echo >"$S/s/ship" && timeout 200 cat "$S/s/wait/shipped" >"$T/first"
timeout 200 cat "$S/s/wait/idle" >/dev/null
equal "it lands" "$(cat "$T/first")" "landed main $(work)"
pushed=$(git -C "$T/remote.git" rev-parse main)
echo >"$S/s/ship" && timeout 200 cat "$S/s/wait/shipped" >"$T/second"
equal "a second time: it is there already" "$(cat "$T/second")" "already on main"
equal "and nothing was pushed" "$(git -C "$T/remote.git" rev-parse main)" "$pushed"
