#!/bin/sh
# Every kind of file that may be written, from eight shells and languages, replacing and appending: what is right takes
# effect once, what is wrong fails in the writer's own way and changes nothing. How a message may be put together is in
# 10-shapes. time limit: 900 s
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
echo "approvals.ask = bash" >>"$T/config/berthfs/config"
for i in $(seq 20); do echo '{"tools":[{"name":"bash","input":{"command":"echo ran >>../count"}}]}'; done >"$T/asks"
start || exit 1
(cd "$P" && printf -- '---\napprovals: on\nmodel: script:%s\n---\ngo\n' "$T/asks" >"$S/new/asks")
session talk hello && session quiet hello || { not_ok "sessions"; exit 1; }
ln -s "$P" "$M/projects/app"
has_policy() { [ -s "$M/gateway/policy" ]; }
within 30 has_policy || { not_ok "the gateway is there"; exit 1; }

# put LANGUAGE FILE TEXT: opens it to be replaced, writes the text and a newline, closes. add: the same, opened to append.
put() { write "$1" w '>' "$2" "$3"; }
add() { write "$1" a '>>' "$2" "$3"; }
write() {
	F=$4 X=$5
	export F X
	case $1 in
	busybox) timeout 60 busybox sh -c "printf '%s\n' \"\$X\" $3 \"\$F\"" ;;
	python3) timeout 60 python3 -c "
import os
with open(os.environ['F'], '$2') as f: f.write(os.environ['X'] + '\n')" ;;
	perl) timeout 60 perl -e "open(my \$f, '$3', \$ENV{F}) or die; print \$f \"\$ENV{X}\\n\"; close(\$f) or die" ;;
	node) timeout 60 node -e "require('fs').writeFileSync(process.env.F, process.env.X + '\n', {flag: '$2'})" ;;
	awk) timeout 60 awk "BEGIN { print ENVIRON[\"X\"] $3 ENVIRON[\"F\"]; exit close(ENVIRON[\"F\"]) != 0 }" ;;
	*) timeout 60 "$1" -c "printf '%s\n' \"\$X\" $3 \"\$F\"" ;;
	esac >"$T/out" 2>&1 </dev/null
}
# wrong LANGUAGE FILE TEXT: it fails.
wrong() { ! put "$@"; }
idle() { timeout 60 cat "$S/$1/wait/idle" >/dev/null; }
users() { sed -n 's/.*"kind":"user".*"text":"\(.*\)"}.*/\1/p' "$S/$1/transcript.jsonl"; }
snapshots() { grep -c 'snapshot [0-9]*:' "$S/quiet/log"; }
ships() { awk -F '\t' '$4 == "ship"' "$M/events" | wc -l; }
waits() { [ "$(cat "$S/asks/status")" = "waiting approval $1" ]; }
config=$(cat "$M/config")
policy=$(cat "$M/gateway/policy")
cd "$P" || exit 1

one() { # LANGUAGE; fails with the word of what is wrong in $bad
	bad=
	put "$1" "$S/talk/input" "put by $1" && add "$1" "$S/talk/input" "added by $1" || bad="$bad input"
	printf 'put by %s\nadded by %s\n' "$1" "$1" >>"$T/talk"
	# Node makes text of what is none.
	[ "$1" = node ] || wrong "$1" "$S/talk/input" "$(printf 'no text \377')" || bad="$bad input-refused"

	put "$1" "$S/quiet/settings/after-run" merge && [ "$(cat "$S/quiet/settings/after-run")" = merge ] || bad="$bad setting"
	add "$1" "$S/quiet/settings/after-run" none && [ "$(cat "$S/quiet/settings/after-run")" = none ] || bad="$bad setting-added"
	wrong "$1" "$S/quiet/settings/after-run" "by $1" && [ "$(cat "$S/quiet/settings/after-run")" = none ] || bad="$bad setting-refused"
	grep -q "by $1" "$S/quiet/error" || bad="$bad setting-words"

	n=$(snapshots)
	put "$1" "$S/quiet/ctl" snapshot && idle quiet && add "$1" "$S/quiet/ctl" snapshot && idle quiet || bad="$bad ctl"
	[ "$(snapshots)" = $((n + 2)) ] || bad="$bad ctl-twice:$(snapshots)"
	wrong "$1" "$S/quiet/ctl" "dance $1" && grep -q "\"dance\"" "$S/quiet/error" || bad="$bad ctl-refused"

	n=$(ships)
	put "$1" "$S/quiet/ship" main && idle quiet && add "$1" "$S/quiet/ship" main && idle quiet || bad="$bad ship"
	[ "$(ships)" = $((n + 2)) ] || bad="$bad ship-twice:$n-$(ships)"
	wrong "$1" "$S/quiet/ship" "moon" || bad="$bad ship-refused"

	within 20 waits $((k + 1)) && wrong "$1" "$S/asks/approvals/$((k + 1))" perhaps || bad="$bad approval-refused"
	put "$1" "$S/asks/approvals/$((k + 1))" once && within 20 waits $((k + 2)) && add "$1" "$S/asks/approvals/$((k + 2))" once || bad="$bad approval"
	k=$((k + 2))

	put "$1" "$M/config" "$config
# put by $1" && add "$1" "$M/config" "# added by $1" || bad="$bad config"
	[ "$(tail -n 2 "$M/config")" = "# put by $1
# added by $1" ] && grep -q "config ok" "$M/status" || bad="$bad config-taken"
	before=$(cat "$M/config")
	! add "$1" "$M/config" "colour = $1" && [ "$(cat "$M/config")" = "$before" ] || bad="$bad config-refused"

	put "$1" "$M/gateway/policy" "$policy
# put by $1" && add "$1" "$M/gateway/policy" "# added by $1" || bad="$bad policy"
	[ "$(tail -n 2 "$M/gateway/policy")" = "# put by $1
# added by $1" ] || bad="$bad policy-taken"

	put "$1" "$M/gateway/keys/put-$1" "key-of-$1-0123456789" && add "$1" "$M/gateway/keys/added-$1" "key-of-$1-0123456789" || bad="$bad key"
	[ -s "$M/gateway/keys/put-$1" ] && cmp -s "$M/gateway/keys/put-$1" "$M/gateway/keys/added-$1" || bad="$bad key-taken"
	! grep -q 0123456789 "$M/gateway/keys/put-$1" || bad="$bad key-shown"

	put "$1" "$S/quiet/attach/put-$1" "file put by $1" && add "$1" "$S/quiet/attach/added-$1" "file added by $1" || bad="$bad attach"
	[ "$(cat "$S/quiet/attach/put-$1" "$S/quiet/attach/added-$1")" = "file put by $1
file added by $1" ] || bad="$bad attach-taken"

	put "$1" "$S/new/put-$1" "draft put by $1" && add "$1" "$S/new/added-$1" "draft added by $1" || bad="$bad draft"
	(cd / && put "$1" "$S/new/app/in-$1" "draft in a project by $1") || bad="$bad draft-of-project"
	[ -d "$S/put-$1" ] && [ -d "$S/added-$1" ] && [ "$(cat "$S/in-$1/project")" = "$P" ] || bad="$bad draft-taken"
	wrong "$1" "$S/new/wrong-$1" "$(printf -- '---\ncolour: red\n---\nx')" && [ ! -e "$S/wrong-$1" ] || bad="$bad draft-refused"
	rm -f "$S/new/wrong-$1"
}

k=0 made=
: >"$T/talk"
for language in bash dash zsh busybox python3 perl node awk; do
	have $language || { skip "$language" "not there"; continue; }
	one $language
	equal "$language: each kind of file" "$bad" ""
	[ -z "$bad" ] || { note "$(tail -n 3 "$T/out")"; note "$(head -n 3 "$M/error")"; }
	made="$made $language"
done
# `error` is emptied by opening it to be replaced, and by nothing else.
for language in $made; do
	! put $language "$S/quiet/error" x && [ -s "$S/quiet/error" ] || not_ok "$language: no text into error"
	case $language in
	busybox) busybox sh -c ": >'$S/quiet/error'" ;;
	python3) python3 -c "open('$S/quiet/error', 'w')" ;;
	perl) perl -e "open(F, '>', '$S/quiet/error')" ;;
	node) node -e "require('fs').closeSync(require('fs').openSync('$S/quiet/error', 'w'))" ;;
	awk) awk "BEGIN { printf \"\" >\"$S/quiet/error\" }" ;;
	*) $language -c ": >'$S/quiet/error'" ;;
	esac
	[ ! -s "$S/quiet/error" ] || not_ok "$language: error is emptied"
	echo nonsense 2>/dev/null >"$S/quiet/ctl"
done
ok "error is emptied by each"
idle talk
equal "each message is there once, whole, in order" "$(users talk | tail -n +2 | sed 's/\\n$//')" "$(cat "$T/talk")"
wrong=
for language in $made; do
	for how in put added in; do
		idle $how-$language
		case $how in
		in) text="draft in a project by $language" ;;
		*) text="draft $how by $language" ;;
		esac
		[ "$(users $how-$language)" = "$text\\n" ] || wrong="$wrong $how-$language"
	done
done
equal "each draft is one session of one message" "$wrong" ""
within 20 waits $((k + 1))
equal "each approval ran its call, once" "$(wc -l <"$T/state/berthfs/sandboxes/$(cat "$S/asks/id")/home/count")" "$k"
