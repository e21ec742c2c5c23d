#!/bin/sh
# Each way in which programs write is one message for each open..last close: whole, once, in order. The list of shapes is
# at the end; each message begins with its shape's name, so that a split one is found.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
start || exit 1
session s hello || { not_ok "a session"; cat "$M/error"; exit 1; }
I=$S/s/input
export I T
mkdir "$T/w"
: >"$T/expected"

# shape NAME PROGRAM WANTED COMMAND: runs COMMAND by `PROGRAM -c`; WANTED is the text of the one message, as printf takes
# it ("-": none). Where the program is not installed it is skipped.
shape() {
	if ! have "${2%% *}"; then
		skip "$1" "no ${2%% *}"
		return
	fi
	(cd "$T/w" && timeout 60 $2 -c "$4") >"$T/out" 2>&1 </dev/null
	[ $? = 124 ] && not_ok "$1 ended in time" && cat "$T/out"
	if [ "$3" != - ]; then
		printf '%s\t' "$1" >>"$T/expected"
		printf "$3" | python3 -c 'import json,sys; print(json.dumps(sys.stdin.read()))' >>"$T/expected"
	fi
}
# The same in each shell.
shells() {
	for sh in bash dash zsh "busybox sh"; do
		id="$1-${sh%% *}"
		shape "$id" "$sh" "$(printf '%s' "$2" | sed "s/@/$id/g")" \
			"$(printf '%s' "$3" | sed "s/@/$id/g")"
	done
}
. "$(dirname "$0")/shapes.inc"

# Background writers have ended when nothing holds the file any more; the count shows it.
wanted=$(wc -l <"$T/expected")
accepted() { [ "$(grep -c '"kind":"user"' "$S/s/transcript.jsonl")" -gt "$wanted" ]; }
within 60 accepted
timeout 60 cat "$S/s/wait/idle" >/dev/null
cat "$S/s/transcript.jsonl" >"$T/jsonl"
python3 - "$T/jsonl" "$T/expected" <<'END' >"$T/verdict"
import json, sys
got = [json.loads(l)["text"] for l in open(sys.argv[1]) if '"kind":"user"' in l][1:]
want = [l.rstrip("\n").split("\t", 1) for l in open(sys.argv[2])]
want = [(n, json.loads(t)) for n, t in want]
texts = [t for _, t in want]
for name, text in want:
    n = got.count(text)
    print(("ok " if n == 1 else "not ok ") + name)
    if n != 1:
        near = [g for g in got if g.startswith(name) or name in g]
        print("# %d times; messages of that name: %r" % (n, [g[:80] for g in near]))
stray = [g for g in got if g not in texts]
print(("not ok" if stray else "ok") + " no other messages")
for g in stray:
    print("# %r" % g[:80])
in_order = [t for t in got if t in texts]
slow = {t for n, t in want if "background" in n or "daemon" in n or "process-substitution" in n} # nobody waits for their end
a = [t for t in in_order if t not in slow]
b = [t for t in texts if t not in slow]
print(("ok" if a == b else "not ok") + " in order")
END
while read -r line; do
	case $line in
	"ok "*) ok "${line#ok }" ;;
	"not ok "*) not_ok "${line#not ok }" ;;
	*) echo "$line" ;;
	esac
done <"$T/verdict"
equal "input is empty" "$(stat -c %s "$I")" 0
