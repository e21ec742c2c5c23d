#!/bin/sh
# A new version takes over from an old one: what ran in sandboxes goes on and is collected, whatever became of the old
# program's file. The old one is the same program with another version written into it. KIND=vm: the same with a VM.
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

if [ "${KIND:-dir}" = vm ]; then
	use_vm
	rounds=removed sessions=a
	command='for i in $(seq 20); do sleep 1; done; echo collected $$'
	began() { grep -q '^running bash' "$S/$1/status"; }
else
	rounds='stays replaced removed' sessions='a b'
	command="echo run >>$T/runs-\$(basename \$PWD); while [ ! -e $T/go ]; do sleep 0.05; done; echo collected \$\$"
	# began NAME COUNT: so many run by now; until a command has said so its process may still look like that of the tools
	began() { grep -q '^running bash' "$S/$1/status" && [ "$(cat "$T"/runs-* 2>/dev/null | wc -l)" -ge "${2:-1}" ]; }
fi
printf '{"tools":[{"name":"bash","input":{"command":"%s","timeout":120}}]}\n{"text":"first done"}\n{"text":"and more"}\n' \
	"$command" >"$T/script"
version() { sed -n 's/^version //p' "$M/status"; }

# round HOW: between the two daemons the old program's file is replaced, removed, or stays.
round() {
	rm -f "$T/go" "$T"/runs-*
	BERTHFS=$T/run1/berthfs
	mkdir -p "$T/run1"
	cp "$T/v1/berthfs" "$T/run1/berthfs"
	start || {
		not_ok "$1: mount"
		return
	}
	equal "$1: the old version serves" "$(version)" "$OLD"
	case $sessions in *b*) (cd "$P" && echo hello >"$S/new/a-$1") && check "$1: a command runs" within 30 began "a-$1" ;; esac
	case $1 in
	replaced) cp "$T/v2/berthfs" "$T/run1/next" && mv "$T/run1/next" "$T/run1/berthfs" ;;
	removed) rm -r "$T/run1" ;;
	esac
	# The old daemon goes on with what its program's file has become.
	last=${sessions##* }-$1
	(cd "$P" && echo hello >"$S/new/$last")
	check "$1: the old daemon starts sandboxes still" within 90 began "$last" "$(echo $sessions | wc -w)"
	echo 'while it runs' >>"$S/a-$1/input"
	pids=$(sandbox_pids)
	check "$1: there are sandboxes" test -n "$pids"
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
	for name in $sessions; do
		equal "$1: $name goes on" "$(timeout 60 cat "$S/$name-$1/wait/reply" "$S/$name-$1/wait/idle" | tail -n 1)" idle
		equal "$1: $name's command is collected, once" "$(grep -c '^collected [0-9]' "$S/$name-$1/transcript")" 1
	done
	equal "$1: it ran once in each" "$(cat "$T"/runs-* 2>/dev/null | wc -l)" "$([ "$sessions" = a ] && echo 0 || echo 2)"
	equal "$1: the message is there once" "$(grep -c '^while it runs' "$S/a-$1/transcript")" 1
	check "$1: the tools run on" grep -q "running" "$S/a-$1/sandbox"
	for name in $sessions; do echo destroy force >"$S/$name-$1/ctl"; done
	stop
}
for how in $rounds; do round $how; done
no_sandbox() { [ -z "$(sandbox_pids)" ]; }
check "no sandbox is left" within 20 no_sandbox
DAEMON=
