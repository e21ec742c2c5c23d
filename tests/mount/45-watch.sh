#!/bin/sh
# Watchers see what the daemon changes: inotifywait, inotifywatch, entr, node, and python by the bare calls.
. "$(dirname "$0")/../lib.sh"
have inotifywait || { skip all "no inotifywait"; exit 0; }
have python3 || { skip all "no python3"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
printf '{"text":"one\\n```plan\\n- [>] a\\n```\\n"}\n{"text":"two"}\n{"text":"three"}\n' >"$T/script"
start || exit 1
session s hello || { not_ok "a session"; exit 1; }

# ---- inotifywait over the whole tree
inotifywait -m -r "$M" >"$T/events" 2>"$T/err" &
pid=$!
own $pid
established() { grep -q established "$T/err"; }
within 10 established
saw() { grep -q "^$M/$1\$" "$T/events"; }
watched() { cat "/proc/$1/fdinfo/"* 2>/dev/null | grep -c '^inotify wd'; }
watches() { [ "$(watched "$1")" -ge "$2" ]; }
sees() { check "inotifywait: $1" within 5 saw "$1"; }
# Its folder is watched before it goes on: inotifywait sees nothing of what changes sooner.
mkdir "$P/.agents" && echo "until [ -e '$T/go' ]; do sleep 0.05; done" >"$P/.agents/setup"
had=$(watched $pid)
(cd "$P" && git add . && git commit -qm setup && echo hello >"$S/new/one")
sees "sessions/ CREATE,ISDIR one"
within 10 watches $pid $((had + $(find "$S/one" -type d ! -path '*/files/*' | wc -l) + 1)) # and that of its template
touch "$T/go"
timeout 60 cat "$S/one/wait/idle" >/dev/null
for file in index status events; do sees " *MODIFY $file"; done
for file in status transcript transcript.jsonl plan log queue sandbox; do sees "sessions/one/ MODIFY $file"; done
echo nonsense 2>/dev/null >"$S/one/ctl"
sees " *MODIFY error"
sees "sessions/one/ MODIFY error"
echo none >"$S/one/settings/network"
sees "sessions/one/settings/ MODIFY network"
grep -c "sessions/one/ .* input\$" "$T/events" >"$T/n"
equal "nothing of input, which nobody has written" "$(cat "$T/n")" 0
echo more >>"$S/one/input"
timeout 60 cat "$S/one/wait/idle" >/dev/null
sees "sessions/one/ CLOSE_WRITE,CLOSE input"
equal "a writer's own events of input, no others" \
	"$(grep "sessions/one/ .* input\$" "$T/events" | sed "s,.*/one/ ,," | tr '\n' ' ')" \
	"OPEN input MODIFY input CLOSE_WRITE,CLOSE input "
mv "$S/one" "$S/uno"
sees "sessions/ MOVED_TO,ISDIR uno"
echo third >>"$S/uno/input"
timeout 60 cat "$S/uno/wait/idle" >/dev/null
: >"$T/events"
echo nonsense 2>/dev/null >"$S/uno/ctl"
check "and goes on under its new name" within 5 grep -q "MODIFY error" "$T/events"
echo "destroy force" >"$S/uno/ctl"
check "destroyed: DELETE of its files" within 5 grep -q "DELETE transcript" "$T/events"
sees "sessions/ DELETE,ISDIR uno"
: >"$T/events"
session two hello
rmdir "$S/two"
sees "sessions/ DELETE,ISDIR two"
sees " *MODIFY index"
equal "once" "$(grep -c "sessions/ DELETE,ISDIR two" "$T/events")" 1
kill $pid

# ---- others
inotifywatch "$S/s/transcript" "$M/index" >"$T/watched" 2>/dev/null &
counter=$!
own $counter
within 5 watches $counter 2
if have node; then
	node -e 'let fs = require("fs"), w = fs.watch(process.argv[1]); w.on("change", (e, f) => { console.log(e, f); })
		setTimeout(() => process.exit(), 200000)' "$S/s" >"$T/node" &
	node=$!
	own $node
	within 5 watches $node 1
fi
if have entr; then
	ls "$S/s/status" | entr -n -p touch "$T/entr" &
	entr=$!
	own $entr
	within 5 watches $entr 1
fi
echo go on >>"$S/s/input"
timeout 60 cat "$S/s/wait/idle" >/dev/null
if have node; then
	check "node's fs.watch" within 5 grep -q "change transcript\$" "$T/node"
	kill $node
else
	skip "node's fs.watch" "no node"
fi
if have entr; then
	check "entr" within 5 test -f "$T/entr"
	kill $entr
else
	skip entr "no entr"
fi
for seconds in 3 30; do # for the last events of index; on a busy machine once more
	sleep $seconds
	kill $counter
	wait $counter
	counted="$(grep -c transcript "$T/watched") $(grep -c index "$T/watched")"
	[ "$counted" != "1 1" ] && [ $seconds = 3 ] || break
	inotifywatch "$S/s/transcript" "$M/index" >"$T/watched" 2>/dev/null &
	counter=$!
	own $counter
	within 5 watches $counter 2
	echo once more >>"$S/s/input"
	timeout 60 cat "$S/s/wait/idle" >/dev/null
done
equal "inotifywatch" "$counted" "1 1"

# ---- nobody else may
python3 "$here/watch.py" foreign "$S/s/status" >"$T/py"
while read -r a; do
	case $a in "not ok "*) not_ok "${a#not ok }" ;; "ok "*) ok "${a#ok }" ;; *) note "${a#\# }" ;; esac
done <"$T/py"
equal "touch of what is read only" "$(errno_of touch -c "$S/s/status")" EPERM
equal "mkdir in sessions" "$(errno_of mkdir "$S/x")" EPERM
equal "unlink in a session" "$(errno_of rm "$S/s/status")" EPERM
equal "rmdir in a session" "$(errno_of rmdir "$S/s/settings")" EPERM

# ---- switched off
stop
start -o nowatch || exit 1
: >"$T/err" # of the one before: it was established, too
inotifywait -m "$S/s" "$M" -e modify >"$T/events" 2>"$T/err" &
pid=$!
own $pid
within 10 established
echo quiet >>"$S/s/input"
timeout 60 cat "$S/s/wait/idle" >/dev/null
within 10 grep -q input "$T/events"
kill $pid
equal "-o nowatch: only the writer's own" "$(sed "s,.*/ *,," "$T/events" | sort -u)" "MODIFY input"
