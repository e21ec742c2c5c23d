#!/bin/sh
# time limit: 7200 s
# Agents from npm in VMs without a network card; the key is nowhere in them. Programs of 200 MB: where processors are
# emulated, each takes some minutes; OpenCode (AGENTS=opencode) needs 30 times the processor there, and half an hour.
cd "$(dirname "$0")/../gateway" || exit 1
BERTHFS=${BERTHFS:-$PWD/../../build/berthfs}
export BERTHFS
command -v npm >/dev/null || { echo "skip agents: there is no npm on this machine"; exit 0; }
CLIENTS=$(sh ../clients.sh) || { echo "not ok the agents can be installed"; exit 1; }
export CLIENTS
timeout 1200 "$BERTHFS" image build >/dev/null || { echo "not ok the base image"; exit 1; }
AGENTS=${AGENTS:-codex claude} CARRIED= KIND=vm SLOW=1800 exec python3 agents.py
