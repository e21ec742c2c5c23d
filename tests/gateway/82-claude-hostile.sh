#!/bin/sh
# time limit: 900 s
# A program in the place of Claude Code that prints garbage, floods, asks for tools, hangs, dies: sessions fail in words or
# go on, and nothing that it prints is done.
cd "$(dirname "$0")" || exit 1
[ -x /usr/bin/python3 ] || { echo "skip claude-hostile: there is no /usr/bin/python3 for the jail"; exit 0; }
exec python3 claude_hostile.py
