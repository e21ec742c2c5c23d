#!/bin/sh
# The man pages render without a warning, and what berthfs(5) says of tables and of files that may not be written is so.
. "$(dirname "$0")/../lib.sh"
PAGE=$(dirname "$BERTHFS")/contrib/berthfs.5
[ -f "$PAGE" ] || PAGE=$ROOT/build/contrib/berthfs.5
printf '%s\n' '{"text":"one"}' '{"tools":[{"name":"bash","input":{"command":"echo x >x; git add x; git commit -qm x"}}]}' \
	'{"text":"two"}' '{"text":"three","delay_ms":600000}' >"$T/script"
mkdir "$P/.agents"
echo '{"checks":[{"name":"good","command":"true"},{"name":"bad","command":"echo no; exit 1"}]}' >"$P/.agents/project.json"
(cd "$P" && git add . && git commit -qm checks)
start || exit 1
session s hello
echo more >>"$S/s/input"
timeout 60 cat "$S/s/wait/idle" >/dev/null
echo third >>"$S/s/input"
runs() { grep -q ^running "$S/s/status"; }
within 20 runs
echo 'a	fourth, with a tab' >>"$S/s/input"

if have man; then
	for page in "$PAGE" "$ROOT"/contrib/man/*.1; do
		out=$(LC_ALL=C.UTF-8 MANWIDTH=90 man --warnings -l "$page" 2>&1 >"$T/page")
		equal "$(basename "$page") renders without warnings" "$out" ""
		check "to more than a page" test "$(wc -l <"$T/page")" -gt 25
	done
else
	skip "the pages render" "no man"
fi

# columns NAME: how many the page lists for that table.
columns() {
	awk -v file="$1" '/^\.TP/ { named = 1; next }
		named { in_it = $0 ~ "^\\\\fI(gateway/)?" file "\\\\fR"; named = 0 }
		in_it && /^\.IP [0-9]+\./ { n++ }
		END { print n + 0 }' "$PAGE"
}
fields() { awk -F '\t' '/^$/ { exit } !seen[NF]++ { printf "%s%s", sep, NF; sep = " " }' "$1"; }
for file in index events; do equal "$file has the columns of the page" "$(fields "$M/$file")" "$(columns $file)"; done
equal "tokens has the columns of the page" "$(fields "$M/gateway/tokens")" "$(columns tokens)"
for file in queue checks usage; do
	equal "$file has the columns of the page" "$(fields "$S/s/$file")" "$(columns $file)"
	check "and is a table there" test "$(columns $file)" -gt 1
done

# Each key that status shows stands in the page, each kind of event too.
part() { awk -v file="$1" '/^\.TP/ { named = 1; next } named { in_it = $0 ~ "^\\\\fI(gateway/)?" file "\\\\fR"; named = 0 } in_it' "$PAGE"; }
part status >"$T/part"
missing=$(cut -d' ' -f1 "$M/status" | while read -r key; do grep -qF "\\fB$key" "$T/part" || echo "$key"; done)
equal "each key of status is told" "$missing" ""
part events >"$T/part"
missing=$(cut -f4 "$M/events" | sort -u | while read -r kind; do grep -qF "\\fB$kind\\fR" "$T/part" || echo "$kind"; done)
equal "each kind of event is told" "$missing" ""
part 'transcript.jsonl' >"$T/part"
missing=$(tr ',{' '\n\n' <"$S/s/transcript.jsonl" | sed -n 's/^"\([a-z_]*\)":.*/\1/p' | grep -vx command | sort -u |
	while read -r key; do grep -qF "\\fB$key\\fR" "$T/part" || echo "$key"; done)
equal "each field of transcript.jsonl is told" "$missing" ""
equal "the time of a message is told as it is" \
	"$(cut -f2 "$S/s/queue" | sed 's/[0-9]/9/g')" "9999-99-99T99:99:99Z"

# Modes of listed files: as the page has them.
bad=
for path in README status config index events error projects sessions sessions/new gateway gateway/keys; do
	mode=$(stat -c %04a "$M/$path")
	grep -qE "^.fI${path}/?.fR \(0?$mode\)$" "$PAGE" || bad="$bad $path"
done
for path in "$S"/s/*; do
	mode=$(stat -c %04a "$path")
	grep -qE "^.fI$(basename "$path")/?.fR \(0?$mode\)$" "$PAGE" || bad="$bad $path"
done
equal "modes are those of the page" "$bad" ""
