#!/bin/sh
# files/: the session's work as of its last sync, read from git: right in bytes, modes and links, read-only, and it wakes
# nothing.
. "$(dirname "$0")/../lib.sh"

# ---- a project with all that git can hold
(
	cd "$P" && mkdir -p src/deep/er && echo code >src/main.c && echo deep >src/deep/er/x && : >empty &&
		printf '#!/bin/sh\necho ran\n' >run.sh && chmod 755 run.sh && ln -s src/main.c link && ln -s ../nowhere dangling &&
		printf 'a\0b\377' >binary && echo spaced >"with space é" && seq 200000 >numbers &&
		head -c 20000000 /dev/urandom >large.bin && printf 'SECRET=1\n' >.env && git add -A && git commit -qm all
) || exit 1
mkdir "$T/many" && (cd "$T/many" && git init -q -b main && seq 3000 | xargs touch && git add . && git commit -qm many) || exit 1
cat >"$T/edit.script" <<'END'
{"tools":[{"name":"bash","input":{"command":"echo new >b.txt; echo changed >>a.txt; git rm -q empty; git add -A; git commit -qm work; echo late >>a.txt"}}]}
{"text":"done"}
{"tools":[{"name":"bash","input":{"command":"git checkout -q a.txt; rm -r src/deep; echo code2 >src/main.c; git add -A; git commit -qm more"}}]}
{"text":"done again"}
END
start || exit 1
session s "---
model: script:$T/edit.script
---
go" || exit 1
W=$S/s/files
picture() { cat "$M/events" "$S/s/transcript" "$S/s/log" "$S/s/status" "$S/s/sandbox" | cksum; }
within 60 gateway_is_up
before=$(picture)

# ---- the same as a checkout of the branch
git -C "$P" worktree add -q "$T/work" sandbox/1 && rm "$T/work/.git"
check "diff -r finds no difference" diff -r --no-dereference "$T/work" "$W"
modes() { (cd "$1" && find . -mindepth 1 -printf '%y %s %l %P\n' | sed 's/^d [0-9]*/d/' | LC_ALL=C sort); }
modes "$T/work" >"$T/a"
modes "$W" >"$T/b"
check "types, sizes and targets of links" cmp "$T/a" "$T/b"
equal "what was not committed is not there" "$(tail -n 1 "$W/a.txt")" changed
equal "what was removed is not there" "$(errno_of cat "$W/empty")" ENOENT
equal "a file may be run" "$("$W/run.sh")" ran
equal "a link leads on" "$(cat "$W/link")" code
equal "a link to nowhere" "$(readlink "$W/dangling")" ../nowhere
equal "modes" "$(stat -c %a "$W" "$W/src" "$W/run.sh" "$W/a.txt" | tr '\n' ' ')" "555 555 555 444 "
equal "binary" "$(cksum <"$W/binary")" "$(cksum <"$P/binary")"
equal "a name that is not ASCII" "$(cat "$W/with space é")" spaced
equal "a folder that is not there" "$(errno_of ls "$W/src/none/below")" ENOENT
equal "below a file" "$(cat "$W/a.txt/x" 2>&1 | grep -c 'Not a directory')" 1

# ---- what is not committed is counted and named
line="1 file not committed in the sandbox: a.txt"
equal "status: a second line" "$(cat "$S/s/status")" "idle
$line"
equal "status: its size" "$(stat -c %s "$S/s/status")" "$(wc -c <"$S/s/status")"
equal "changes: the last line" "$(tail -n 1 "$S/s/changes")" " $line"
equal "index has the first alone" "$(cut -f 3 "$M/index")" idle

# ---- large ones by range
tail -c 10 "$P/large.bin" | cksum >"$T/a"
tail -c 10 "$W/large.bin" | cksum >"$T/b"
check "the end of a large file" cmp "$T/a" "$T/b"
equal "a piece of a large file" "$(dd if="$W/large.bin" bs=4096 skip=3001 count=5 status=none | cksum)" \
	"$(dd if="$P/large.bin" bs=4096 skip=3001 count=5 status=none | cksum)"
equal "all of it, by four readers at once" "$(for i in 1 2 3 4; do cksum <"$W/large.bin" & done | sort -u)" "$(cksum <"$P/large.bin")"
check "mapped into memory" python3 - "$W/numbers" "$P/numbers" <<'END'
import mmap, sys
files = [open(p, "rb") for p in sys.argv[1:]]
a, b = (mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) for f in files)
sys.exit(a[:] != b[:])
END

# ---- crawlers
cd "$W" || exit 1
equal "grep -r" "$(grep -rl --include='*.c' code .)" ./src/main.c
equal "tar" "$(tar cf - . | tar tf - | wc -l)" "$(find . | wc -l)"
check "rsync" rsync -a "$W/" "$T/copy/"
check "rsync's copy is the same" diff -r --no-dereference "$T/work" "$T/copy"
cd /
equal "nothing was woken" "$(picture)" "$before"

# ---- read-only, in words
for what in "touch $W/new" "mkdir $W/dir" "rm $W/a.txt" "mv $W/a.txt $W/c" "ln -s x $W/l" "rmdir $W/src" "ln $W/a.txt $W/h"; do
	equal "refused: ${what%% *}" "$(errno_of $what)" EPERM
done
equal "refused: a write" "$(errno_of dd if=/dev/null of="$W/a.txt" conv=notrunc)" EACCES
equal "refused: a mode" "$(errno_of chmod 777 "$W/a.txt")" EPERM
contains "error says what to do" "$(cat "$S/s/error")" "sessions/s/input"

# ---- a sync changes it; what is open stays what it was
exec 5<"$W/src/main.c"
cd "$W/src" || exit 1
first=$(stat -c '%i %Y' "$W/src/main.c" "$W/run.sh")
echo more >>"$S/s/input"
timeout 60 cat "$S/s/wait/idle" >/dev/null
equal "the new content" "$(cat "$W/src/main.c")" code2
equal "nothing is uncommitted any more" "$(cat "$S/s/status"; grep -c 'not committed' "$S/s/changes")" "idle
0"
equal "the old one through the old descriptor" "$(cat <&5)" code
exec 5<&-
equal "seen from inside a folder" "$(cat main.c; ls)" "code2
main.c"
cd /
equal "a folder that is gone" "$(errno_of ls "$W/src/deep")" ENOENT
second=$(stat -c '%i %Y' "$W/src/main.c" "$W/run.sh")
check "a changed file is another inode, an unchanged one the same" sh -c '
	[ "$(echo "$1" | head -n 1)" != "$(echo "$2" | head -n 1)" ] && [ "$(echo "$1" | tail -n 1)" = "$(echo "$2" | tail -n 1)" ]' - "$first" "$second"

# ---- before the first sync, many files, after a restart, after the end
printf '{"text":"x","delay_ms":60000}\n' >"$T/slow"
(cd "$T/many" && printf -- '---\nmodel: script:%s\n---\nhello\n' "$T/slow" >"$S/new/many")
within 20 grep -q running "$S/many/status"
equal "before the first sync: what it started from" "$(ls "$S/many/files" | wc -l)" 3000
from=$(date +%s%3N)
equal "a long listing has each name once" "$(find "$S/many/files" -type f | sort -u | wc -l)" 3000
note "3,000 files found in $(($(date +%s%3N) - from)) ms"
echo stop >"$S/many/ctl"
stop && start || exit 1
equal "after a restart" "$(cat "$W/src/main.c")" code2
exec 5<"$W/numbers"
echo "destroy force" >"$S/s/ctl"
check "gone with its session" within 5 test ! -e "$W"
head -c 10 <&5 >/dev/null 2>&1 # either answer will do; it must not hang or end the daemon
exec 5<&-
equal "the daemon goes on" "$(cat "$S/many/id")" 2
