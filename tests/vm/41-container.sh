#!/bin/sh
# A container: what env promises, files, jobs, restarts; the way to the gateway, and that there is no other.
# time limit: 600 s
cd "$(dirname "$0")" || exit 1
BERTHFS=${BERTHFS:-$PWD/../../build/berthfs}
for test in test_env test_env_file test_env_guard test_env_net test_env_restart; do
	BERTHFS_TEST_KIND=container "$(dirname "$BERTHFS")/tests/$test" || failed=1
done
KIND=container python3 ../gateway/inside.py || failed=1
exit "${failed:-0}"
