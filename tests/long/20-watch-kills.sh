#!/bin/sh
# time limit: 3600 s
# The watch helper and its daemon, killed two hundred times at full speed: no process may stay.
KILLS=200 exec sh "$(dirname "$0")/../mount/49-watch-kills.sh"
