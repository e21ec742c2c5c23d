#!/bin/sh
# time limit: 900 s
# Sessions whose model is served by a provider, through a real mount and a real gateway: each format, with every fault.
cd "$(dirname "$0")" || exit 1
exec python3 models.py
