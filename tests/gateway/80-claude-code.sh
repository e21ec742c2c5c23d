#!/bin/sh
# time limit: 1200 s
# The installed Claude Code as a model: the real program, as npm has it (tests/clients), against a provider of ours.
cd "$(dirname "$0")" || exit 1
command -v npm >/dev/null || { echo "skip claude-code: there is no npm on this machine"; exit 0; }
CLIENTS=$(sh ../clients.sh) || { echo "not ok the clients can be installed"; exit 1; }
export CLIENTS
exec python3 claude_code.py
