#!/bin/sh
# The engine killed at its named points and at random times (ROUNDS, default 50; SEED, default 1, "" for another one each
# time); crash.c has the oracle.
# time limit: 900 s
root=$(cd "$(dirname "$0")/../.." && pwd)
program=$(dirname "${BERTHFS:-$root/build/berthfs}")/tests/crash
[ -x "$program" ] || { echo "skip 10-engine: no program at $program; build first"; exit 0; }
exec "$program" "${ROUNDS:-50}" ${SEED-1}
