#!/bin/sh
# A new version takes over from an old one: what ran in sandboxes goes on and is collected, whatever became of the old
# program's file. The old one is the same program with another version written into it.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
NEW=$BERTHFS
V=$("$NEW" --version | cut -d' ' -f2)
mkdir "$T/v1" "$T/v2"
python3 - "$NEW" "$T/v1/berthfs" "$V" <<'END'
import re, sys
new, old, version = sys.argv[1:]
data = open(new, "rb").read()
other = b"0.0.9".ljust(len(version), b"x")[:len(version)]
data, n = re.subn(rb"(?<![0-9.])" + re.escape(version.encode()) + rb"(?=[\0\n])", other, data)
assert n
open(old, "wb").write(data)
END
chmod 755 "$T/v1/berthfs"
cp "$NEW" "$T/v2/berthfs"
OLD=$("$T/v1/berthfs" --version | cut -d' ' -f2)
check "the old program has another version" test -n "$OLD" -a "$OLD" != "$V"

cat >"$T/script" <<END
{"tools":[{"name":"bash","input":{"command":"echo run >>$T/runs; while [ ! -e $T/go ]; do sleep 0.05; done; echo collected \$\$","timeout":120}}]}
{"text":"first done"}
{"text":"and more"}
END
version() { sed -n 's/^version //p' "$M/status"; }
began() { [ "$(wc -l <"$T/runs" 2>/dev/null || echo 0)" = "$1" ]; }

# round HOW: between the two daemons the old program's file is replaced, removed, or stays.
round() {
	rm -f "$T/go"
	: >"$T/runs"
	BERTHFS=$T/run1/berthfs
	mkdir -p "$T/run1"
	cp "$T/v1/berthfs" "$T/run1/berthfs"
	start || {
		not_ok "$1: mount"
		return
	}
	equal "$1: the old version serves" "$(version)" "$OLD"
	(cd "$P" && echo hello >"$S/new/a-$1")
	check "$1: a command runs" within 30 began 1
	echo 'while it runs' >>"$S/a-$1/input"
	pids=$(sandbox_pids)
	case $1 in
	replaced) cp "$T/v2/berthfs" "$T/run1/next" && mv "$T/run1/next" "$T/run1/berthfs" ;;
	removed) rm -r "$T/run1" ;;
	esac
	# The old daemon goes on with what its program's file has become.
	(cd "$P" && echo hello >"$S/new/b-$1")
	check "$1: the old daemon starts sandboxes still" within 30 began 2
	BERTHFS=$T/v2/berthfs
	old=$DAEMON
	stop
	equal "$1: the new version ends the old daemon" $? 0
	check "$1: it is gone" within 5 is_gone "$old"
	left=$(sandbox_pids)
	for pid in $pids; do case " $(echo $left) " in *" $pid "*) ;; *) not_ok "$1: sandbox $pid is lost" ;; esac; done
	start
	equal "$1: the new version mounts" "$? $(version)" "0 $V"
	touch "$T/go"
	for name in a b; do
		equal "$1: $name goes on" "$(timeout 60 cat "$S/$name-$1/wait/reply" "$S/$name-$1/wait/idle" | tail -n 1)" idle
		check "$1: $name's command is collected" grep -q '^collected [0-9]' "$S/$name-$1/transcript"
	done
	equal "$1: it ran once in each" "$(wc -l <"$T/runs")" 2
	equal "$1: the message is there once" "$(grep -c '^while it runs' "$S/a-$1/transcript")" 1
	check "$1: the tools run on" grep -q "running" "$S/a-$1/sandbox"
	for name in a b; do echo destroy force >"$S/$name-$1/ctl"; done
	stop
}
for how in stays replaced removed; do round $how; done
equal "no sandbox is left" "$(sandbox_pids)" ""
DAEMON=
