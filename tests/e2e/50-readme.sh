#!/bin/sh
# The tour of README.md, line by line as it stands there: every command has to succeed (sh -e), and what is said of it has
# to be so.
. "$(dirname "$0")/../lib.sh"

# What the tour supposes: berthfs in PATH, a checkout ~/code/app with a remote, and a failing test.
mkdir -p "$HOME/code" "$T/bin"
ln -s "$BERTHFS" "$T/bin/berthfs"
ln -s "$ROOT/contrib/ask" "$ROOT/contrib/berth-watch" "$T/bin/"
git init -q --bare -b main "$T/app.git"
git init -q -b main "$HOME/code/app"
cd "$HOME/code/app" || exit 1
mkdir .agents
echo '{"checks":[{"name":"test","command":"sh test.sh"}]}' >.agents/project.json
echo 'test -f mended.txt' >test.sh
git add . && git commit -qm start && git remote add origin "$T/app.git" && git push -q -u origin main
printf 'sandbox = dir\nsandbox.allow-dir = yes\n' >"$T/config/berthfs/config"

awk '/^## / { tour = /^## A tour/ }
	/^```/ { code = tour && /^```sh/; next }
	code { print }' "$ROOT/README.md" >"$T/tour"
check "there is a tour" test "$(wc -l <"$T/tour")" -gt 25
M=$HOME/berth
(cd "$HOME" && PATH=$T/bin:$PATH timeout 280 sh -ex "$T/tour") >"$T/said" 2>"$T/typed"
code=$?
equal "every line works" $code 0
[ $code = 0 ] || { sed 's/^/# /' "$T/said" "$T/typed"; cat "$M/error"; }
said=$(cat "$T/said")
contains "ls shows what the README says" "$(sed -n '1,/status/p' "$T/said" | tr '\n' ' ')" \
	"README config error events gateway index projects sessions status"
contains "the answer" "$said" "It is mended."
contains "a check passes" "$said" "pass	"
contains "the branch has the work" "$said" "Mend it"
contains "the second answer" "$said" "There is no list here."
contains "it lands" "$said" "landed main $(git -C "$T/app.git" rev-parse main)"
contains "ask and berth-watch do what is said of them" "$(cat "$T/typed" "$T/said")" "ask: session review"
check "a line a session" grep -q '^ *2  second .* ~/code/app$' "$T/said"
contains "refusals are in error" "$said" 'unknown verb "dance"; known: stop, retry,'
contains "show has the transcript" "$(printf '%s' "$said" | tail -n 20)" "SHIP-READY"
check "nothing is mounted" sh -c "! grep -q ' $M ' /proc/self/mountinfo"
# The tour unmounts right after the last session was ended: what had not been done by then is done at the next start.
sandboxes_gone() { [ -z "$(ls "$T/state/berthfs/sandboxes")" ]; }
sandboxes_gone || { start && within 120 sandboxes_gone; }
equal "no session is left" "$(ls "$T/state/berthfs/sandboxes")" ""
