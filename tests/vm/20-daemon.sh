#!/bin/sh
# kill -9 of the daemon on a real mount, with VMs. time limit: 900 s
KIND=vm exec sh "$(dirname "$0")/../crash/20-daemon.sh"
