#!/bin/sh
# Ten thousand sessions: the listing is right, also while sessions end, and looking does not ask the backend. Runs the
# face with tests/unit/fake_backend.c.
BERTHFS=$(dirname "${BERTHFS:-$(dirname "$0")/../../build/berthfs}")/tests/berthfs-fake
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
mkdir -p "$T/state/berthfs"
echo "sessions 10000 0" >"$T/state/berthfs/fake"
start || exit 1
equal "all are listed" "$(ls "$S" | wc -l)" 10001
equal "each once" "$(ls "$S" | sort -u | wc -l)" 10001
equal "index has a row for each" "$(wc -l <"$M/index")" 10000
equal "its size is true" "$(stat -c %s "$M/index")" "$(cat "$M/index" | wc -c)"
equal "names and numbers" "$(cat "$S/s-9999/id" "$S/10000/id" "$S/s-5000/id" | tr '\n' ' ')" "10000 10000 5001 "
echo "read 100000 0" >"$T/state/berthfs/fake" # a read of a text would take 100 s now
check "looking asks nobody" timeout 60 sh -c "ls -l $S $S/s-77 $S/s-9999/settings >$T/out"
equal "and tells all" "$(wc -l <"$T/out")" $((10001 + 26 + 6 + 8))
python3 - "$S" <<'END' >"$T/py"
import os, sys
s = sys.argv[1]
seen = []
for i, e in enumerate(os.scandir(s)):
    seen.append(e.name)
    if i == 100: # behind, at, and ahead of where the listing stands
        for n in list(range(50, 60)) + list(range(95, 105)) + list(range(9000, 9010)): os.rmdir("%s/s-%d" % (s, n))
gone = {"s-%d" % n for n in list(range(50, 60)) + list(range(95, 105)) + list(range(9000, 9010))}
stays = {"new", "s"} | {"s-%d" % n for n in range(1, 10000)} - gone
print(len(seen) == len(set(seen)), stays <= set(seen))
END
equal "a listing is right while sessions end" "$(cat "$T/py")" "True True"
equal "they are gone" "$(ls "$S" | wc -l)" 9971
