#!/bin/sh
# time limit: 600 s
# The tests stand in attacks.py.
cd "$(dirname "$0")" || exit 1
exec python3 attacks.py
