#!/bin/sh
# Templates whose setup fetches packages by npm and pip, in VMs. time limit: 3600 s
cd "$(dirname "$0")/../gateway" || exit 1
KIND=vm WITH="npm pip" exec python3 templates.py
