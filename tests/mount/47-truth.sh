#!/bin/sh
# What the kernel keeps of names and attributes is never older than the last change. Runs the face with
# tests/unit/fake_backend.c; with and without the helper that makes events.
dir=$(dirname "${BERTHFS:-$(dirname "$0")/../../build/berthfs}")/tests
BERTHFS=$dir/berthfs-fake
. "$(dirname "$0")/../lib.sh"
mkdir -p "$T/state/berthfs"
tell() { while read -r a; do
	case $a in "not ok "*) not_ok "$1: ${a#not ok }" ;; "ok "*) ok "$1: ${a#ok }" ;; *) note "${a#\# }" ;; esac
done <"$T/out"; }
for options in "" "-o nowatch"; do
	echo "sessions 5 0" >"$T/state/berthfs/fake"
	start $options || exit 1
	timeout 60 "$dir/truth" "$S" "${SECONDS_EACH:-5}" >"$T/out"
	tell "${options:-watched}"
	equal "${options:-watched}: what is listed" "$(ls "$S" | grep -v "comes\|renamed" | tr '\n' ' ')" "new s s-1 s-2 s-3 s-4 "
	stop
done

# ---- it is kept at all
start || exit 1
if have strace && strace -o /dev/null true 2>/dev/null; then
	stat "$S/s/status" >/dev/null
	stat "$S/s/status" >/dev/null
	timeout 5 strace -f -e trace=read,readv,splice -o "$T/trace" -p "$DAEMON" 2>"$T/err" &
	tracer=$!
	own $tracer
	attached() { grep -q attached "$T/err"; }
	within 5 attached
	python3 -c 'import os, sys
for i in range(100): os.stat(sys.argv[1])' "$S/s/status"
	kill $tracer
	wait $tracer 2>/dev/null
	n=$(grep -c "= [0-9][0-9]" "$T/trace")
	check "a hot stat asks nobody" test "$n" -lt 50
else
	skip "a hot stat asks nobody" "no strace"
fi
