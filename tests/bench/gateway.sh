#!/bin/sh
# The gateway beside nginx; the figures and their bars are in gateway.py. time limit: 600 s
cd "$(dirname "$0")" || exit 1
exec python3 gateway.py
