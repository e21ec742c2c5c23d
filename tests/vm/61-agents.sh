#!/bin/sh
# time limit: 1500 s
# Agents from npm in containers, which are like VMs for them but as fast as the machine: no network card, a token alone.
# Their conversations go where the disk goes: back with `restore`, over to a session that begins `from` another one.
cd "$(dirname "$0")/../gateway" || exit 1
BERTHFS=${BERTHFS:-$PWD/../../build/berthfs}
export BERTHFS
command -v npm >/dev/null || { echo "skip agents: there is no npm on this machine"; exit 0; }
CLIENTS=$(sh ../clients.sh) || { echo "not ok the agents can be installed"; exit 1; }
export CLIENTS
timeout 1200 "$BERTHFS" image build >/dev/null || { echo "not ok the base image"; exit 1; }
CARRIED="claude codex" AGENTS="claude codex" KIND=container exec python3 agents.py
