#!/bin/sh
# Checks an exported ledger with sha256sum, ssh-keygen and jq alone: berthfs's own `ledger verify` is not needed, nor
# trusted. Slow (some hundred records a second), and the same verdict.
#
# usage: verify-ledger.sh LEDGER [PUBLIC-KEY-FILE [EXPECTED-HEAD]]
#
# LEDGER is a copy of the tree's gateway/ledger; rotated segments go before it:  cat ledger-*.jsonl ... | sort -su
# PUBLIC-KEY-FILE is ledger.pub; without it the key that the chain's first record names is taken.
set -u
ledger=${1:?usage: verify-ledger.sh LEDGER [PUBLIC-KEY-FILE [EXPECTED-HEAD]]}
pub=${2:-} expect=${3:-}
t=$(mktemp -d) || exit 1
trap 'rm -rf "$t"' EXIT
die() { echo "not ok: $*"; exit 1; }

[ -s "$ledger" ] || die "there is no record"
[ -z "$(tail -c 1 "$ledger")" ] || die "the last line is cut off"
first=$(head -n 1 "$ledger")
id=$(printf '%s' "$first" | jq -r .ledger)
key=$(printf '%s' "$first" | jq -r .key)
if [ -n "$pub" ]; then
	grep -qF "$key" "$pub" || die "the chain was begun with another key than the one in $pub"
	cp "$pub" "$t/pub"
else
	printf 'berthfs-ledger namespaces="berthfs-ledger" %s\n' "$key" >"$t/pub"
fi

prev=$(printf '%064d' 0) n=0 checkpoints=0 met=
while IFS= read -r text; do
	n=$((n + 1))
	hash=${text##*\"hash\":\"} hash=${hash%\"\}}
	line="${text%,\"hash\":\"*}}"
	case $line in "{\"seq\":$n,"*) ;; *) die "record $n is missing, or the order was changed" ;; esac
	own=$(printf '%s%s' "$prev" "$line" | sha256sum)
	[ "${own%% *}" = "$hash" ] || die "record $n: its hash does not fit: it, or the one before, was changed"
	case $line in
	*'"kind":"checkpoint"'*)
		size=$(printf '%s' "$line" | jq -r .size) root=$(printf '%s' "$line" | jq -r .root)
		[ "$size" = $((n - 1)) ] || die "record $n: a checkpoint that does not speak of the records before it"
		hex=$(printf '%s' "$root" | base64 -d | od -An -v -tx1 | tr -d ' \n')
		[ "$hex" = "$prev" ] || die "record $n: a checkpoint of other records"
		{
			echo '-----BEGIN SSH SIGNATURE-----'
			printf '%s' "$line" | jq -r .signature | fold -w 70
			echo '-----END SSH SIGNATURE-----'
		} >"$t/sig"
		printf 'berthfs-ledger/%s\n%s\n%s\n' "$id" "$size" "$root" |
			ssh-keygen -Y verify -f "$t/pub" -I berthfs-ledger -n berthfs-ledger -s "$t/sig" >"$t/said" 2>&1 ||
			die "record $n: the checkpoint's signature is not by the chain's key: $(cat "$t/said")"
		checkpoints=$((checkpoints + 1))
		;;
	esac
	prev=$hash
	[ "$prev" != "$expect" ] || met=$n
done <"$ledger"

[ -z "$expect" ] || [ -n "$met" ] || die "the expected head is not in this chain of $n records"
echo "ok records 1 to $n hold together, $checkpoints checkpoints"
echo "head $prev"
[ -n "$expect" ] || echo "note: without a head that was noted elsewhere, a cut end cannot be ruled out"
