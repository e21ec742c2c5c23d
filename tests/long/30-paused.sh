#!/bin/sh
# Twenty paused VMs use no processor time, and come back. time limit: 1200 s
exec "$(dirname "$0")/../../build/tests/paused"
