#!/bin/sh
# time limit: 600 s
# The daemon and its gateway: keys, tokens, sandboxes, and what dies when.
cd "$(dirname "$0")" || exit 1
exec python3 daemon.py
