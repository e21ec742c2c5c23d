#!/bin/sh
# A hundred rounds of others pushing in between. time limit: 1200 s
ROUNDS=100 exec sh "$(dirname "$0")/../e2e/85-races.sh"
