#!/bin/sh
# time limit: 600 s
# Requests through a real gateway to a provider that speaks all three formats.
cd "$(dirname "$0")" || exit 1
exec python3 forward.py
