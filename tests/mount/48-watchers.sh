#!/bin/sh
# The watchers that people run see what the daemon changes: files that grow or change, sessions that come and go. All of
# them look at one mount at the same time.
. "$(dirname "$0")/../lib.sh"
cat >"$T/script" <<'END'
{"text":"one\n```plan\n- [>] a\n```\n"}
{"text":"two\n```plan\n- [x] a\n```\n"}
{"text":"three"}
END
start || exit 1
session before hello || { not_ok "a session"; exit 1; }
# watcher NAME PROGRAM READY COMMAND: runs it in the background, its output goes to $T/NAME.out; READY is a pattern there.
running=
watcher() {
	if ! have "$2"; then
		skip "$1" "no $2"
		return
	fi
	sh -c "exec $4" >"$T/$1.out" 2>&1 </dev/null &
	eval "pid_$1=$!"
	own $!
	if within 20 grep -qs "$3" "$T/$1.out"; then
		running="$running $1"
	else
		not_ok "$1 starts"
		cat "$T/$1.out"
	fi
}
watches() { [ "$(cat "/proc/$1/fdinfo/"* 2>/dev/null | grep -c '^inotify wd')" -ge "$2" ]; }
# sees NAME WHAT PATTERN: its output has that soon.
sees() {
	case " $running " in *" $1 "*) ;; *) return ;; esac
	if within 10 grep -qE "$3" "$T/$1.out"; then
		ok "$1: $2"
	else
		not_ok "$1: $2"
		note "no $3 in:"
		sed "s,$M/,,g; s/^/# /" "$T/$1.out" | sort | uniq -c | sort -rn | head -n 14
	fi
}
cat >"$T/node.js" <<'END'
const fs = require("fs"), [m, how] = process.argv.slice(2);
const watch = how == "tree" ? [[m, { recursive: true }, ""]] : ["", "sessions", "sessions/before", "sessions/before/status"].map((d) =>
	[d ? m + "/" + d : m, {}, d + "/"]);
try {
	for (const [path, options, prefix] of watch)
		fs.watch(path, options).on("change", (e, f) => console.log(e, prefix + f))
			.on("error", (e) => console.log("error", e.code)); // a folder that has gone before it was looked at
	setTimeout(() => console.log("ready"), 300);
} catch (e) {
	console.log(e.code == "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM" ? "cannot" : e);
}
setTimeout(() => process.exit(), 600000);
END
watcher inotifywait inotifywait established "inotifywait -m -r '$M'"
watcher node node ready "node '$T/node.js' '$M' files"
if have node && [ "$(node -p 'parseInt(process.versions.node)')" -ge 20 ]; then
	watcher nodetree node ready "node '$T/node.js' '$M' tree"
else
	skip nodetree "no node that watches a tree"
fi
if have fswatch; then
	watcher fswatch fswatch "" "fswatch -r -l 0.2 --event-flags '$M'"
	within 10 watches "$pid_fswatch" 7 || not_ok "fswatch starts"
else
	skip fswatch "no fswatch"
fi
# What VS Code watches with. It is fetched; where that is not possible, it is not tested.
if ! have npm; then
	skip parcel "no npm"
elif (mkdir "$T/npm" && cd "$T/npm" && timeout 60 npm install --ignore-scripts --no-audit --no-fund @parcel/watcher@2.5.1) >"$T/npm.out" 2>&1; then
	cat >"$T/npm/watch.js" <<-'END'
		const m = process.argv[2];
		require("@parcel/watcher").subscribe(m, (error, events) => {
			if (error) console.log(error);
			for (const e of events || []) console.log(e.type, e.path.slice(m.length + 1));
		}).then(() => console.log("ready"));
		setTimeout(() => process.exit(), 600000);
	END
	watcher parcel node ready "node '$T/npm/watch.js' '$M'"
else
	skip parcel "npm cannot fetch it"
fi
if have watchman; then
	wm() { watchman --statefile="$T/wm.state" --sockname="$T/wm.sock" --logfile="$T/wm.log" --pidfile="$T/wm.pid" --no-pretty "$@"; }
	watchman --foreground --statefile="$T/wm.state" --sockname="$T/wm.sock" --logfile="$T/wm.log" --pidfile="$T/wm.pid" >"$T/wm.out" 2>&1 &
	own $!
	watching() { wm --no-spawn watch "$M" >"$T/wm.out" 2>&1; }
	if within 10 watching; then
		running="$running watchman"
		clock=$(wm clock "$M" | sed 's/.*"clock":"\([^"]*\)".*/\1/')
	else
		not_ok "watchman starts"
		cat "$T/wm.out" "$T/wm.log"
	fi
	since() { wm since "$M" "$clock" | tr '{' '\n' >"$T/watchman.out"; }
else
	skip watchman "no watchman"
	since() { :; }
fi
if have entr; then
	echo "$S/before/transcript" | entr -n -p cp "$S/before/transcript" "$T/entr.copy" 2>/dev/null &
	entr=$!
	own $entr
	echo "$S" | entr -n -d true 2>"$T/entr.dir" & # ends when the directory has a new entry
	entr_dir=$!
	own $entr_dir
	# entr forgets what happens before its first run has ended: it is ready when it waits without end (ppoll: no time given).
	waits() { grep -qE '^(7 0x[0-9a-f]+ 0x1 0xf{8,16}|73 0x[0-9a-f]+ 0x1 0x0) ' "/proc/$1/syscall" 2>/dev/null; }
	within 20 waits $entr && within 20 waits $entr_dir && running="$running entr" || not_ok "entr starts"
else
	skip entr "no entr"
fi

# ---- what happens: a session comes, another one answers, one is renamed, one goes
session later hello
echo more >>"$S/before/input"
timeout 30 cat "$S/before/wait/idle" >/dev/null
: >"$S/before/error"
echo nonsense 2>/dev/null >"$S/before/ctl"
{ cat "$M/config"; echo "after-run = none"; } >"$T/c" && cp "$T/c" "$M/config"

for file in status events index config; do
	sees inotifywait "/$file changes" "^$M/ MODIFY $file"
	sees node "/$file changes" "^change /$file$"
	sees nodetree "/$file changes" "^change $file$"
	sees parcel "/$file changes" "^update $file$"
	sees fswatch "/$file changes" "^$M/$file .*Updated"
done
for file in status transcript transcript.jsonl plan sandbox error; do
	sees inotifywait "$file changes" "sessions/before/ MODIFY $file$"
	sees node "$file changes" "^change sessions/before/$file$"
	sees nodetree "$file changes" "^change sessions/before/$file$"
	sees parcel "$file changes" "^update sessions/before/$file$"
	sees fswatch "$file changes" "sessions/before/$file .*Updated"
	changed() { since && grep -q "\"sessions/before/$file\"" "$T/watchman.out"; }
	case $running in *watchman*) check "watchman: $file changes" within 10 changed ;; esac
done
sees node "a watch of the file alone" "^change sessions/before/status/status$"
sees inotifywait "a session comes" "/sessions/ CREATE,ISDIR later$"
sees node "a session comes" "^rename sessions/later$"
sees nodetree "a session comes" "^rename sessions/later$"
sees parcel "a session comes" "^create sessions/later$"
sees fswatch "a session comes" "/sessions/later .*Created"
made() { since && grep -q '"sessions/later"' "$T/watchman.out" && grep -q '"sessions/later/transcript"' "$T/watchman.out"; }
case $running in
*watchman*) check "watchman: a session comes" within 10 made ;;
esac
case $running in
*entr*)
	copied() { grep -q more "$T/entr.copy" 2>/dev/null; }
	check "entr: runs what it was told" within 10 copied
	check "entr -d: a session comes" within 10 is_gone $entr_dir
	kill $entr
	;;
esac
# What a new session changes is seen too, by those that watch whole trees.
echo more >>"$S/later/input"
timeout 30 cat "$S/later/wait/idle" >/dev/null
for name in inotifywait nodetree parcel fswatch; do sees $name "a new session changes" 'sessions/later/( MODIFY )?transcript( .*Updated)?$'; done

echo "destroy force" >"$S/later/ctl"
sees inotifywait "a session goes" "/sessions/ DELETE,ISDIR later$"
sees inotifywait "its files before it" "/sessions/later/ DELETE transcript$"
gone_for_node() { [ "$(grep -c '^rename sessions/later$' "$T/node.out")" -ge 2 ]; }
case $running in *node*) check "node: a session goes" within 10 gone_for_node ;; esac
sees nodetree "a session goes" "^rename sessions/later/transcript$"
sees parcel "a session goes" "^delete sessions/later$"
sees fswatch "a session goes" "/sessions/later .*Removed"
removed() { since && grep -qE '"sessions/later",.*"exists":false|"exists":false.*"sessions/later"' "$T/watchman.out"; }
case $running in *watchman*) check "watchman: a session goes" within 10 removed ;; esac
for name in $running; do
	eval "pid=\${pid_$name:-}"
	[ -z "$pid" ] || kill -0 "$pid" 2>/dev/null || { not_ok "$name: still there" && tail -n 12 "$T/$name.out"; }
done
