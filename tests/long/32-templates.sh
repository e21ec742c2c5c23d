#!/bin/sh
# kill -9 of the daemon at each step of a template, with VMs. time limit: 3600 s
KIND=vm exec sh "$(dirname "$0")/../crash/30-templates.sh"
