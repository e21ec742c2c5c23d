#!/bin/sh
# time limit: 900 s
# The tests stand in egress.py.
cd "$(dirname "$0")" || exit 1
exec python3 egress.py
