#!/bin/sh
# Sessions on the user's own machine (sandbox: host): they work in the project's directory itself, with the user's
# environment less its secrets; pushes are asked for; branch and checks follow as they do elsewhere.
. "$(dirname "$0")/../lib.sh"
have jq || { skip all "no jq"; exit 0; }
mkdir "$P/.agents"
echo '{"checks":[{"name":"here","command":"test -f new.txt && pwd -P"}]}' >"$P/.agents/project.json"
echo "echo ran >$T/ran" >"$P/.agents/setup"
(cd "$P" && git add -A && git commit -q -m checks && git init -q --bare "$T/up.git" && git remote add origin "$T/up.git" && git push -q origin main)
echo "not committed" >"$P/draft.txt"
tool() { jq -nc --arg c "$1" '{tools:[{name:"bash",input:{command:$c}}]}'; }
{
	tool 'pwd -P; cat draft.txt; env; echo work >new.txt; git add new.txt; git commit -q -m work; git branch --show-current'
	echo '{"text":"worked"}'
	tool 'git push origin HEAD:refs/heads/out'
	echo '{"text":"pushed or not"}'
	tool 'git push origin HEAD:refs/heads/out && echo went out'
	echo '{"text":"the end"}'
	tool 'cat ~/.netrc; echo after'
	echo '{"tools":[{"name":"read","input":{"path":".env"}}]}'
	echo '{"text":"read"}'
} >"$T/script"
echo "PASSWORD=hunter3" >"$P/.env"
EXAMPLE_API_KEY=hunter2 DB_URL=postgres://me:hunter2@db/x PLAIN=plain SSH_AUTH_SOCK=$T/agent start || exit 1
idle() { timeout 60 cat "$S/a/wait/idle" >/dev/null; }
before=$(git -C "$P" rev-parse HEAD)
(cd "$P" && printf -- '---\nsandbox: host\n---\nGo.\n' >"$S/new/a")
check "it is prepared and runs" idle
equal "its sandbox" "$(cat "$S/a/sandbox")" "host running"
contains "log says what that means" "$(cat "$S/a/log")" "on this machine as you, in $P itself, without any isolation"
contains "and that nothing is set up" "$(cat "$S/a/log")" ".agents/setup is not run: this is your own directory"
check "nor is it" [ ! -e "$T/ran" ]
said=$(jq -r 'select(.kind == "tool_result") | .text // .output // .content' "$S/a/transcript.jsonl" 2>/dev/null || cat "$S/a/transcript")
[ -n "$said" ] || said=$(cat "$S/a/transcript")
contains "commands run in the project itself" "$said" "$(cd "$P" && pwd -P)"
contains "with what is not committed" "$said" "not committed"
contains "with the user's environment" "$said" "PLAIN=plain"
contains "and home" "$said" "HOME=$HOME"
contains "the way to the user's ssh agent, whose use is asked for" "$said" "SSH_AUTH_SOCK=$T/agent"
check "without its secrets" sh -c '! printf %s "$1" | grep -q hunter2' - "$said"
check "no proxy is forced on it" sh -c '! printf %s "$1" | grep -qi "^https_proxy"' - "$said"
contains "on the branch that is checked out" "$said" main
check "work is in the user's checkout" [ -f "$P/new.txt" ]
head=$(git -C "$P" rev-parse HEAD)
check "the branch has moved" [ "$head" != "$before" ]
equal "sandbox/1 follows" "$(git -C "$P" rev-parse sandbox/1)" "$head"
contains "the check ran there" "$(cat "$S/a/checks")" "pass"
equal "nothing else is touched" "$(cat "$P/draft.txt")" "not committed"

# ---- what leaves the machine is asked for, with approvals off
equal "approvals are off" "$(head -n 1 "$S/a/settings/approvals")" off
waits() { [ "$(cat "$S/a/status")" = "waiting approval $1" ]; }
echo push >>"$S/a/input"
check "a push waits for a word" within 60 waits 1
contains "which says what it is" "$(cat "$S/a/approvals/1")" "git push origin"
echo "no not yet" >"$S/a/approvals/1"
check "no: the run goes on" idle
equal "nothing was pushed" "$(git -C "$T/up.git" branch --list out)" ""
echo again >>"$S/a/input"
check "the next one waits, too" within 60 waits 2
echo once >"$S/a/approvals/2"
check "once: it goes" idle
equal "and is there" "$(git -C "$T/up.git" rev-parse out)" "$head"

echo read >>"$S/a/input"
check "a protected file" idle
check "is not read" sh -c '! grep -q hunter3 "$1/transcript"' - "$S/a"

# ---- it goes on over a restart, and ends without a trace in the project
stop && start
check "after a restart it is there" within 30 grep -q "host" "$S/a/sandbox"
echo "destroy force" >"$S/a/ctl"
check "it is destroyed" within 60 [ ! -e "$S/a" ]
check "the project stays" [ -f "$P/new.txt" -a -f "$P/draft.txt" -a -f "$P/.env" ]
equal "and its branch" "$(git -C "$P" rev-parse main)" "$head"
check "of the sandbox nothing is left" within 30 [ ! -e "$T/state/berthfs/sandboxes/1" ]
