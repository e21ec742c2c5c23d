#!/bin/sh
# time limit: 7200 s
# Agents from npm in containers, more than the default tests ask of them: each while the daemon is killed below it and when
# it is stopped; and of those that are not looked at there, what becomes of their conversations (vm/61-agents).
cd "$(dirname "$0")/../gateway" || exit 1
. ./npm.inc
AGENTS=${AGENTS:-pi claude codex opencode}
export AGENTS
CARRIED="pi opencode" KILLED=$AGENTS KIND=container SLOW=1800 exec python3 agents.py
