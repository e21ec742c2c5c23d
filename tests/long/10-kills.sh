#!/bin/sh
# 500 kills of the engine. time limit: 3600 s
ROUNDS=500 exec sh "$(dirname "$0")/../crash/10-engine.sh"
