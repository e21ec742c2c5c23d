#!/bin/sh
# Builds the static guest program: build.sh OUTPUT DEPFILE SOURCE-ROOT SOURCE...
# All sources in one call: the program is small, and it is then optimised as a whole.
set -eu
out=$1 dep=$2 top=$3
shift 3
# musl-gcc knows no kernel headers: the system's come last, so that libc's own win.
headers="-idirafter /usr/include -idirafter /usr/include/$(gcc -print-multiarch)"
# shellcheck disable=SC2086
musl-gcc -std=gnu17 -Os -flto -static -s -ffunction-sections -fdata-sections -Wl,--gc-sections \
	-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
	-I"$top" $headers -o "$out" "$@"
{
	printf '%s:' "$out"
	# shellcheck disable=SC2086
	for c; do
		musl-gcc -MM -D_GNU_SOURCE -I"$top" $headers "$c"
	done | sed 's/^[^ ]*://; s/\\$//' | tr '\n' ' '
	echo
} >"$dep"
