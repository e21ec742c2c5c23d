#!/bin/sh
# Fifty copies of one VM that has booted before: none has anything in common with another that must be its own.
# time limit: 3600 s
LONG=1 exec "$(dirname "$0")/../../build/tests/test_warm"
