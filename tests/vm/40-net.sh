#!/bin/sh
# The way from inside a VM to the gateway: its parts, unmodified clients, and that there is no other. time limit: 600 s
cd "$(dirname "$0")" || exit 1
BERTHFS=${BERTHFS:-$PWD/../../build/berthfs}
BERTHFS_TEST_KIND=vm "$(dirname "$BERTHFS")/tests/test_env_net" || failed=1
KIND=vm python3 ../gateway/inside.py || failed=1
exit "${failed:-0}"
