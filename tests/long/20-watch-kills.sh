#!/bin/sh
# time limit: 3600 s
# The watch helper and its daemon, killed forty times at full speed: no process may stay.
KILLS=40 exec sh "$(dirname "$0")/../mount/46-watch-hard.sh"
