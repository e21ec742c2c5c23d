#!/bin/sh
# What users of other FUSE file systems complain about, one section each. Some of it has a script of its own: events for
# watchers in 45-48, messages that are split or lost in 10 and 12, savers by temporary file in 61 and 62, crawlers in 70,
# stale caches in 47, crashes and start-up in 40, ordinary users in 95, other users in 97.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/freezer.inc"
have python3 || { skip all "no python3"; exit 0; }
cat >"$T/script" <<'END'
{"text":"first"}
{"text":"one","delay_ms":5000}
{"text":"two"}
{"text":"three"}
END
start || exit 1
session s hello || { not_ok "a session"; exit 1; }
rm "$S/new/s" # what it was made of, which would go in the middle of something
within 60 gateway_is_up
texts() { sed -n 's/.*"kind":"user".*"text":"\(.*\)"}.*/\1/p' "$S/s/transcript.jsonl"; }
runs() { grep -q "^running" "$S/s/status"; }
# in_background NAME COMMAND: its pid goes to $pids.
pids=
in_background() {
	sh -c "exec $2" >"$T/$1" 2>&1 </dev/null &
	own $!
	pids="$pids $!"
}
alive() { for pid in $pids; do kill -0 "$pid" 2>/dev/null || return 1; done; }
holds() { [ -n "$(find "/proc/$1/fd" -lname "$2" 2>/dev/null)" ]; }

# ---- suspend fails because a process does not freeze
if freezer_make; then
	echo slow >>"$S/s/input"
	within 10 runs
	in_background idle "cat '$S/s/wait/idle'"
	idle=$!
	in_background live "cat '$S/s/wait/live'"
	in_background change "cat '$S/s/wait/reply'"
	in_background poll "python3 -c 'import select, sys, time
f = open(sys.argv[1]); f.read(); p = select.poll(); p.register(f, select.POLLIN)
while True: p.poll(); f.seek(0); f.read()' '$S/s/status'"
	in_background tail "tail -f '$S/s/transcript'"
	in_background stat "sh -c 'while :; do stat \"\$0\"/*; done' '$S/s'"
	in_background error "sh -c 'while :; do : >\"\$0\"; done' '$S/s/error'"
	have inotifywait && in_background watch "inotifywait -m -r '$M'"
	within 5 holds "$idle" "$S/s/wait/idle"
	freezer_add $pids
	freezer_freeze
	check "whatever uses the tree freezes" within 10 freezer_is_frozen
	check "others go on meanwhile" timeout 60 sh -c "ls -lR '$M' >/dev/null && echo meanwhile >>'$S/s/input'"
	freezer_thaw
	check "thawed, it goes on" timeout 60 sh -c "cat '$S/s/wait/idle' >/dev/null"
	check "and sees what came" within 10 grep -q meanwhile "$T/tail"
	check "who waited is answered" within 10 is_gone "$idle"
	freezer_end
	pids=
else
	skip "freezing" "no freezer"
fi

# ---- ls and df hang when the other side has gone
others=$(sandbox_pids)
for pid in $others; do kill -STOP "$pid"; done
check "ls, df, stat and cat end though a sandbox hangs" timeout 60 sh -c \
	"{ ls -lR '$M'; df '$M'; stat -f '$M'; find '$M' -type f -exec cat {} +; } >'$T/out' 2>&1"
[ -n "$others" ] || not_ok "there is a sandbox to stop"
for pid in $others; do kill -CONT "$pid"; done
contains "df says that there is room" "$(df --output=avail,target "$M" | tail -n 1)" " $M"
equal "and not that it is full" "$(df --output=pcent "$M" | tail -n 1 | tr -d ' ')" 0%

# ---- appending fails or mixes; dup; several closes
n=$(texts | wc -l)
python3 - "$S/s/input" <<'END'
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
os.write(fd, b"dup ")
copies = [os.dup(fd) for _ in range(5)]
for c in copies[:3]: os.write(c, b"and "); os.close(c)
os.pwrite(fd, b"pwrite ", 100000)  # offsets mean nothing in a message
os.lseek(fd, 0, 0); os.write(fd, b"end\n")
os.close(fd)
for c in copies[3:]: os.close(c)
END
for i in 1 2 3; do echo "append $i" >>"$S/s/input"; done
timeout 60 cat "$S/s/wait/idle" >/dev/null
equal "appended, each whole and once" "$(texts | tail -n +$((n + 1)) | tr '\n' ' ')" \
	'dup and and and pwrite end\n append 1\n append 2\n append 3\n '

# ---- fsync fails
failed=$(find "$M" -type f ! -path '*/wait/*' -exec sync {} + -o -type d -exec sync {} + 2>&1)
equal "sync of every file and directory" "$failed" ""
check "and of the whole" sync -f "$M"
equal "fsync of what is only read" "$(python3 -c "
import os, sys
for p in sys.argv[1:]:
    fd = os.open(p, os.O_RDONLY); os.fsync(fd); os.fdatasync(fd); os.close(fd)
print('ok')" "$S/s" "$S/s/plan" "$S/s/input" "$M/config")" ok

# ---- an error is lost
equal "who looks at close sees it" "$(python3 - "$S/s" <<'END'
import os, sys
def ends(path, text, flags=os.O_WRONLY):
    fd, got = os.open(path, flags), []
    for what in (lambda: os.write(fd, text), lambda: os.fsync(fd), lambda: os.close(fd)):
        try: what(); got.append("-")
        except OSError as e: got.append(os.strerror(e.errno).split()[0])
    return " ".join(got)
print(ends(sys.argv[1] + "/input", b" \n"))
print(ends(sys.argv[1] + "/ctl", b"dance\n"))
print(ends(sys.argv[1] + "/../../config", b"colour = red", os.O_WRONLY | os.O_TRUNC))
END
)" "- Invalid Invalid
Invalid Invalid Invalid
- Invalid Invalid"
contains "config as it was" "$(printf 'sandbox = dir\nsandbox.allow-dir = yes\nmodel = script:%s\n' "$T/script" >"$M/config"; cat "$M/status")" "config ok"
equal "a line file that was right after all ends well" "$(bash -c "exec 3>'$S/s/settings/after-run'; echo x >&3; echo none >&3; exec 3>&-; echo \$?" 2>/dev/null)" 0

# ---- mmap fails
equal "private maps work, shared ones are refused, programs get on" "$(python3 - "$S/s/transcript" <<'END'
import errno, mmap, sys
f = open(sys.argv[1], "rb")
print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)[:] == f.read())
try: mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED); print("shared")
except OSError as e: print(errno.errorcode[e.errno])
END
)" "True
ENODEV"
if have rg; then equal "rg --mmap" "$(rg --mmap -c hello "$S/s/transcript")" 1; fi
equal "git hash-object" "$(git hash-object "$S/s/transcript.jsonl")" "$(cat "$S/s/transcript.jsonl" | git hash-object --stdin)"
equal "cmp" "$(cat "$S/s/diff" >"$T/d" && cmp "$S/s/diff" "$T/d" && echo same)" same

# ---- sizes are wrong
true_size() { [ "$(stat -c %s "$1")" = "$(cat "$1" | wc -c)" ]; }
wrong=
for file in $(find "$M" -type f ! -path "$M/index" ! -name input); do
	true_size "$file" || true_size "$file" || wrong="$wrong $file" # an age may have changed in between
done
equal "size and text agree, of every file" "$wrong" ""
equal "no empty file that has a text" "$(find "$S/s" -type f -empty -exec cat {} +)" ""
check "test -s" test -s "$S/s/transcript"
check "du counts" [ "$(du -s --apparent-size "$S/s" | cut -f 1)" -gt 0 ]

# ---- indexers crawl it: it can be told from others by the type
equal "its type is its own" "$(findmnt -n -o FSTYPE,SOURCE "$M" | tr -s ' ')" "fuse.berthfs berthfs"
if have updatedb; then
	updatedb -l 0 -o "$T/locate" -U "$T" --prunefs fuse.berthfs --prunepaths ''
	equal "updatedb can leave it out" "$(plocate -d "$T/locate" transcript.jsonl | grep -c "^$M")" 0
fi

# ---- probing storms make saves slow
: >"$M/error"
for i in 1 2 3; do
	in_background "probe$i" "python3 -c 'import os, sys
while True:
    for n in \".git\", \".hg\", \".svn\", \".vscode\", \"package.json\", \"index.html\", \".editorconfig\":
        for d in \"\", \"/sessions\", \"/sessions/s\", \"/sessions/s/settings\", \"/sessions/new\", \"/projects\":
            os.path.exists(sys.argv[1] + d + \"/\" + n)' '$M'"
done
check "20 messages while an editor probes" timeout 60 sh -c "for i in \$(seq 20); do echo \"probed \$i\" >>'$S/s/input' || exit 1; done"
for pid in $pids; do kill "$pid"; done
wait $pids 2>/dev/null
pids=
equal "which says nothing in error" "$(cat "$M/error")" ""
timeout 60 cat "$S/s/wait/idle" >/dev/null
equal "all are there" "$(texts | grep -c probed)" 20

# ---- many look while much changes
cat >"$T/look.sh" <<'END'
end=$(($(date +%s) + 2))
while [ "$(date +%s)" -lt $end ]; do find "$1" -type f -exec cat {} + >/dev/null; ls -lR "$1" >/dev/null; done 2>/dev/null
END
for i in 1 2 3 4 5 6; do in_background "look$i" "sh '$T/look.sh' '$M'"; done
for i in $(seq 8); do
	(cd "$P" && echo hello >"$S/new/l$i" && mv "$S/l$i" "$S/m$i" && timeout 60 cat "$S/m$i/wait/idle" >/dev/null && echo "destroy force" >"$S/m$i/ctl")
done
none_looks() { ! alive_any; }
alive_any() { for pid in $pids; do kill -0 "$pid" 2>/dev/null && return 0; done; return 1; }
check "find and ls of six end while sessions come, move and go" within 30 none_looks
pids=
equal "and what is listed is true" "$(ls "$S" | tr '\n' ' ')" "new s "

# ---- it stands in its own way
equal "a project inside the mount" "$(errno_of ln -s "$S/s" "$M/projects/inside")" EINVAL
contains "says why not" "$(tail -n 1 "$M/error")" "inside"
equal "a draft from inside it" "$(cd "$S/s" && echo hello >"$T/f" && errno_of cp "$T/f" "$S/new/inside")" EINVAL
rm -f "$S/new/inside"
stop
(
	# The search path, the temporary folder and where it stands lie in what will be the mount.
	cd "$M" && PATH=$S/s:$S/new:$PATH TMPDIR=$S/new start
) || not_ok "a start from inside the directory"
DAEMON=$(daemon_pid)
echo again >>"$S/s/input"
equal "its path and folders lie in the mount: it goes on" "$(timeout 60 cat "$S/s/wait/idle")" idle

# ---- it does not end when it is told to; a lazy unmount never ends
in_background reply "cat '$S/s/wait/change'"
in_background open "sh -c 'exec 3<\"\$0\"; cd \"\$1\"; exec sleep 60' '$S/s/plan' '$S/s'"
in_background grow "tail -f '$S/s/transcript'"
within 5 holds "${pids##* }" "$S/s/transcript"
# A signal to another thread is for the whole process. One that was there only for a moment gets none.
for tid in "/proc/$DAEMON/task/"*; do
	tid=${tid##*/}
	[ "$tid" != "$DAEMON" ] && kill -TERM "$tid" 2>/dev/null && break
done
check "SIGTERM to a thread, files open, a shell inside: it ends" within 10 is_gone "$DAEMON"
equal "and nothing is mounted" "$(grep -c " $M " /proc/self/mountinfo)" 0
pids=
start || not_ok "a start right after that"
in_background reply2 "cat '$S/s/wait/change'"
wait_change=$!
within 5 holds "$wait_change" "$S/s/wait/change"
umount -l "$M" 2>/dev/null || fusermount3 -u -z "$M"
kill "$wait_change"
check "umount -l: it ends with the last who uses it, at once" within 4 is_gone "$DAEMON"

# ---- it says that it is ready before it is
late=
for i in 1 2 3 4 5; do
	start || late="$late start$i"
	cat "$M/status" "$S/s/id" >/dev/null 2>&1 || late="$late read$i"
	echo "ready $i" >>"$S/s/input" 2>/dev/null || late="$late write$i"
	stop || late="$late stop$i"
done
equal "what was mounted can be used at once" "$late" ""
start
timeout 60 cat "$S/s/wait/idle" >/dev/null
equal "and no message is lost by that" "$(texts | grep -c ready)" 5

# ---- an upgrade ends those who use it
in_background follow "tail -s 0.2 -n 0 -F '$S/s/transcript'"
within 5 holds "${pids##* }" "$S/s/transcript"
stop
start
echo "after the upgrade" >>"$S/s/input"
check "tail -F goes on after a restart" within 20 grep -q "after the upgrade" "$T/follow"

# ---- after a crash every access fails
kill -9 "$DAEMON"
cleared() { ! is_mounted; }
check "kill -9: the directory is an ordinary one again" within 10 cleared
equal "and empty" "$(ls -A "$M")" ""
check "the next start needs no help" start
equal "nothing is lost" "$(texts | grep -c 'after the upgrade')" 1
