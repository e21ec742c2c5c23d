#!/bin/sh
# House rules that a program can check. One line a rule, `ok NAME` or `not ok NAME` with the places before it.
# usage: rules.sh [ROOT]
set -u
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}" || exit 1
list=$(mktemp -d) || exit 1
trap 'rm -rf "$list"' EXIT

find . \( -name .git -o -name 'build*' -prune -o -name .cache \) -type d -prune -o -type f ! -name '*~' ! -name '*.swp' -print |
	sed 's,^\./,,' | LC_ALL=C sort > "$list/all"
grep '\.[ch]$' "$list/all" > "$list/c"
grep -E '\.sh$|^\.ci/run$' "$list/all" > "$list/sh"

: > "$list/found"
xargs -r -a "$list/c" awk -f "$here/code.awk" >> "$list/found"

# Each script is read by the shell that its first line names.
while read -r f; do
	case $(head -n 1 "$f") in
	*bash*) shell=bash ;;
	*) shell=sh ;;
	esac
	$shell -n "$f" 2>&1 | sed "s,^,scripts	$f	," >> "$list/found"
done < "$list/sh"
xargs -r -a "$list/sh" awk '
	/^ +\t/ { print "blanks\t" FILENAME ":" FNR "\ta tab after spaces" }
	/[ \t]$/ { print "blanks\t" FILENAME ":" FNR "\tblanks at the end of the line" }' >> "$list/found"

# Top level: design decides what stands there.
for f in $(ls -A); do
	case $f in
	fs | backend | sandbox | gateway | tests | contrib | .ci | .git | build* | .cache) ;;
	README.md | LICENSE | meson.build | .gitignore | .clang-format) ;;
	*) printf 'folders\t%s\tdoes not belong into the top folder\n' "$f" >> "$list/found" ;;
	esac
done

# Hosts of package registries (the machine's own sources are used instead) and paths of one build machine.
# The brackets keep these lines from finding themselves.
hosts='deb[.]debian[.]org|security[.]debian[.]org|snapshot[.]debian[.]org|npmjs[.]org|yarnpkg[.]com|pypi[.]org'
hosts="$hosts|pythonhosted[.]org|crates[.]io|golang[.]org|rubygems[.]org|ghcr[.]io|docker[.]io"
paths='(^|[^A-Za-z0-9_.])/wor[k]/|/tmp/[w]/|/hom[e]/user/|/roo[t]/'
xargs -r -a "$list/all" grep -nIE "$hosts" /dev/null |
	sed -E 's/^([^:]*:[0-9]+):.*/words	\1	the host of a package registry/' >> "$list/found"
xargs -r -a "$list/all" grep -nIE "$paths" /dev/null |
	sed -E 's/^([^:]*:[0-9]+):.*/words	\1	a path of one machine/' >> "$list/found"

# Each kill point has a test that kills there: by its whole name, or as PREFIX.$point in a loop over what follows the prefix.
xargs -r -a "$list/c" grep -ho 'killpoint("[a-z._]*")' /dev/null | sed 's/.*"\(.*\)".*/\1/' | LC_ALL=C sort -u > "$list/points"
while read -r point; do
	grep -rqF "$point" tests && continue
	grep -rl "KILL_AT=${point%.*}[.][$]" tests | xargs -r grep -lE "^for .* ${point#*.}( |;)" | grep -q . && continue
	printf 'kill-points\t%s\tno test kills there\n' "$point" >> "$list/found"
done < "$list/points"

format=$(command -v clang-format-14 || command -v clang-format)
if [ -n "$format" ] && [ -f .clang-format ]; then
	xargs -r -a "$list/c" "$format" --dry-run 2>&1 | grep -E '^[^ ]+:[0-9]+:[0-9]+: warning' |
		awk -F: '!seen[$1]++ { printf "format\t%s:%s\tclang-format would change it\n", $1, $2 }' >> "$list/found"
fi

failed=0
for rule in arrows file-length function-length calls comments opening scripts blanks folders words kill-points format; do
	if [ "$rule" = format ] && [ -z "$format" ]; then
		echo "skip $rule: no clang-format here"
	elif grep -q "^$rule	" "$list/found"; then
		grep "^$rule	" "$list/found" | cut -f2- | sed 's/^/# /; s/	/: /'
		echo "not ok $rule"
		failed=1
	else
		echo "ok $rule"
	fi
done
exit $failed
