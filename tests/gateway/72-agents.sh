#!/bin/sh
# time limit: 900 s
# Agents of their own in sandboxes of kind dir: the real ones, and what happens to a session around them.
cd "$(dirname "$0")" || exit 1
command -v npm >/dev/null || { echo "skip agents: there is no npm on this machine"; exit 0; }
[ "$(node -p 'parseInt(process.versions.node)')" -ge 20 ] || { echo "skip agents: they need Node 20"; exit 0; }
CLIENTS=$(sh ../clients.sh) || { echo "not ok the agents can be installed"; exit 1; }
export CLIENTS
CARRIED=pi KIND=dir exec python3 agents.py
