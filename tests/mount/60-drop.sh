#!/bin/sh
# The drop box: how files in it become sessions, and how not.
. "$(dirname "$0")/../lib.sh"
start || exit 1
cd "$P" || exit 1
N=$S/new
text_of() { sed -n 's/.*"kind":"user".*"text":"\(.*\)"}.*/\1/p' "$S/$1/transcript.jsonl" | head -n 1; }
# made NAME TEXT: there is a session of that name, whose first message is TEXT (as JSON writes it).
made() {
	timeout 60 cat "$S/$1/wait/idle" >/dev/null 2>&1
	equal "$1" "$(text_of "$1")" "$2"
}
sessions() { ls "$S" | grep -vc '^new$'; }

# As the words of the refusal say: go to a checkout, and write it once more.
equal "from no checkout: EINVAL" "$(cd / && errno_of dd if="$P/a.txt" of="$N/moved" status=none)" EINVAL
contains "with words" "$(cat "$M/error")" "from inside a git checkout"
contains "and where it stands" "$(cat "$M/error")" "(/ is no git checkout"
mkdir "$T/empty" && git init -q "$T/empty"
equal "from one without a commit, too" "$(cd "$T/empty" && errno_of dd if="$P/a.txt" of="$N/moved" status=none)" EINVAL
contains "and what it lacks" "$(cat "$M/error")" "has no commit yet"
: >"$M/error"
echo "from here" >"$N/moved" && made moved 'from here\n'
echo "by echo" >"$N/echo" && made echo 'by echo\n'
printf 'by\nprintf\n' >"$N/printf" && made printf 'by\nprintf\n'
cat >"$N/heredoc" <<END
---
after-run: none
---
by a here-document
END
made heredoc 'by a here-document\n'
echo "by cp" >"$T/f" && cp "$T/f" "$N/cp" && made cp 'by cp\n'
echo "by mv" >"$T/f" && mv "$T/f" "$N/mv" && made mv 'by mv\n'
echo "by tee" | tee "$N/tee" >/dev/null && made tee 'by tee\n'
{ echo by; /bin/echo group; } >"$N/group" && made group 'by\ngroup\n'
echo "by dd" | dd of="$N/dd" bs=3 conv=fsync 2>/dev/null && made dd 'by dd\n'
install -m 600 /dev/null "$T/g" && echo "by install" >"$T/g" && install "$T/g" "$N/install" && made install 'by install\n'
{ echo '---'; echo 'sandbox: dir'; echo '---'; echo 'line by line'; } >"$N/lines" && made lines 'line by line\n'
{ echo one; (sleep 0.3; echo two) & } >"$N/background"
within 10 test -d "$S/background"
made background 'one\ntwo\n'
python3 -c "
import os, sys
with open(sys.argv[1] + '.tmp', 'w') as f: f.write('by rename\n')" "$N/.rename"
mv "$N/.rename.tmp" "$N/rename" && made rename 'by rename\n'
echo "scratch" >"$N/scratch~"
check "scratch names stay drafts" test -f "$N/scratch~"
equal "and can be read" "$(cat "$N/scratch~")" scratch
mv "$N/scratch~" "$N/from-scratch" && made from-scratch 'scratch\n'
for f in .x 4913 '#x#' x~; do echo draft >"$N/$f"; done
equal "no session of those" "$(ls "$S" | grep -c 'x\|4913')" 0
rm "$N/.x" "$N/4913" "$N/#x#" "$N/x~"
equal "rm of drafts" "$(ls -A "$N" | grep -c 'x\|4913\|~')" 0
touch "$N/touched"
check "touch makes a draft" test -f "$N/touched"
equal "but no session" "$(errno_of ls "$S/touched")" ENOENT
echo now >>"$N/touched" && made touched 'now\n'
vim -u NONE -es -c "normal iby vim" -c wq "$N/vim" && made vim 'by vim\n'
vim -Nes -c "set backup writebackup swapfile directory=." -c "normal iby vim" -c wq "$N/vim2" && made vim2 'by vim\n'
equal "vim leaves nothing behind" "$(ls -A "$N" | grep -c 'swp\|~\|4913')" 0

# ---- the id on the same descriptor
equal "exec 3<>" "$(bash -c "exec 3<>'$N/clone'; printf 'do it' >&3; read id <&3; echo \$id")" "$(cat "$S/clone/id")"
equal "in python" "$(python3 -c "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(fd, b'do it')
print(os.read(fd, 100).decode(), end='')
print(repr(os.read(fd, 100)))" "$N/clone2")" "$(cat "$S/clone2/id")
b''"

# ---- after creation
equal "the file stays readable for a moment" "$(cat "$N/clone2") $(stat -c %a "$N/clone2")" "do it 444"
equal "but not writable" "$(errno_of sh -c "exec 3>> '$N/clone2'")" EEXIST
gone() { [ ! -e "$N/clone2" ]; }
check "and goes away" within 15 gone

echo one >"$N/again" && made again 'one\n'
rmdir "$S/again"
echo two >"$N/again" && made again 'two\n'
mv "$S/again" "$S/other"
echo three >"$N/again" && made again 'three\n'
equal "a name is free as soon as its session has ended or moved" "$(cat "$S/other/id" "$S/again/id" | wc -l)" 2

# ---- refusals
n=$(sessions)
bad() { # NAME TEXT ERRNO WORDS
	: >"$M/error"
	printf -- "$2" >"$T/f"
	equal "$1: $3" "$(errno_of cp "$T/f" "$N/$1")" "$3"
	contains "$1: words" "$(cat "$M/error")" "$4"
	equal "$1: the text stays" "$(cat "$N/$1" 2>/dev/null)" "$(printf -- "$2")"
}
bad unknown-key '---\ncolour: red\n---\nhello\n' EINVAL colour
bad unknown-project '---\nproject: /nowhere\n---\nhello\n' EINVAL /nowhere
bad no-script '---\nmodel: script:/nowhere\n---\nhello\n' EINVAL /nowhere
bad blank '   \n' EINVAL "white space"
bad no-message '---\nsandbox: dir\n---\n\n' EINVAL "front matter"
: >"$M/error"
printf 'a\000b' >"$T/f"
equal "NUL: EILSEQ" "$(errno_of cp "$T/f" "$N/nul")" EILSEQ
rm -f "$N/nul"
head -c 1048577 /dev/zero | tr '\0' x >"$T/f"
equal "1 MiB + 1: EFBIG" "$(errno_of cp "$T/f" "$N/big")" EFBIG
rm -f "$N/big"
equal "a bad line is an error of its write" "$(bash -c "{ echo ---; echo 'colour: red'; } > '$N/early'" 2>&1 | grep -c 'Invalid argument')" 1
equal "no session of all that" "$(sessions)" "$n"
printf 'hello again\n' >"$N/unknown-key" && made unknown-key 'hello again\n'
mv "$N/unknown-project" "$N/renamed" 2>/dev/null
equal "renaming a refused draft does not help it" "$(errno_of ls "$S/renamed")" ENOENT
check "nor lose it" sh -c "cat '$N/unknown-project' '$N/renamed' 2>/dev/null | grep -q nowhere"
equal "mkdir in the drop box: EPERM" "$(errno_of mkdir "$N/dir")" EPERM
equal "symlink in the drop box: EPERM" "$(errno_of ln -s x "$N/link")" EPERM
equal "mv -n over a draft keeps it" "$(echo a >"$N/.a"; echo b >"$N/.b"; mv -n "$N/.a" "$N/.b" 2>/dev/null; cat "$N/.b")" b
equal "mv over a draft replaces it" "$(mv -f "$N/.a" "$N/.b"; cat "$N/.b"; ls -A "$N" | grep -c '^\.a$')" "a
0"

touch "$N/$(printf 'bad\nname\377')" 2>/dev/null
equal "words about any name are lines of text" "$(tail -n 1 "$M/error" | iconv -f UTF-8 -t UTF-8 | grep -c 'bad name')" 1

# ---- elsewhere
cd /
: >"$M/error"
equal "no checkout and no project: EINVAL" "$(errno_of sh -c "echo hello | dd of='$N/nowhere'")" EINVAL
contains "words" "$(cat "$M/error")" project
rm -f "$N/nowhere"
printf -- "---\nproject: $P\n---\nhello\n" >"$N/named" && made named 'hello\n'
(cd "$P"; for i in 1 2 3 4 5 6 7 8; do echo "w$i" >"$N/at-once-$i" & done; wait)
at_once() { [ "$(ls -d "$S"/at-once-* 2>/dev/null | wc -l)" = 8 ]; } # a close that cannot tell whether it is the last does not wait
check "eight writers at once" within 60 at_once

# ---- many at once while git is slow: where each of them stands is known all the same
stop
mkdir "$T/bin"
printf '#!/bin/sh\ncase " $* " in *" rev-parse "*--show-toplevel*) sleep 3 ;; esac\nexec %s "$@"\n' "$(command -v git)" >"$T/bin/git"
chmod +x "$T/bin/git"
(PATH=$T/bin:$PATH && start) || exit 1
DAEMON=$(daemon_pid)
(cd "$P"; for i in 1 2 3 4 5 6; do echo "w$i" >"$N/slow-$i" & done; wait)
all_there() { [ "$(ls -d "$S"/slow-* 2>/dev/null | wc -l)" = 6 ]; }
check "with a slow git" within 60 all_there
