#!/bin/sh
# Every operation over repositories of every kind (tests/zoo.sh): a session is made, works, is synced, shown, checked,
# shipped and merged, or refused with words that say what to do. What is the user's is compared byte for byte after each but
# the merge. ZOO="kind kind": only those. time limit: 900 s
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/zoo.sh"
from=$(date +%s)
zoo_begin || exit 1
start || exit 1

# What is special: KIND|STEP|words that the answer holds. A step that is not here works: the ship says `landed`, the merge
# moves the checked-out branch.
cat >"$T/special" <<'END'
sha256|create|sha256
empty|create|no commit yet
bare|create|bare repository
unborn|create|no commit yet
branch-sandbox|create|git branch -m sandbox
missing-blob|work|git fsck
missing-commit|work|git fsck
torn-pack|work|git fsck
no-remote|ship|git remote add origin
two-remotes|ship|git branch -u
rebase|merge|check one out
detached|merge|check one out
merge|merge|finish it
cherry|merge|finish it
bisect|merge|finish it
index-lock|merge|index.lock
rewritten|merge|git merge sandbox/
hidden|merge|your uncommitted made.txt
skipped|merge|your uncommitted made.txt
filter-in|merge|runs tools/filter (filter.own.
include-in|merge|they change made.txt
END
special() { sed -n "s/^$1|$2|//p" "$T/special"; }
say() { [ -z "${VERBOSE:-}" ] || echo "# $*"; }

# ---- make them all, and a session in each
made=
for kind in ${ZOO:-$zoo_kinds}; do
	if ! zoo_make "$kind"; then
		not_ok "$kind: it can be made"
		sed 's/^/# /' "$Z/$kind.log"
		continue
	fi
	zoo_picture "$Z/$kind/app" >"$Z/$kind.before" 2>/dev/null
	cat >"$T/$kind.script" <<-END
		{"tools":[{"name":"bash","input":{"command":"echo $kind >made.txt; git add -f made.txt; git commit -qm 'made it'; git status --short"}}]}
		{"text":"made"}
		{"tools":[{"name":"bash","input":{"command":"git rebase -q refs/berthfs/base; git status --short"}}]}
		{"text":"SHIP-READY"}
	END
	printf -- '---\nproject: %s\nmodel: script:%s\n---\ngo\n' "$Z/$kind/app" "$T/$kind.script" >"$T/draft"
	wanted=$(special "$kind" create)
	if cat "$T/draft" 2>/dev/null >"$S/new/$kind" && [ -d "$S/$kind" ]; then
		if [ -n "$wanted" ]; then not_ok "$kind: refused"; else made="$made $kind"; fi
	elif [ -n "$wanted" ]; then
		contains "$kind: refused in words" "$(tail -n 1 "$M/error")" "$wanted"
	else
		not_ok "$kind: a session"
		note "$(tail -n 1 "$M/error")"
	fi
done
note "made after $(($(date +%s) - from)) s"

# unchanged KIND STEP: everything of the user's is as it was.
unchanged() {
	zoo_picture "$Z/$1/app" >"$Z/$1.after" 2>/dev/null
	cmp -s "$Z/$1.before" "$Z/$1.after" && return
	not_ok "$1: untouched after $2"
	diff "$Z/$1.before" "$Z/$1.after" | head -n 6 | sed 's/^/# /'
}
branch_of() { echo "sandbox/$(cat "$S/$1/id")"; }

# ---- work, sync, checks, texts
working=
for kind in $made; do
	state=$(timeout 200 cat "$S/$kind/wait/idle" 2>&1)
	say "$kind: $state; $(tail -n 1 "$S/$kind/log")"
	wanted=$(special "$kind" work)
	unchanged "$kind" sync
	if [ -n "$wanted" ]; then
		contains "$kind: told in words" "$(cat "$S/$kind/status" "$S/$kind/error")" "$wanted"
		continue
	fi
	working="$working $kind"
	wrong=
	[ "$(git -C "$Z/$kind/app" show "$(branch_of "$kind"):made.txt" 2>/dev/null)" = "$kind" ] || wrong="$wrong branch"
	grep -q "^+$kind" "$S/$kind/diff" || wrong="$wrong diff"
	grep -q "made.txt | " "$S/$kind/changes" || wrong="$wrong changes"
	[ "$(grep -c 'made it$' "$S/$kind/commits")" = 1 ] || wrong="$wrong commits"
	[ "$(wc -l <"$S/$kind/commits")" = 1 ] || wrong="$wrong commits"
	[ "$(cat "$S/$kind/files/made.txt" 2>&1)" = "$kind" ] || wrong="$wrong files"
	[ "$(find "$S/$kind/files" | wc -l)" -gt 3 ] || wrong="$wrong find"
	grep -q '^pass	.*	made' "$S/$kind/checks" || wrong="$wrong checks"
	equal "$kind: work comes home" "$wrong" ""
	[ -z "$wrong" ] || { cat "$S/$kind/error" "$S/$kind/log" | tail -n 6 | sed 's/^/# /'; }
done
note "worked after $(($(date +%s) - from)) s"

# ---- ship
for kind in $working; do echo >"$S/$kind/ship" || not_ok "$kind: ship can be written"; done
for kind in $working; do
	got=$(timeout 200 cat "$S/$kind/wait/shipped" 2>&1)
	say "$kind: $got"
	wanted=$(special "$kind" ship)
	if [ -n "$wanted" ]; then
		contains "$kind: not shipped, in words" "$got $(tail -n 3 "$S/$kind/error")" "$wanted"
	else
		contains "$kind: shipped" "$got" landed
		[ -n "${got##*landed*}" ] || equal "$kind: the remote has it" "$(git -C "$Z/$kind/remote.git" rev-parse "$(echo "$got" | cut -d' ' -f2)")" "$(echo "$got" | cut -d' ' -f3)"
	fi
	timeout 200 cat "$S/$kind/wait/idle" >/dev/null
	unchanged "$kind" ship
done
note "shipped after $(($(date +%s) - from)) s"

# ---- merge
for kind in $working; do
	echo merge >"$S/$kind/ctl"
	timeout 200 cat "$S/$kind/wait/idle" >/dev/null
	wanted=$(special "$kind" merge)
	got=$(tail -n 2 "$S/$kind/log")
	say "$kind: $got"
	if [ -n "$wanted" ]; then
		contains "$kind: not merged, in words" "$got" "$wanted"
		unchanged "$kind" "a merge that is refused"
	else
		equal "$kind: merged" "$(git -C "$Z/$kind/app" rev-parse HEAD)" "$(git -C "$Z/$kind/app" rev-parse "$(branch_of "$kind")")"
		[ "$(git -C "$Z/$kind/app" rev-parse HEAD)" = "$(git -C "$Z/$kind/app" rev-parse "$(branch_of "$kind")")" ] || note "$got"
	fi
done
equal "no program of a repository has run" "$(ls "$Z/canary" | grep -v ran | tr '\n' ' ')" ""
[ -n "${ZOO:-}" ] || equal "but the hooks of the user's own have" "$(cut -d' ' -f1 "$Z/canary/hooks-out-ran" "$Z/canary/hooks-path-ran" | sed 's,.*/,,' | sort -u | tr '\n' ' ')" \
	"post-index-change post-merge pre-push reference-transaction "
note "$(($(date +%s) - from)) s"
