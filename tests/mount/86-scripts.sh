#!/bin/sh
# contrib/ask and contrib/berth-watch on a real mount, and that they stop what they started.
. "$(dirname "$0")/../lib.sh"
ask() { timeout 60 ${SHELL_OF_ASK:-sh} "$ROOT/contrib/ask" "$@"; }
watch() { sh "$ROOT/contrib/berth-watch" "$@"; }
cat >"$T/script" <<'END'
{"text":"first answer"}
{"text":"second answer"}
{"text":"third answer"}
{"text":"fourth","delay_ms":60000}
{"text":"fifth","delay_ms":60000}
END

TMPDIR=$T/tmp
export TMPDIR
mkdir "$TMPDIR"

# ---- ask
out=$(ask s hi 2>&1)
equal "without a mount: 69" $? 69
contains "and what to do" "$out" "berthfs mount"
start || exit 1
ln -s "$M" "$T/a mount"
cd "$P" || exit 1
equal "a new session, text from the command line" "$(ask new/one 'What is' this? 2>"$T/err")" "first answer"
equal "its name is told" "$(cat "$T/err")" "ask: session one"
contains "the words became the message" "$(cat "$S/one/transcript")" "What is this?"
equal "a message from a pipe" "$(printf 'line 1\nline 2\n' | ask one)" "second answer"
contains "is one message" "$(cat "$S/one/transcript.jsonl")" '"text":"line 1\nline 2\n"'
equal "by number, text and a pipe" "$(echo 'the diff' | ask 1 'Look at' this: - 'and tell.')" "third answer"
contains "in order" "$(cat "$S/one/transcript.jsonl")" '"text":"Look at this:\nthe diff\nand tell.\n"'
equal "-n does not wait" "$(ask -n one later; echo $?)" 0
within 10 grep -q '^## user, message 4' "$S/one/transcript"
echo stop >"$S/one/ctl"
equal "a name is made of the message" "$(ask -n new 'Fix the LOGIN test, please: it fails.' 2>&1)" "ask: session fix-the-login-test"
equal "and another if it is taken" "$(ask -n new 'Fix the LOGIN test, please: it fails.' 2>&1)" "ask: session fix-the-login-test-2"
equal "a number alone becomes a name" "$(ask -n new 42 2>&1)" "ask: session session-42"
equal "no letters at all" "$(ask -n new 'Ärger?' 2>&1 | cut -d' ' -f 1-2)" "ask: session"
ln -s "$P" "$M/projects/app"
equal "of a registered project" "$(cd / && ask -n new/app/other hello 2>&1; cat "$S/other/project")" "ask: session other
$P"
out=$(ask nobody hi 2>&1)
equal "an unknown session: 66" $? 66
contains "and what to do" "$out" "ask new/nobody"
out=$(ask one '  ' 2>&1)
equal "an empty message: 65" "$? $out" "65 ask: the message is empty; nothing was sent"
echo nonsense >"$S/one/ctl" 2>/dev/null # older words in error
out=$(cd / && ask new/lost hello 2>&1)
equal "a refused one: 65" $? 65
contains "with the words of error" "$out" "project"
out=$(head -c 1100000 /dev/zero | tr '\0' x | ask one 2>&1)
equal "too long a one: 65" $? 65
contains "with the words of error" "$out" "1 MiB"
out=$(ask 2>/dev/null; ask -x 2>/dev/null; ask -m 2>/dev/null; ask ../x y 2>/dev/null; ask --help | head -n 1)
contains "usage" "$out" "usage: ask NAME"
echo '{"text":' >"$T/broken"
printf -- '---\nmodel: script:%s\n---\nhello\n' "$T/broken" | ask new/bad >"$T/out" 2>"$T/err"
equal "a failed session: 70, and its state" "$? $(cat "$T/out")$(grep -c 'failed: ' "$T/err")" "70 1"
ask one 'a long one' >"$T/out" 2>&1 &
pid=$!
runs() { grep -q ^running "$S/one/status"; }
check "one waits" within 10 runs
echo destroy force >"$S/one/ctl"
wait $pid
equal "the end of the session ends it: 75" $? 75
BERTH=$M; export BERTH
equal "BERTH names the mount" "$(ask -n fix-the-login-test more; echo $?)" 0
BERTH=/; out=$(ask -n x y 2>&1)
equal "a wrong one: 69" $? 69
equal "-m goes before" "$(ask -m "$T/a mount" -n fix-the-login-test more; echo $?)" 0
unset BERTH
equal "no file is left" "$(ls "$TMPDIR")" ""

# ---- berth-watch
timeout 60 cat "$S/other/wait/idle" >/dev/null
equal "-1 shows a line each, and only those named" "$(watch -1 other | sed 's/  */ /g; s/ [0-9]*m / 0m /')" \
	" $(cat "$S/other/id") other 0m $(cat "$S/other/status") ${P#"$HOME"}"
equal "all, without names" "$(watch -1 | wc -l)" "$(wc -l <"$M/index")"
equal "its width" "$(COLUMNS=30 watch -1 | awk 'length > 30' | wc -l)" 0
for how in inotifywait tail; do
	path=$PATH
	if [ $how = tail ]; then
		mkdir -p "$T/bin"
		for tool in sh awk sed id tail mktemp mkfifo rm stty cut env; do
			ln -sf "$(command -v $tool)" "$T/bin/$tool"
		done
		path=$T/bin
	elif ! have inotifywait; then
		skip "by inotifywait" "not there"
		continue
	fi
	PATH=$path /bin/sh "$ROOT/contrib/berth-watch" >"$T/seen" 2>&1 &
	pid=$!
	own $pid
	shows() { grep -q "$1" "$T/seen"; }
	check "$how: the first picture" within 10 shows "other "
	check "$how: a new session is seen" sh -c "cd '$P' && echo hi >'$S/new/seen-$how'" &&
		check "$how: within seconds" within 10 shows "seen-$how "
	timeout 60 cat "$S/seen-$how/wait/idle" >/dev/null
	last_shows() { tail -n "$(wc -l <"$M/index")" "$T/seen" | grep -q "$1"; }
	check "$how: the last picture has its state" within 10 last_shows "seen-$how *[0-9]*m  idle"
	ticks() { awk '{ print $14 + $15 + $16 + $17 }' "/proc/$1/stat"; }
	# A time in which it neither shows nor computes anything; the last events may still be coming in at first.
	is_quiet() {
		before="$(wc -c <"$T/seen") $(ticks $pid)"
		sleep 1.5
		[ "$(wc -c <"$T/seen") $(ticks $pid)" = "$before" ]
	}
	check "$how: when nothing changes it does nothing" within 8 is_quiet
	kill $pid
	wait $pid
	equal "$how: it ends" $? 143
	left() { for p in $(ps -e -o pid=,args= | awk -v m="$M" 'index($0, m "/index") || index($0, m "/events") { print $1 }'); do
		[ "$p" = $$ ] || echo "$p"; done; }
	none_left() { [ -z "$(left)" ]; }
	check "$how: and what it started" within 5 none_left
done
if have script; then
	for seconds in 2 20; do # a busy machine does not get that far in the two
		script -qec "COLUMNS=80 timeout -s INT $seconds sh '$ROOT/contrib/berth-watch'" /dev/null >"$T/seen" 2>&1 </dev/null
		! grep -q 'other ' "$T/seen" || break
	done
	check "on a terminal it draws in place, and gives the cursor back" sh -c \
		"grep -q 'other ' '$T/seen' && tail -c 40 '$T/seen' | grep -q '25h'"
fi
watch >"$T/seen" 2>&1 &
pid=$!
own $pid
within 10 shows "other "
cd /
stop
wait_gone() { ! kill -0 $pid 2>/dev/null; }
check "the end of the mount ends it" within 10 wait_gone
contains "with words" "$(cat "$T/seen")" "not mounted at"
out=$(watch -1 2>&1)
equal "without a mount: 69" $? 69
