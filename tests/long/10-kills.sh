#!/bin/sh
# 500 kills of the engine, with two VMs among its sandboxes. time limit: 7200 s
SEED= CRASH_VMS=2 ROUNDS=500 exec sh "$(dirname "$0")/../crash/10-engine.sh"
