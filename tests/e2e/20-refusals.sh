#!/bin/sh
# Bad input and bad luck on the way to a session's work: each has its errno or its state, words in `error` that say what to
# do, and neither draft nor message is lost.
. "$(dirname "$0")/../lib.sh"

# A PATH that the test can take programs from.
mkdir "$T/bin"
for dir in $(echo "$PATH" | tr : ' '); do ln -s "$dir"/* "$T/bin/" 2>/dev/null; done
gone() { for p; do rm -f "$T/bin/$p"; done; }
gone mmdebstrap
echo "check.timeout = 5" >>"$T/config/berthfs/config"
(PATH=$T/bin && start) || exit 1
DAEMON=$(daemon_pid)

# draft TEXT: writes it as sessions/new/x from the project.
draft() { printf -- "$1" >"$T/draft" && (cd "$P" && dd if="$T/draft" of="$S/new/x" bs=2M conv=notrunc); }
# refused NAME TEXT ERRNO WORDS: and no session comes of it.
refused() {
	: >"$M/error"
	equal "$1: $3" "$(errno_of draft "$2")" "$3"
	contains "$1: words" "$(cat "$M/error")" "$4"
	check "$1: no session" test ! -e "$S/x"
	rm -f "$S/new/x"
}
idle() { timeout 200 cat "$S/$1/wait/idle" >/dev/null; }
state() { cat "$S/$1/status"; }
is_failed() { grep -q '^failed' "$S/$1/status"; }

# ---- front matter
refused "unknown key" '---\ncolour: red\n---\nGo.\n' EINVAL "known: project, model, sandbox"
refused "a value that cannot be" '---\nsize: huge\n---\nGo.\n' EINVAL "mini small large"
refused "no such sandbox" '---\nsandbox: moon\n---\nGo.\n' EINVAL "vm container host dir"
refused "a key twice" '---\nsize: mini\nsize: mini\n---\nGo.\n' EINVAL "twice"
refused "no value" '---\nmodel:\n---\nGo.\n' EINVAL "no value"
refused "a model without a name" '---\nmodel: claude-code/\n---\nGo.\n' EINVAL "no provider"
refused "a model that nobody serves" '---\nmodel: llama3\n---\nGo.\n' EINVAL "no provider is known"
refused "a missing script" '---\nmodel: script:/no/such\n---\nGo.\n' EINVAL "/no/such"

# ---- project
refused "a project that is not there" '---\nproject: /no/such\n---\nGo.\n' EINVAL "/no/such"
mkdir "$T/plain"
refused "no git checkout" "---\nproject: $T/plain\n---\nGo.\n" EINVAL "git"
refused "a project inside the mount" "---\nproject: $S\n---\nGo.\n" EINVAL "mount"
refused "a bare repository" "---\nproject: $(git init -q --bare "$T/bare.git" && echo "$T/bare.git")\n---\nGo.\n" EINVAL ""
refused "a checkout without a commit" "---\nproject: $(git init -q "$T/empty" && echo "$T/empty")\n---\nGo.\n" EINVAL "commit"
: >"$M/error"
equal "from nowhere: EINVAL" "$(cd "$T" && errno_of dd if="$T/script" of="$S/new/x" conv=notrunc)" EINVAL
contains "from nowhere: words" "$(cat "$M/error")" "project"
rm -f "$S/new/x"

# ---- message
refused "white space alone" '---\nsize: mini\n---\n \n\t\n' EINVAL "message"
refused "a NUL" 'Go\000.\n' EILSEQ "NUL"
refused "invalid UTF-8" 'Go \377.\n' EILSEQ "UTF-8"
head -c 1048577 /dev/zero | tr '\0' x >"$T/big"
: >"$M/error"
equal "1 MiB + 1: EFBIG" "$(cd "$P" && errno_of dd if="$T/big" of="$S/new/x" bs=65536)" EFBIG
contains "1 MiB + 1: words" "$(cat "$M/error")" "1 MiB"
check "1 MiB + 1: no session" test ! -e "$S/x"
rm -f "$S/new/x"

# ---- front matter without its end: the shell has closed, so the words and the draft are what is left
(cd "$P" && printf -- '---\nsize: mini\nGo.\n' >"$S/new/unfinished") 2>/dev/null
check "an unfinished draft makes no session" test ! -e "$S/unfinished"

# ---- a script that is broken at its second line
printf '{"text":"fine"}\n{"text":\n{"text":"mended"}\n' >"$T/broken"
(cd "$P" && printf -- '---\nmodel: script:%s\n---\nFirst.\n' "$T/broken" >"$S/new/broken")
idle broken
echo "Second." >>"$S/broken/input"
check "a broken line: failed" within 30 is_failed broken
contains "a broken line: which" "$(state broken)" "script line 2"
contains "a broken line: in error" "$(cat "$S/broken/error")" "script line 2"
equal "wait/reply of a failed session: EIO" "$(errno_of timeout 200 cat "$S/broken/wait/reply")" EIO
echo retry >"$S/broken/ctl"
idle broken
equal "after retry no message is lost" "$(grep -c '"kind":"user"' "$S/broken/transcript.jsonl")" 2
contains "and it is answered" "$(cat "$S/broken/transcript")" mended

# ---- a script that goes away after the session was made
printf '{"text":"first"}\n{"text":"skipped"}\n{"text":"after retry"}\n' >"$T/leaving"
(cd "$P" && printf -- '---\nmodel: script:%s\n---\nFirst.\n' "$T/leaving" >"$S/new/leaving")
idle leaving
rm "$T/leaving"
echo "Second." >>"$S/leaving/input"
check "a script that is gone: failed" within 30 is_failed leaving
contains "a script that is gone: words" "$(cat "$S/leaving/error")" "$T/leaving"
printf '{"text":"first"}\n{"text":"skipped"}\n{"text":"after retry"}\n' >"$T/leaving"
echo retry >"$S/leaving/ctl"
idle leaving
equal "and answered after retry" "$(timeout 200 cat "$S/leaving/wait/reply")" "after retry"

# ---- a check that hangs, and a broken list of checks
cat >"$T/checks.script" <<'END'
{"tools":[{"name":"bash","input":{"command":"mkdir .agents; echo '{\"checks\":[{\"name\":\"hangs\",\"command\":\"sleep 1000 & sleep 1000\"},{\"name\":\"next\",\"command\":\"echo next\"}]}' > .agents/project.json; git add . && git commit -qm checks"}}]}
{"text":"made"}
{"tools":[{"name":"bash","input":{"command":"echo '{\"checks\":' > .agents/project.json; git commit -qam broken"}}]}
{"text":"broken"}
END
(cd "$P" && printf -- '---\nmodel: script:%s\n---\nGo.\n' "$T/checks.script" >"$S/new/checks")
idle checks
check "a check that hangs is ended" grep -qE '^(error|fail)	.*	hangs	' "$S/checks/checks"
contains "with words" "$(cat "$S/checks/checks")" "5 s"
check "and the next one runs" grep -q '^pass	.*	next	' "$S/checks/checks"
echo "Break it." >>"$S/checks/input"
idle checks
contains "a broken list of checks is told" "$(cat "$S/checks/checks" "$S/checks/error")" "project.json"

# ---- ship
: >"$S/checks/error"
equal "ship without a remote" "$(echo >"$S/checks/ship"; timeout 200 cat "$S/checks/wait/shipped" 2>&1 | cut -d: -f1)" blocked
contains "its words" "$(cat "$S/checks/ship" "$S/checks/error")" "remote"
equal "ship to a strange place: EINVAL" "$(errno_of sh -c "echo moon | dd of=$S/checks/ship conv=notrunc")" EINVAL
printf '{"text":"slow","delay_ms":60000}\n' >"$T/slow"
(cd "$P" && printf -- '---\nmodel: script:%s\n---\nGo.\n' "$T/slow" >"$S/new/slow")
within 20 grep -q running "$S/slow/status"
: >"$S/slow/error"
equal "ship while running: EBUSY" "$(errno_of sh -c "echo | dd of=$S/slow/ship conv=notrunc")" EBUSY
contains "ship while running: words" "$(cat "$S/slow/error")" "run"
echo stop >"$S/slow/ctl"
check "stop ends a slow answer" within 5 grep -q idle "$S/slow/status"

# ---- what a VM needs is not there
(cd "$P" && printf -- '---\nsandbox: vm\nsize: mini\n---\nIn a VM.\n' >"$S/new/box")
check "no base image and no way to make one: failed" within 60 is_failed box
contains "words" "$(state box)" "mmdebstrap"
contains "words in error, with what to do" "$(cat "$S/box/error")" "install"
equal "the message waits" "$(cut -f3 "$S/box/queue")" "In a VM."
gone qemu-system-x86_64
: >"$S/box/error"
echo retry >"$S/box/ctl"
qemu_named() { grep -q qemu "$S/box/status" && is_failed box; }
check "no qemu: failed" within 60 qemu_named
contains "no qemu: words in error" "$(cat "$S/box/error")" "qemu-system-x86"
equal "the message still waits" "$(cut -f3 "$S/box/queue")" "In a VM."
contains "doctor names both" "$(PATH=$T/bin "$BERTHFS" doctor)" "no    qemu"
echo "destroy force" >"$S/box/ctl"
check "it can be ended" test ! -e "$S/box"

equal "the other sessions live" "$(ls "$S" | tr '\n' ' ')" "broken checks leaving new slow "
for s in broken checks leaving slow; do echo destroy force >"$S/$s/ctl"; done
