#!/bin/sh
# The main job, with VMs.
KIND=vm exec sh "$(dirname "$0")/../e2e/10-main.sh"
