#!/bin/sh
# Clients and providers of the gateway that are too slow, over its whole limits of time. time limit: 900 s
cd "$(dirname "$0")/../gateway" || exit 1
exec python3 slow.py
