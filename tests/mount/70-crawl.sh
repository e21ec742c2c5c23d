#!/bin/sh
# No listed file blocks and no read has an effect: whatever crawls the tree ends soon and changes nothing.
. "$(dirname "$0")/../lib.sh"
start || exit 1
for s in a b c; do session $s hello || exit 1; done
echo "scratch" >"$S/new/.draft"
ln -s "$P" "$M/projects/app"
printf '{"text":"x","delay_ms":600000}\n' >"$T/script"
(cd "$P" && echo hello >"$S/new/running")
within 20 grep -q running "$S/running/status"
rm -f "$S/new/a" "$S/new/b" "$S/new/c" "$S/new/running" # what they were made of, which would go in the middle of a crawl
within 60 gateway_is_up
# All that a message, a step, a waking sandbox or a refusal would change, and the times of it.
picture() {
	cat "$M/index" "$M/events" "$M/error" "$M/status" "$S"/[abc]/transcript.jsonl "$S"/[abc]/log "$S"/[abc]/error \
		"$S"/[abc]/status "$S"/[abc]/sandbox "$S"/[abc]/queue "$S"/[abc]/usage | cksum
	stat -c '%n %s %Y' "$M"/[cei]* "$S" "$S"/[abc]/* "$S"/[abc]/settings/* | grep -v '/index ' | cksum # its ages change
	ls "$S"
}
before=$(picture)
# crawl NAME PROGRAM COMMAND: ends within 20 s.
crawl() {
	if ! have "$2"; then
		skip "$1" "no $2"
		return
	fi
	timeout 60 sh -c "$3" >"$T/out" 2>"$T/err"
	code=$?
	if [ $code = 124 ]; then not_ok "$1 ends"; else ok "$1 ends"; fi
	equal "$1 changes nothing" "$(picture)" "$before"
}
cd "$M" || exit 1
crawl "find" find "find . -type f -exec cat {} +"
equal "find reads all without an error" "$(wc -c <"$T/err")" 0
crawl "grep -r" grep "grep -r hello ."
contains "grep finds" "$(cat "$T/out")" "sessions/a/transcript"
crawl "rg" rg "rg -uuu hello ."
crawl "tar" tar "tar cf '$T/t.tar' ."
equal "tar says nothing" "$(cat "$T/err")" ""
mkdir "$T/x" && tar xf "$T/t.tar" -C "$T/x"
equal "tar has the text" "$(cat "$T/x/sessions/a/transcript")" "$(cat "$S/a/transcript")"
crawl "rsync" rsync "rsync -a '$M/' '$T/r/'"
crawl "cp -r" cp "cp -r '$M' '$T/c'"
equal "cp has the text" "$(cat "$T/c/sessions/b/transcript.jsonl")" "$(cat "$S/b/transcript.jsonl")"
crawl "ls -lR" ls "ls -lR ."
crawl "du" du "du -a ."
git init -q "$T" # the mount lies inside a work tree now
crawl "git status" git "git -C '$T' status --porcelain -uall"
contains "git status sees" "$(cat "$T/out")" "m/sessions/a/plan"
crawl "git add" git "git -C '$T' add -f m/sessions/a"
equal "git has the text" "$(git -C "$T" show :m/sessions/a/transcript)" "$(cat "$S/a/transcript")"
crawl "git grep" git "git -C '$T' grep --untracked -l hello -- m"
rm -rf "$T/.git"
crawl "updatedb" updatedb "updatedb -l 0 -o '$T/locate' -U '$M' --prunefs '' --prunepaths ''"
have plocate && equal "locate finds" "$(plocate -d "$T/locate" a/transcript.jsonl)" "$S/a/transcript.jsonl"
crawl "gio" gio "gio list -l '$M' '$S' '$S/a'; gio tree -h '$M'; for f in '$S'/a/*; do gio info -a '*' \"\$f\"; gio cat \"\$f\"; done; gio trash '$S/a/plan'"
contains "gio says what it is" "$(cat "$T/out")" "standard::content-type: text/plain"
restic_() { restic -q --no-cache --password-command "echo x" -r "$T/restic" "$@"; }
if have restic && restic_ init; then
	crawl "restic" restic "restic -q --no-cache --password-command 'echo x' -r '$T/restic' backup '$M'"
	equal "restic says nothing" "$(cat "$T/err")" ""
	equal "restic has the text" "$(restic_ dump latest "$S/a/transcript.jsonl")" "$(cat "$S/a/transcript.jsonl")"
fi
crawl "rsync again" rsync "rsync -ai '$M/' '$T/r/'"
equal "rsync finds nothing new" "$(grep -v 'index$\|\./$\|sessions/new/' "$T/out")" ""
have getfattr && crawl "getfattr" getfattr "getfattr -R -d -m - ."
crawl "mmap" python3 "python3 -c \"
import mmap, os
for d, _, files in os.walk('.'):
    for f in files:
        p = os.path.join(d, f)
        if os.path.getsize(p):
            with open(p) as h: assert len(mmap.mmap(h.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)[:]) == os.path.getsize(p), p\""
equal "a private map has all" "$(cat "$T/err")" ""
crawl "python walk" python3 "python3 -c \"
import os
for d, _, files in os.walk('.'):
    for f in files:
        open(os.path.join(d, f), 'rb').read()\""
crawl "stat of what is not there" stat "for i in 1 2 3 4 5 6 7 8 9; do stat .git .Trash .hidden sessions/a/.git sessions/a/4913; done"
cd /

# ---- one listing while sessions come and go
for i in $(seq 40); do (cd "$P" && echo hello >"$S/new/n$i") & done
wait
all_there() { [ "$(ls -d "$S"/n[0-9]* | wc -l)" = 40 ]; } # a close that cannot tell whether it is the last does not wait
check "40 at once" within 60 all_there
python3 - "$S" <<'END' >"$T/py"
import os, sys
s = sys.argv[1]
seen = []
for i, e in enumerate(os.scandir(s)):
    seen.append(e.name)
    if i == 5:
        for n in ("n1", "n40"):
            try: os.rmdir(os.path.join(s, n))
            except OSError: open(s + "/" + n + "/ctl", "w").write("destroy force\n")
print(len(seen) == len(set(seen)), set(seen) >= {"new", "a", "b", "c", "n20", "n39"})
END
equal "a listing is right while they go" "$(cat "$T/py")" "True True"
