#!/bin/sh
# Sessions in containers on a real mount: kill -9 of the daemon, snapshots and sessions that begin as another.
# time limit: 600 s
cd "$(dirname "$0")" || exit 1
KIND=container
export KIND
sh ../crash/20-daemon.sh || failed=1
sh ../mount/66-snapshot.sh || failed=1
exit "${failed:-0}"
