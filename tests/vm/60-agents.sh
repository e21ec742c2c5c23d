#!/bin/sh
# time limit: 900 s
# An agent of its own in a real VM: what it has is a token and the address of the gateway, and what it makes is shipped.
cd "$(dirname "$0")" || exit 1
exec python3 agents.py
