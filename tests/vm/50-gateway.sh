#!/bin/sh
# The daemon and its gateway with VMs: tokens, what dies when, and that the key is in no guest's memory either.
# time limit: 900 s
cd "$(dirname "$0")/../gateway" || exit 1
KIND=vm exec python3 daemon.py
