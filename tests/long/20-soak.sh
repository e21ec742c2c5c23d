#!/bin/sh
# The soak of the mount suite at length, under ASan and UBSan: no leak, no report, bounded memory. SOAK seconds (1800).
# time limit: 5400 s
cd "$(dirname "$0")/../.." || exit 1
build=$PWD/build-asan
if [ ! -f "$build/build.ninja" ]; then
	meson setup "$build" -Db_sanitize=address,undefined >/dev/null || exit 1
fi
ninja -C "$build" berthfs >/dev/null || { echo "not ok build: build-asan does not compile"; exit 1; }
reports=$(mktemp -d "${TMPDIR:-/tmp}/berthfs-reports-XXXXXX") || exit 1
trap 'rm -rf "$reports"' EXIT
BERTHFS=$build/berthfs SOAK=${SOAK:-1800} SOAK_RSS_KIB=${SOAK_RSS_KIB:-900000}
ASAN_OPTIONS=log_path=$reports/san:detect_leaks=1:detect_stack_use_after_return=1:quarantine_size_mb=32
UBSAN_OPTIONS=log_path=$reports/san:halt_on_error=1:print_stacktrace=1
export BERTHFS SOAK SOAK_RSS_KIB ASAN_OPTIONS UBSAN_OPTIONS
sh tests/mount/98-soak.sh
code=$?
set -- "$reports"/*
if [ -f "$1" ]; then
	sed 's/^/# /' "$@" | head -n 200
	echo "not ok 20-soak: no report of a sanitizer, and no leak"
	exit 1
fi
echo "ok 20-soak: no report of a sanitizer, and no leak"
exit $code
