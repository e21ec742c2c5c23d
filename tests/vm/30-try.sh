#!/bin/sh
# contrib/try.sh, with VMs. time limit: 900 s
KIND=vm exec sh "$(dirname "$0")/../e2e/30-try.sh"
