#!/bin/sh
# time limit: 900 s
# Where a conversation comes near to what its model takes, the provider counts its tokens, through the gateway.
cd "$(dirname "$0")" || exit 1
exec python3 count.py
