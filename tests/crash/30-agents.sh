#!/bin/sh
# time limit: 600 s
# A session whose work is done by a program in its sandbox: the daemon is killed at each step of a prompt, the program is
# stopped, fails, is not there, its sandbox goes away. Nothing of what it said is lost or doubled, and it runs once.
. "$(dirname "$0")/../lib.sh"
mkdir "$T/bin"
PATH=$T/bin:$PATH
RUNS=$T/runs
export PATH
printf '%s\n' 'sandbox = dir' 'sandbox.allow-dir = yes' 'model = p/stub' 'provider.p.kind = anthropic' \
	'provider.p.url = http://127.0.0.1:9' >"$T/config/berthfs/config"

# Stands for Claude Code: the same flags and the same lines. It says WORDS texts with a call between them, PAUSE seconds
# apart; how many it said is on disk, so that a conversation that is taken up again goes on counting.
cat >"$T/bin/claude" <<'END'
#!/bin/bash
prompt=$(cat)
talk=talk-1
[[ " $* " == *" --resume "* ]] && { talk=${!#}; [ -e "$HOME/$talk" ] || { echo "No conversation found" >&2; exit 1; }; }
echo "$talk $(head -c 40 <<<"${prompt##*asks:}" | tr '\n' ' ')" >>"$RUNS"
printf '%s\n---\n' "$prompt" >>"$HOME/$talk"
echo '{"type":"system","subtype":"init","session_id":"'$talk'"}'
[[ $prompt == *fail* ]] && [ ! -e "$HOME/mended" ] && { echo '{"type":"result","is_error":true,"result":"the model said no","usage":{}}'; exit 1; }
[[ $prompt == *crash* ]] && [ ! -e "$HOME/mended" ] && { echo "it went wrong here" >&2; exit 3; }
words=5 pause=0.05
[[ $prompt == *slowly* ]] && words=40 pause=0.1
for ((i = 1; i <= words; i++)); do
	n=$(($(cat "$HOME/said" 2>/dev/null || echo 0) + 1))
	echo $n >"$HOME/said.new" && mv "$HOME/said.new" "$HOME/said" # it may be killed at any time
	echo '{"type":"assistant","message":{"content":[{"type":"text","text":"word '$n'"}]}}'
	echo '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t'$n'","name":"Bash","input":{"command":"c'$n'"}}]}}'
	sleep $pause
	printf '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t%s",' $n
	sleep 0.01
	echo '"content":"gave '$n'"}]}}'
done
echo $n >>count.txt && git add . && git commit -qm "count $n"
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"the end, '$n'"}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":'$words',"usage":{"input_tokens":100,"output_tokens":10}}'
END
sed -i "s,\"\$RUNS\",\"$RUNS\"," "$T/bin/claude" # variables of the daemon do not reach the sandbox
chmod +x "$T/bin/claude"

new() { (cd "$P" && printf -- '---\nagent: %s\n---\n%s\n' "$2" "$3" >"$S/new/$1"); }
idle() { timeout 200 cat "$S/$1/wait/idle" >/dev/null; }
status_is() { grep -q "$2" "$S/$1/status"; }
has() { [ "$(lines "$1" '"kind":"tool_result"')" -ge "$2" ]; }
lines() { grep -c "$2" "$S/$1/transcript.jsonl"; }
runs() { grep -c "" "$RUNS" 2>/dev/null || echo 0; }
# whole NAME WORDS: each text, call and result is there once, in order, and the answer last.
whole() {
	wanted=$(for i in $(seq "$2"); do printf 'word %s\nt%s\ngave %s\n' "$i" "$i" "$i"; done; echo "the end, $2")
	got=$(jq -r 'select(.kind == "tool_call" or .kind == "assistant" or .kind == "tool_result") | if .kind == "tool_call" then (.id | sub("^a[0-9]+[.]"; "")) else .text end' "$S/$1/transcript.jsonl")
	equal "$1: each word, call and result once, and in order" "$got" "$wanted"
	equal "$1: the program ran once" "$(runs)" "${3:-1}"
	equal "$1: usage is counted once" "$(awk -F '\t' '$6 == "p/stub" { print $1, $2, $3 }' "$S/$1/usage")" "$2 100 10"
	equal "$1: its commit is there" "$(git -C "$P" show "sandbox/$(cat "$S/$1/id"):count.txt")" "$2"
}
again() {
	within 100 is_gone "$DAEMON" || not_ok "$1: the daemon is dead"
	start || { not_ok "$1: it mounts again"; exit 1; }
}

# ---- killed at each step
for point in guest.pinned guest.started guest.take guest.take:3 guest.taken guest.taken:4 guest.done message.commit; do
	rm -f "$RUNS"
	BERTHFS_KILL_AT=$point start || exit 1
	name=at-$(echo "$point" | tr ':.' '--')
	new "$name" claude "Go." 2>/dev/null
	again "$point"
	[ -d "$S/$name" ] || new "$name" claude "Go."
	check "$point: it becomes idle" idle "$name"
	whole "$name" 5
	equal "$point: the answer" "$(cat "$S/$name/wait/reply")" "the end, 5"
	stop
done

# ---- killed at any time, again and again
rm -f "$RUNS"
start || exit 1
new often claude "Go slowly."
within 100 status_is often '^running' || not_ok "often: it runs"
for i in 1 2 3 4 5; do
	results=$(($(lines often '"kind":"tool_result"') + i))
	[ $results -le 40 ] || results=40 # it may have ended while the daemon was away
	within 60 has often $results || not_ok "often: it goes on"
	kill -9 "$DAEMON"
	again often
done
check "often: it becomes idle" idle often
whole often 40

# ---- its own conversation goes on: the next message, and a new sandbox of the same disk
rm -f "$RUNS"
echo "And more." >>"$S/often/input"
check "a second message is answered" idle often
equal "in the same conversation" "$(cut -d ' ' -f 1 "$RUNS")" talk-1
contains "with what the user says alone" "$(cat "$RUNS")" "talk-1 And more."
echo down >"$S/often/ctl"
within 60 grep -q down "$S/often/sandbox" || not_ok "it is down"
echo "And again." >>"$S/often/input"
check "after its sandbox was down" idle often
equal "it is the same one" "$(cut -d ' ' -f 1 "$RUNS" | sort -u)" talk-1
equal "and it knows all that was said" "$(grep -c -e "Go slowly" -e "And more" -e "And again" "$XDG_STATE_HOME/berthfs/sandboxes/$(cat "$S/often/id")/home/talk-1")" 3

# ---- stop, and go on
rm -f "$RUNS"
new stopped claude "Go slowly."
within 100 grep -q '"kind":"tool_result"' "$S/stopped/transcript.jsonl" || not_ok "stopped: it works"
echo stop >"$S/stopped/ctl"
check "stop: it becomes idle" idle stopped
contains "stop: said so" "$(cat "$S/stopped/transcript")" "stopped by the user"
equal "stop: each call has a result" "$(lines stopped '"kind":"tool_call"')" "$(lines stopped '"kind":"tool_result"')"
said=$(cat "$XDG_STATE_HOME/berthfs/sandboxes/$(cat "$S/stopped/id")/home/said")
check "stop: it did not end by itself" [ "$said" -lt 40 ]
echo "Go on." >>"$S/stopped/input"
check "stop: a message goes on" idle stopped
contains "stop: in the same conversation" "$(tail -n 1 "$RUNS")" "talk-1 Go on."
equal "stop: and is answered" "$(cat "$S/stopped/wait/reply")" "the end, $((said + 5))"

# ---- a stop that the daemon does not live to see
rm -f "$RUNS"
new late claude "Go slowly."
within 100 grep -q '"kind":"tool_result"' "$S/late/transcript.jsonl" || not_ok "late: it works"
echo stop >"$S/late/ctl" && kill -9 "$DAEMON"
again late
check "late: it becomes idle" idle late
contains "late: stopped" "$(cat "$S/late/transcript")" "stopped by the user"
said=$XDG_STATE_HOME/berthfs/sandboxes/$(cat "$S/late/id")/home/said
before=$(cat "$said")
(cd "$P" && printf -- '---\nagent: sleep 1\n---\nx\n' >"$S/new/a-second") && idle a-second
equal "late: and it does not run on" "$(cat "$said")" "$before"

# ---- failures
rm -f "$RUNS"
new fails claude "This will fail."
idle fails
status_is fails 'failed: claude has ended with exit code 1: the model said no' && ok "a failure has its words" || { not_ok "a failure has its words"; cat "$S/fails/status"; }
touch "$XDG_STATE_HOME/berthfs/sandboxes/$(cat "$S/fails/id")/home/mended"
echo retry >"$S/fails/ctl"
check "retry goes on" idle fails
equal "and is answered" "$(cat "$S/fails/wait/reply")" "the end, 5"
contains "it is told that it was interrupted" "$(cat "$XDG_STATE_HOME/berthfs/sandboxes/$(cat "$S/fails/id")/home/talk-1")" "You were interrupted"
new crashes claude "This will crash."
idle crashes
status_is crashes 'failed: claude has ended with exit code 3: it went wrong here' && ok "what it says on standard error is told" || { not_ok "what it says on standard error is told"; cat "$S/crashes/status"; }
rm "$XDG_STATE_HOME/berthfs/sandboxes/$(cat "$S/often/id")/home/talk-1" && echo "Go on." >>"$S/often/input"
idle often
status_is often 'failed: claude has ended with exit code 1: No conversation found' && ok "a conversation that is gone is a failure" || { not_ok "a conversation that is gone is a failure"; cat "$S/often/status"; }
rm -f "$RUNS"
echo retry >"$S/often/ctl"
check "and retry begins a new one" idle often
contains "which is told what holds" "$(cat "$XDG_STATE_HOME/berthfs/sandboxes/$(cat "$S/often/id")/home/talk-1")" "You are a coding agent"
new absent pi "Go."
idle absent
status_is absent 'failed: pi is not installed in the sandbox' && ok "an agent that is not there is named" || { not_ok "an agent that is not there is named"; cat "$S/absent/status"; }

# ---- its sandbox goes away below it
rm -f "$RUNS"
new cut claude "Go slowly."
within 100 grep -q '"kind":"tool_result"' "$S/cut/transcript.jsonl" || not_ok "cut: it works"
kill -9 "$(cut -d ' ' -f 1 "$XDG_STATE_HOME/berthfs/sandboxes/$(cat "$S/cut/id")/tools.pid")"
check "cut: it becomes idle" idle cut
equal "cut: it was begun once more, in the same conversation" "$(cut -d ' ' -f 1 "$RUNS" | tr '\n' ' ')" "talk-1 talk-1 "
contains "cut: the transcript says so" "$(cat "$S/cut/transcript")" "the sandbox was restarted while the agent ran"
equal "cut: each call has a result" "$(lines cut '"kind":"tool_call"')" "$(lines cut '"kind":"tool_result"')"
contains "cut: it is answered" "$(cat "$S/cut/wait/reply")" "the end, "

# ---- a command
new plain 'read -r line; echo "prompt $BERTHFS_PROMPT of $BERTHFS_MODEL: $line"; echo aside >&2; echo $BERTHFS_PROMPT >b; git add b; git commit -qm "b $BERTHFS_PROMPT"' "Hello."
check "a command is answered" idle plain
equal "what it prints is the answer" "$(cat "$S/plain/wait/reply")" "prompt 1 of stub: Hello."
equal "its commit comes over" "$(git -C "$P" log --format=%s -1 "sandbox/$(cat "$S/plain/id")")" "b 1"
echo "More." >>"$S/plain/input"
check "a second message" idle plain
equal "prompts are counted" "$(cat "$S/plain/wait/reply")" "prompt 2 of stub: More."
new dead 'cat >/dev/null; kill -9 $$' "Hello."
idle dead
status_is dead "failed: the agent's command has ended with exit code 137" && ok "a command that dies fails" || { not_ok "a command that dies fails"; cat "$S/dead/status"; }
new quiet 'cat >/dev/null' "Hello."
check "a command that says nothing" idle quiet
equal "is answered, and said so" "$(cat "$S/quiet/wait/reply")" "(no output)"

# ---- its run is streamed and checked like any other
mkdir -p "$P/.agents"
echo '{"checks":[{"name":"there","command":"test -s b"},{"name":"three","command":"grep -q 3 b || { echo it is $(cat b); false; }"}]}' >"$P/.agents/project.json"
git -C "$P" add . && git -C "$P" commit -qm checks
new seen "echo one; until [ -e $T/go ]; do sleep 0.05; done; echo two; echo 2 >b; git add b; git commit -qm b" "Hello."
within 100 status_is seen '^running' || not_ok "seen: it works"
timeout 300 cat "$S/seen/wait/live" >"$T/live" &
own $!
live=$!
check "what it says is shown while it works" within 100 grep -q one "$T/live"
if grep -q two "$T/live"; then not_ok "and nothing else"; else ok "and nothing else"; fi
touch "$T/go"
check "it becomes idle" idle seen
wait $live
equal "all of it was shown" "$(cat "$T/live")" "one
two"
head=$(git -C "$P" rev-parse "sandbox/$(cat "$S/seen/id")" | cut -c 1-12)
equal "the project's checks have run on its commit" "$(grep -P '^(pass|fail|error|stale)\t' "$S/seen/checks" | cut -f 1,3-)" "pass	there	$head
fail	three	$head"
contains "with what they say" "$(cat "$S/seen/checks")" "it is 2"

# ---- what is refused
refused() { # NAME AGENT LINES WORDS
	if (cd "$P" && printf -- '---\nagent: %s\n%s---\nx\n' "$2" "$3" >"$S/new/no") 2>/dev/null; then
		not_ok "$1: refused"
	else
		contains "$1" "$(tail -n 1 "$M/error")" "$4"
	fi
}
refused "a model that it does not speak to" codex '' 'codex speaks to providers of kind responses'
refused "a script as its model" claude "$(printf 'model: script:%s\n ' "$T/script")
" "needs a model that the gateway serves"
refused "approvals" claude "approvals: on
" "approvals cannot be asked"
if echo on >"$S/plain/settings/approvals" 2>/dev/null; then not_ok "approvals afterwards: refused"; else ok "approvals afterwards: refused"; fi
if echo compact >"$S/plain/ctl" 2>/dev/null; then not_ok "compact: refused"; else contains "compact: refused" "$(cat "$S/plain/error")" "keeps its conversation itself"; fi
printf '{"text":"%s answer"}\n' first second third >"$T/third"
echo "script:$T/third" >"$S/plain/settings/model" && echo none >"$S/plain/settings/agent"
echo "Who is there?" >>"$S/plain/input"
check "without an agent the engine goes on" idle plain
equal "by the model that is set" "$(cat "$S/plain/wait/reply")" "third answer"
