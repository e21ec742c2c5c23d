#!/bin/sh
# time limit: 900 s
# Templates whose setup fetches packages. The tests stand in templates.py.
cd "$(dirname "$0")" || exit 1
KIND=dir exec python3 templates.py
