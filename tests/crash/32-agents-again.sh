#!/bin/sh
# time limit: 600 s
# The conversation that an agent of its own keeps on a sandbox's disk goes where the disk goes: back with `restore` and
# forth again, over to a session that begins `from` it, and also when the daemon is killed in between.
. "$(dirname "$0")/../lib.sh"
mkdir "$T/bin"
PATH=$T/bin:$PATH
export PATH
printf '%s\n' 'sandbox = dir' 'sandbox.allow-dir = yes' 'model = p/stub' 'provider.p.kind = anthropic' \
	'provider.p.url = http://127.0.0.1:9' >"$T/config/berthfs/config"

# Stands for Claude Code: its answer is all that it was ever told in this conversation.
cat >"$T/bin/claude" <<'END2'
#!/bin/bash
prompt=$(cat)
talk=talk-$RANDOM-$RANDOM-$$
[ -e "$SILENT" ] && { echo Aborted; exit 0; }
[[ " $* " == *" --resume "* ]] && { talk=${!#}; [ -e "$HOME/$talk" ] || { echo "No conversation found" >&2; exit 1; }; }
echo '{"type":"system","subtype":"init","session_id":"'$talk'"}'
tail -n 1 <<<"$prompt" >>"$HOME/$talk"
[[ $prompt == *fail* ]] && { echo "it went wrong here" >&2; exit 3; }
echo line >>"$HOME/project/b" && cd "$HOME/project" && git add b && git commit -qm "$(wc -l <b)"
[[ $prompt == *zz-stay* ]] && { echo '{"type":"assistant","message":{"content":[{"type":"text","text":"I begin"}]}}'; touch "$HOME/begun"; while [ -e "$HOLD" ]; do sleep 0.1; done; }
said=$(paste -sd ' ' "$HOME/$talk")
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"'$said'"}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"usage":{"input_tokens":100,"output_tokens":10}}'
END2
sed -i "s,\"\$HOLD\",\"$T/hold\",;s,\"\$SILENT\",\"$T/silent\"," "$T/bin/claude" # variables of the daemon do not reach the sandbox
chmod +x "$T/bin/claude"

new() { (cd "$P" && printf -- '---\nagent: claude\n---\n%s\n' "$2" >"$S/new/$1"); }
from() { printf -- '---\nfrom: %s\n---\n%s\n' "$2" "$3" >"$S/new/$1"; }
idle() { timeout 200 cat "$S/$1/wait/idle" >/dev/null; }
ctl() { echo "$2" >"$S/$1/ctl" && idle "$1"; }
# tells NAME WORDS WANTED: what the session's agent answers
tells() {
	echo "$2" >>"$S/$1/input" && idle "$1"
	equal "$1, $2: it knows what its disk knows" "$(cat "$S/$1/wait/reply")" "$3"
}
answer_is() { equal "$1: $3" "$(cat "$S/$1/wait/reply")" "$2"; }
setting() { cat "$S/$1/settings/$2"; }

start || exit 1

# ---- back, and forth again
new s one && idle s
answer_is s one "it answers"
ctl s snapshot # 1
tells s two "one two"
ctl s "restore 1" # 2 is what was before
contains "a restore is in the log" "$(cat "$S/s/log")" "restored snapshot 1"
tells s three "one three"
ctl s "restore 2" # 3
tells s four "one two four"
ctl s "restore 3" # 4
tells s five "one three five"

# ---- to a time before there was any conversation
printf '{"text":"from the engine"}\n' >"$T/script"
(cd "$P" && printf -- '---\nmodel: script:%s\n---\nzero\n' "$T/script" >"$S/new/e") && idle e
ctl e snapshot # 1
echo p/stub >"$S/e/settings/model" && echo claude >"$S/e/settings/agent"
tells e one one
tells e two "one two"
ctl e "restore 1" # 2
tells e three three
ctl e "restore 2" # 3
tells e four "one two four"
ctl e "restore 3"
tells e five "three five"

# ---- a prompt that failed is undone with its conversation
new f one && idle f
ctl f snapshot
echo "now fail" >>"$S/f/input" && idle f 2>/dev/null
contains "a failure" "$(cat "$S/f/status")" "it went wrong here"
ctl f "restore 1"
if grep -q failed "$S/f/status"; then not_ok "a restore ends the failure"; else ok "a restore ends the failure"; fi
tells f two "one two"

# ---- one that ends well and has not looked at its prompt has answered nothing: the prompt is kept for a retry
new n one && idle n
touch "$T/silent"
echo three >>"$S/n/input" && idle n 2>/dev/null
contains "an agent that is silent" "$(cat "$S/n/status")" "claude has ended without a word of the prompt"
rm "$T/silent"
ctl n retry
answer_is n three "a retry asks it again"

# ---- another session begins as it
from t s six && idle t
answer_is t "one three five six" "a session that begins from it goes on with its conversation"
equal "by the same agent" "$(setting t agent)" claude
tells s seven "one three five seven"
tells t eight "one three five six eight"
from u t nine && idle u
answer_is u "one three five six eight nine" "and one that begins from that"
contains "it has the other's work" "$(git -C "$P" log --format=%s "sandbox/$(cat "$S/u/id")" | wc -l)" 7
ctl u snapshot
tells u ten "one three five six eight nine ten"
ctl u "restore 1"
tells u eleven "one three five six eight nine eleven"

# ---- as one whose agent works just now: it knows what was asked there, and answers what is asked here alone
touch "$T/hold"
new w one && idle w
echo "zz-stay" >>"$S/w/input"
begun() { [ -e "$T/state/berthfs/sandboxes/$(cat "$S/w/id")/home/begun" ]; } # it has said its words, and committed
check "an agent works" within 100 begun
from v w two
within 100 grep -q "the sandbox is ready" "$S/v/log" || not_ok "one begins as it"
rm "$T/hold"
idle v && idle w
answer_is v "one zz-stay two" "a session that begins while its agent works"
answer_is w "one zz-stay" "which goes on there"

# ---- killed at each step
stop
for point in snapshot.copied restore.moved restore.copied clone.copied; do
	BERTHFS_KILL_AT=$point start || exit 1
	name=k-$(echo $point | tr . -)
	new "$name" one && idle "$name"
	case $point in
	snapshot*) echo snapshot >"$S/$name/ctl" ;;
	restore*)
		ctl "$name" snapshot
		tells "$name" two "one two"
		echo "restore 1" >"$S/$name/ctl"
		;;
	clone*) from "$name-2" "$name" three ;;
	esac
	check "$point: the daemon dies" within 100 is_gone "$DAEMON"
	start || exit 1
	case $point in
	snapshot*)
		idle "$name"
		tells "$name" two "one two"
		ctl "$name" "restore 1"
		tells "$name" three "one three"
		ctl "$name" "restore 2"
		tells "$name" four "one two four"
		;;
	restore*)
		idle "$name"
		tells "$name" three "one three"
		ctl "$name" "restore 2"
		tells "$name" four "one two four"
		;;
	clone*)
		idle "$name-2"
		answer_is "$name-2" "one three" "$point: the new one has the conversation"
		tells "$name" two "one two"
		;;
	esac
	stop
done

# ---- killed without a plan, just after each request
for i in 1 3; do
	start || exit 1
	name=r$i
	new $name one && idle $name
	ctl $name snapshot
	tells $name two "one two"
	echo "restore 1" >"$S/$name/ctl"
	sleep 0.0$i
	kill -9 "$DAEMON"
	within 100 is_gone "$DAEMON"
	start || exit 1
	idle $name
	tells $name three "one three"
	from $name-2 $name four
	kill -9 "$DAEMON"
	within 100 is_gone "$DAEMON"
	start || exit 1
	idle $name-2
	answer_is $name-2 "one three four" "the new one, killed at once"
	stop
done
