#!/bin/sh
# time limit: 600 s
# Programs in a sandbox of kind dir reach the gateway. The tests stand in inside.py.
cd "$(dirname "$0")" || exit 1
KIND=dir exec python3 inside.py
