#!/bin/sh
# A template whose setup fetches something through the gateway, in VMs. time limit: 900 s
cd "$(dirname "$0")/../gateway" || exit 1
KIND=vm WITH=curl exec python3 templates.py
