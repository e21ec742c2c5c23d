#!/bin/sh
# contrib/try.sh, with VMs.
KIND=vm exec sh "$(dirname "$0")/../e2e/30-try.sh"
