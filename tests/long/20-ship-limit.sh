#!/bin/sh
# A command of a ship's turn is cut after five minutes, whatever time it asked for; the ship goes on. time limit: 900 s
. "$(dirname "$0")/../lib.sh"
git init -q --bare -b main "$T/remote.git"
(cd "$P" && git remote add origin "$T/remote.git" && git push -q -u origin main) || exit 1
cat >"$T/script" <<'END_SCRIPT'
{"tools":[{"name":"bash","input":{"command":"echo x >x; git add x; git commit -qm x"}}]}
{"text":"made"}
{"tools":[{"name":"bash","input":{"command":"echo before; sleep 800; echo behind","timeout":3000}}]}
{"text":"SHIP-READY"}
END_SCRIPT
start || exit 1
session s go
echo >"$S/s/ship"
from=$(date +%s)
equal "it lands all the same" "$(timeout 800 cat "$S/s/wait/shipped" | cut -d' ' -f1,2)" "landed main"
check "after five minutes" test $(($(date +%s) - from)) -ge 295
contains "the command was cut" "$(cat "$S/s/transcript")" "before
[stopped after 300 s, its time limit]"
