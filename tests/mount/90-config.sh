#!/bin/sh
# `config`: judged line by line, replaced as a whole, a draft where it does not hold.
. "$(dirname "$0")/../lib.sh"
start || exit 1
C=$M/config
base=$(cat "$C")
{ echo "$base"; echo 'after-run = none'; } >"$T/c"
check "a good one is taken" cp "$T/c" "$C"
equal "and read back" "$(cat "$C")" "$(cat "$T/c")"
equal "it is in the file of the config folder" "$(cat "$T/config/berthfs/config")" "$(cat "$T/c")"
check "appending a line" sh -c "echo '# a remark' >> '$C'"
equal "adds it" "$(tail -n 1 "$C")" "# a remark"
before=$(cat "$C")
: >"$M/error"
equal "appending a bad line: EINVAL" "$(errno_of sh -c "echo 'colour = red' | dd of='$C' oflag=append conv=notrunc")" EINVAL
contains "words" "$(cat "$M/error")" colour
equal "and nothing has changed" "$(cat "$C")" "$before"
contains "config is in force" "$(cat "$M/status")" "config ok"
printf 'colour = red\n%s\n' "$before" >"$T/c"
equal "a whole with a bad line: EINVAL" "$(errno_of cp "$T/c" "$C")" EINVAL
equal "the old one stays in force" "$(cat "$T/config/berthfs/config")" "$before"
equal "what was written stays as a draft" "$(cat "$C")" "$(cat "$T/c")"
contains "status says so" "$(cat "$M/status")" "config draft"
check "an editor mends it" vim -u NONE -es -c '1d' -c wq "$C"
equal "and it is in force" "$(cat "$C") $(grep -c 'config ok' "$M/status")" "$before 1"
: >"$C"
equal "truncating alone changes nothing" "$(cat "$C")" "$before"
equal "sed -i: refused, nothing lost" "$(sed -i s/none/merge/ "$C" 2>/dev/null; cat "$C")" "$before"
python3 - "$C" <<'END'
import sys
text = open(sys.argv[1]).read()
with open(sys.argv[1], "w", buffering=1) as f: # a write for each line
    for line in text.splitlines(): f.write(line + "\n")
END
equal "line by line" "$(cat "$C")" "$before"
stop
start
equal "it is there after a restart" "$(cat "$C")" "$before"
