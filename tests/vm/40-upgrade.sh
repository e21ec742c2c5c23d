#!/bin/sh
# A new version takes over a VM and what runs in it. time limit: 900 s
KIND=vm exec sh "$(dirname "$0")/../mount/43-upgrade.sh"
