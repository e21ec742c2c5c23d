#!/bin/sh
# The daemon and its gateway: keys, tokens, sandboxes, and what dies when.
cd "$(dirname "$0")" || exit 1
exec python3 daemon.py
