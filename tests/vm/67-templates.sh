#!/bin/sh
# Templates of containers: a setup that fetches something through the gateway, and kill -9 of the daemon at each step.
# time limit: 900 s
cd "$(dirname "$0")/../gateway" || exit 1
KIND=container WITH=curl python3 templates.py || failed=1
KIND=container sh ../crash/30-templates.sh || failed=1
exit "${failed:-0}"
