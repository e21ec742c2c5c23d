#!/bin/sh
# One fuzz target for some seconds (FUZZ_SECONDS, default 8), or its seeds alone.
# usage: run-one.sh PROGRAM NAME fuzz|replay
set -u
here=$(cd "$(dirname "$0")" && pwd)
program=$1 name=$2 how=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/corpus" "$work/found"

# Seeds: a line of NAME.seeds is one input (printf escapes); the sources serve as ordinary text.
if [ -f "$here/$name.seeds" ]; then
	n=0
	while IFS= read -r line; do
		n=$((n + 1))
		printf '%b' "$line" >"$work/corpus/$n"
	done <"$here/$name.seeds"
fi
cp "$here"/*.c "$here"/*.sh "$work/corpus/"

if [ "$how" = fuzz ]; then
	"$program" -max_total_time="${FUZZ_SECONDS:-8}" -timeout=60 -rss_limit_mb=2048 -max_len=65536 \
		-artifact_prefix="$work/found/" "$work/corpus" >"$work/log" 2>&1
	code=$?
	runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$work/log")
else
	"$program" "$work"/corpus/* >"$work/log" 2>&1
	code=$?
	runs=$(find "$work/corpus" -type f | wc -l)
fi
if [ $code = 0 ]; then
	echo "ok $name: ${runs:-?} inputs"
else
	tail -n 40 "$work/log" | sed 's/^/# /'
	for f in "$work"/found/*; do
		[ -f "$f" ] && { echo "# the input, in base64:" && base64 "$f" | head -n 20 | sed 's/^/# /'; }
	done
	echo "not ok $name"
fi
exit $code
