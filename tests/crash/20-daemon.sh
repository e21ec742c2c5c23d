#!/bin/sh
# kill -9 of the daemon on a real mount: while preparing, during a turn, during a long command, and during each step of a
# ship. After `berthfs mount` again every message is answered once, the command ran once and its output is complete, the
# ship ends. KIND=vm, container: the same with those. time limit: 900 s
. "$(dirname "$0")/../lib.sh"
[ "${KIND:-dir}" = dir ] || use_image "$KIND"

git init -q --bare -b main "$T/remote.git"
mkdir "$P/.agents"
echo '{"checks":[{"name":"there","command":"sleep 1; test -f a.txt"}]}' >"$P/.agents/project.json"
(cd "$P" && git add . && git commit -qm checks && git remote add origin "$T/remote.git" && git push -q -u origin main)

# kill_when NAME COMMAND...: waits for the command to succeed, then kills the daemon and mounts again.
kill_when() {
	kill_name=$1
	shift
	within 60 "$@" || not_ok "$kill_name: it came so far"
	kill -9 "$DAEMON" 2>/dev/null
	within 20 is_gone "$DAEMON" || not_ok "$kill_name: the daemon is dead"
	start || { not_ok "$kill_name: it mounts again"; exit 1; }
}
status_is() { grep -q "$2" "$S/$1/status"; }
new() { (cd "$P" && printf -- '---\nmodel: script:%s\n---\n%s\n' "$T/$1.script" "$2" >"$S/new/$1"); }
idle() { timeout 120 cat "$S/$1/wait/idle" >/dev/null; }
answered() {
	check "$1: it becomes idle" idle "$1"
	equal "$1: each message stands once" "$(grep -c '"kind":"user"' "$S/$1/transcript.jsonl")" "$2"
	equal "$1: each is answered" "$(grep -c '"kind":"assistant".*"calls":0' "$S/$1/transcript.jsonl")" "$2"
}

start || exit 1

# ---- while preparing
printf '{"text":"one"}\n{"text":"two"}\n{"text":"three"}\n' >"$T/prepare.script"
new prepare first
echo second >>"$S/prepare/input"
kill_when prepare true
echo third >>"$S/prepare/input"
answered prepare 3
equal "prepare: in order" "$(sed -n 's/.*"kind":"user".*"text":"\([a-z]*\).*/\1/p' "$S/prepare/transcript.jsonl" | tr '\n' ' ')" "first second third "

# ---- at each step of that, or just after
for step in waiting cloning starting; do
	printf '{"text":"one"}\n' >"$T/at-$step.script"
	new "at-$step" go
	kill_when "at-$step" status_is "at-$step" "^preparing $step\|^running\|^idle"
	answered "at-$step" 1
done

# ---- during a turn
printf '{"text":"a slow answer in many words, which streams for a while","delay_ms":3000}\n{"text":"end"}\n' >"$T/turn.script"
new turn go
kill_when turn status_is turn '^running'
answered turn 1
contains "turn: the same request is answered" "$(cat "$S/turn/transcript")" "a slow answer"

# ---- during a long command
cat >"$T/command.script" <<-'END'
	{"tools":[{"name":"bash","input":{"command":"for i in $(seq 20); do echo line $i; sleep 1; done; echo once >> count.txt; git add .; git commit -qm count"}}]}
	{"text":"done"}
END
new command go
within 60 status_is command '^running bash'
kill_when command sleep 3
answered command 1
equal "command: its output is complete" "$(grep -c "^line [0-9]*$" "$S/command/transcript")" 20
equal "command: it ran once" "$(git -C "$P" show "sandbox/$(cat "$S/command/id"):count.txt")" once

# ---- during a ship: at each of its steps
for point in fetching asking verifying checking pushing pushed; do
	name=ship-$point
	cat >"$T/$name.script" <<-END
		{"tools":[{"name":"bash","input":{"command":"echo $point > $point.txt; git add . && git commit -qm $point"}}]}
		{"text":"made"}
		{"tools":[{"name":"bash","input":{"command":"sleep 1; git rebase refs/berthfs/base"}}]}
		{"text":"ready\nSHIP-READY"}
	END
	new "$name" go
	idle "$name"
	case $point in
	pushing | pushed) # the moment is too short to be seen from outside: a named point
		stop && BERTHFS_KILL_AT=ship.$point start || not_ok "$name: it mounts"
		echo >"$S/$name/ship"
		kill_when "$name" is_gone "$DAEMON"
		;;
	*)
		echo >"$S/$name/ship"
		# a step may be over between two looks
		if [ "$point" = fetching ]; then kill_when "$name" true; else kill_when "$name" status_is "$name" "shipping $point\|^idle"; fi
		;;
	esac
	check "$name: it ends" idle "$name"
	contains "$name: it landed" "$(cat "$S/$name/ship")" "landed main"
	equal "$name: one commit on the remote" "$(git -C "$T/remote.git" log --oneline main -- "$point.txt" | wc -l)" 1
	equal "$name: the remote has the session's head" "$(git -C "$T/remote.git" rev-parse main)" "$(git -C "$P" rev-parse "sandbox/$(cat "$S/$name/id")")"
done
equal "the work tree is untouched" "$(git -C "$P" status --porcelain; git -C "$P" log --oneline | wc -l)" 2
