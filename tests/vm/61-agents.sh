#!/bin/sh
# time limit: 1500 s
# Agents from npm in containers, which are like VMs for them but as fast as the machine: no network card, a token alone.
# Their conversations go where the disk goes: back with `restore`, over to a session that begins `from` another one.
cd "$(dirname "$0")/../gateway" || exit 1
. ./npm.inc
CARRIED="claude codex" AGENTS="claude codex" KIND=container exec python3 agents.py
