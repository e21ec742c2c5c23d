#!/bin/sh
# time limit: 7200 s
# Agents from npm in VMs without a network card; the key is nowhere in them. Programs of 200 MB: where processors are
# emulated, each takes some minutes.
cd "$(dirname "$0")/../gateway" || exit 1
. ./npm.inc
AGENTS=${AGENTS:-codex claude opencode} CARRIED= KIND=vm SLOW=1800 exec python3 agents.py
