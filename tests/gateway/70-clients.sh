#!/bin/sh
# time limit: 1500 s
# Real clients through the gateway. The tests stand in clients.py; tests/run.sh has installed the clients before.
cd "$(dirname "$0")" || exit 1
command -v npm >/dev/null || { echo "skip clients: there is no npm on this machine"; exit 0; }
[ "$(node -p 'parseInt(process.versions.node)')" -ge 20 ] || { echo "skip clients: they need Node 20"; exit 0; }
CLIENTS=$(sh ../clients.sh) || { echo "not ok the clients can be installed"; exit 1; }
export CLIENTS
exec python3 clients.py
