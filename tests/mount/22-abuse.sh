#!/bin/sh
# time limit: 600 s
# Every call that a program may make on every file of the tree, messages that come by other calls than write(2), and names
# that nobody expects. Each is answered by an errno that says what is so; nothing is lost and nothing else changes.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
python3 -c 'import os; os.splice' 2>/dev/null || { skip all "python3 is older than 3.10"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
# say FILE: what a program has printed, as the script's own.
say() {
	while read -r line; do
		case $line in "not ok "*) not_ok "${line#not ok }" ;; "ok "*) ok "${line#ok }" ;; *) note "${line#\# }" ;; esac
	done <"$1"
}
(
	cd "$P" && ln -s a.txt link && mkdir sub && echo deep >sub/file && printf '#!/bin/sh\n' >run && chmod 755 run &&
		git add . && git commit -qm more
) || exit 1
printf '{"tools":[{"name":"bash","input":{"command":"echo b >b.txt; git add .; git commit -qm b"}}]}\n{"text":"done"}\n' \
	>"$T/once"
start || exit 1
session s "---
model: script:$T/once
---
hello" || { not_ok "a session"; exit 1; }
rm "$S/new/s" # what it was made of, which would stay for some seconds
ln -s "$P" "$M/projects/app"
echo "kept as it is" >"$S/s/attach/note.txt"

# ---- every call on every file
# All that they could change.
picture() {
	cat "$M/config" "$M/gateway/policy" "$S/s/transcript.jsonl" "$S/s/status" "$S/s/sandbox" "$S/s/queue" \
		"$S/s/settings/"* "$S/s/attach/note.txt" "$S/s/log" "$S/s/ship" "$S/s/files/b.txt" | cksum
	ls "$M" "$S" "$S/s" "$S/s/files" "$S/s/files/sub" "$M/projects" "$M/gateway/keys"
	cut -f 4,5 "$M/events" | cksum
}
within 60 gateway_is_up
picture >"$T/before"
timeout 500 python3 "$here/abuse.py" "$M" "$T" >"$T/py" 2>"$T/err"
code=$?
say "$T/py"
equal "every call was answered" "$code $(cat "$T/err")" "0 "
picture >"$T/after"
equal "and nothing has changed" "$(diff "$T/before" "$T/after")" ""
check "the same daemon" is_ours "$DAEMON"
rm "$S/s/attach/note.txt"

# ---- messages that come by other calls
cat >"$T/messages.py" <<'END'
import ctypes, errno, fcntl, json, os, sys, threading
path, draft, folder, jsonl, idle = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
def sent():
    return [json.loads(l)["text"] for l in open(jsonl) if '"kind":"user"' in l]
def settle():
    with open(idle) as f: f.read()
def trial(call):
    try: return call()
    except OSError as e: return errno.errorcode[e.errno]
def one(name, call, *wanted, flags=os.O_WRONLY):
    """What call(fd) sends: one of the lists of wanted."""
    had = len(sent())
    fd = os.open(path, flags)
    got = [trial(lambda: call(fd)), trial(lambda: os.close(fd))]
    settle()
    new = sent()[had:]
    print(("ok " if new in wanted else "not ok ") + name)
    if new not in wanted: print("# %r, and %r was sent" % (got, [n[:60] for n in new]))
def made(text):
    fd = os.open(folder, os.O_RDWR | os.O_TMPFILE)
    os.write(fd, text); os.lseek(fd, 0, 0)
    return fd
def piped(fd, text):
    r, w = os.pipe()
    os.write(w, text); os.close(w)
    while os.splice(r, fd, 65536): pass
    os.close(r)
def kept(fd):
    libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(99))
    os.ftruncate(fd, 50); fcntl.flock(fd, fcntl.LOCK_EX); os.write(fd, b"kept\n"); os.ftruncate(fd, 5)
def cut(fd):
    os.write(fd, b"not this\n"); os.ftruncate(fd, 0)
def cut_and_again(fd):
    cut(fd); os.write(fd, b"but this\n")
def refused_and_on(fd):
    return [trial(lambda: os.write(fd, t)) for t in (b"q" * (2 << 20), b"small\n", b"\n")]
one("sendfile into input is one message", lambda fd: os.sendfile(fd, made(b"by sendfile\n"), 0, 100), ["by sendfile\n"])
one("splice into input is one", lambda fd: piped(fd, b"by splice\n"), ["by splice\n"])
one("copy_file_range into input is one, or refused", lambda fd: os.copy_file_range(made(b"a range\n"), fd, 100), ["a range\n"], [])
with open(draft, "w") as f: f.write("by a range\n")
one("copy_file_range inside the tree is one", lambda fd: os.copy_file_range(os.open(draft, os.O_RDONLY), fd, 100), ["by a range\n"], [])
os.remove(draft)
one("writev is one", lambda fd: os.writev(fd, [b"a\n", b"", b"b\n", b"c\n"]), ["a\nb\nc\n"])
one("pwrites at odd places are one, in their order", lambda fd: [os.pwrite(fd, b"one", 1 << 40), os.pwrite(fd, b"two\n", 3)], ["onetwo\n"])
one("so are appends and seeks", lambda fd: [os.write(fd, b"three"), os.lseek(fd, 1 << 30, 0), os.write(fd, b" four\n")],
    ["three four\n"], flags=os.O_WRONLY | os.O_APPEND)
one("O_DIRECT and O_SYNC are one", lambda fd: os.write(fd, b"straight\n"), ["straight\n"], flags=os.O_WRONLY | os.O_DIRECT | os.O_SYNC)
one("writes of nothing add none", lambda fd: [os.write(fd, b""), os.write(fd, b"x\n"), os.write(fd, b"")], ["x\n"])
one("fallocate, ftruncate and a lock around a write lose nothing", kept, ["kept\n"])
one("cut to nothing before the close it is none", cut, [])
one("and what is written after that is one", cut_and_again, ["but this\n"])
one("64 MiB at once are refused, and none", lambda fd: os.write(fd, b"z" * (64 << 20)), [])
one("and so is what comes behind what was refused", refused_and_on, [])
one("and the next one is sent", lambda fd: os.write(fd, b"the next\n"), ["the next\n"])

# A hundred at once, each with its own way.
had, gate, failed = len(sent()), threading.Barrier(100), []
def writer(i):
    text = b"writer %d %s\n" % (i, b"." * (i * 700))
    gate.wait()
    try:
        fd = os.open(path, os.O_WRONLY | (os.O_APPEND if i % 5 > 1 else 0)) # splices take no such file
        if i % 5 == 0: os.sendfile(fd, made(text), 0, len(text))
        elif i % 5 == 1: piped(fd, text[:60000]) if len(text) < 60000 else os.write(fd, text)
        elif i % 5 == 2: [os.pwrite(fd, text[k : k + 997], k) for k in range(0, len(text), 997)]
        elif i % 5 == 3: os.write(fd, text); os.fsync(fd)
        else: os.writev(fd, [text[:7], text[7:]])
        os.close(fd)
    except OSError as e:
        failed.append((i, e))
threads = [threading.Thread(target=writer, args=(i,)) for i in range(100)]
for t in threads: t.start()
for t in threads: t.join()
settle()
new = sent()[had:]
want = sorted("writer %d %s\n" % (i, "." * (i * 700)) for i in range(100))
print("ok a hundred at once" if sorted(new) == want and not failed else "not ok a hundred at once")
if sorted(new) != want or failed: print("# %d, %r; %r" % (len(new), sorted(set(n[:12] for n in new) ^ set(n[:12] for n in want)), failed))
END
python3 "$T/messages.py" "$S/s/input" "$S/new/.from" "$T" "$S/s/transcript.jsonl" "$S/s/wait/idle" >"$T/py" 2>"$T/err"
say "$T/py"
equal "all of that was tried" "$(grep -c '^ok\|^not ok' "$T/py") $(cat "$T/err")" "16 "

# ---- names that nobody expects, where files can be made
cat >"$T/names.py" <<'END'
import errno, os, sys
mount = os.fsencode(sys.argv[1])
names = [b"a\nb", b"a\tb", b"\x1b[31mred", b"\xff\xfe", b"caf\xc3", b"\xe2\x80\xae", b" ", b"-rf", b"a b", b"$(id)", b"n" * 255,
         b"\x7f", b"..a", b"...", b"new", b"0", b"1", b"-", b"%s%n", b"a" * 65]
names += [b"." + n for n in names] + [n + b"~" for n in names if len(n) < 255] + [b"#" + n + b"#" for n in names if len(n) < 200]
made, odd = [], []
for place in (b"sessions/new/", b"sessions/s/attach/", b"sessions/s/", b"gateway/keys/", b"projects/", b"sessions/new/app/", b"sessions/"):
    for name in names:
        path = os.path.join(mount, place) + name[:255]
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            made.append(path)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.EPERM, errno.EILSEQ, errno.EEXIST, errno.EISDIR): odd.append((path, e))
        try: os.symlink(b"/nonexistent", path)
        except OSError as e:
            if e.errno not in (errno.EINVAL, errno.EPERM, errno.EEXIST, errno.ENOENT): odd.append((path, e))
        if place == b"sessions/":
            if name in (b"-rf", b"-", b"1"): continue # good names, and its own number
            try: os.rename(os.path.join(mount, b"sessions/s"), path); odd.append((path, "renamed")); os.rename(path, os.path.join(mount, b"sessions/s"))
            except OSError as e:
                if e.errno not in (errno.EINVAL, errno.EEXIST, errno.EPERM): odd.append((path, e))
for path in made:
    listed = os.path.basename(path) in os.listdir(os.path.dirname(path))
    hidden = path.startswith(os.path.join(mount, b"sessions/s/")) and b"/attach/" not in path or b"/keys/" in path
    if listed == hidden: odd.append((path, "is listed" if listed else "is not listed"))
    try: os.remove(path)
    except OSError as e:
        if b"/keys/" not in path: odd.append((path, e))
print(len(made) > 40, odd)
END
python3 "$T/names.py" "$M" >"$T/py" 2>&1
equal "odd names are kept, refused and removed" "$(cat "$T/py")" "True []"
python3 - "$M/error" "$M/events" "$M/index" "$S/s/error" "$S/s/log" "$M/status" <<'END' >"$T/py" 2>&1
import re, sys
for path in sys.argv[1:]:
    text = open(path, "rb").read().decode("utf-8")
    for line in text.splitlines():
        if re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", line): print(path, repr(line))
END
equal "and do nothing to whoever reads of them" "$(cat "$T/py")" ""
equal "nothing of all that is left" "$(ls -A "$S/new" | tr '\n' ' ')$(ls -A "$S/s/attach" "$M/gateway/keys" | grep -v '^$\|:$')" "app "
equal "and no session was made" "$(ls "$S" | tr '\n' ' ')" "new s "

# ---- what is cut
(cd "$P" && echo go on >"$S/new/t")
equal "what has become a session is not cut" "$(python3 -c 'import errno, os, sys
try: os.open(sys.argv[1], os.O_RDONLY | os.O_TRUNC); print("ok")
except OSError as e: print(errno.errorcode[e.errno])' "$S/new/t")" EEXIST
equal "a draft is cut and made longer" "$(printf hello >"$S/new/.d"; truncate -s 3 "$S/new/.d"; truncate -s 6 "$S/new/.d"
	od -An -c "$S/new/.d" | tr -d ' ')" 'hel\0\0\0'
equal "but not beyond what one may have" "$(errno_of truncate -s 5M "$S/new/.d") $(stat -c %s "$S/new/.d")" "EFBIG 6"
contains "with words" "$(cat "$M/error")" "at most 4 MiB"
rm "$S/new/.d"
python3 - "$S/new" <<'END' >"$T/py" 2>&1
import errno, os, sys
made = []
try:
    for i in range(40):
        made.append("%s/.fill%d" % (sys.argv[1], i))
        with open(made[-1], "w") as f: f.truncate(4 << 20)
    print("no limit")
except OSError as e: print(errno.errorcode[e.errno], len(made) <= 17)
for path in made: os.remove(path)
END
equal "nor do all together" "$(cat "$T/py")" "ENOSPC True"
had=$(cat "$M/config" | cksum)
equal "config is not cut unseen" "$(python3 -c 'import errno, os, sys
try: os.truncate(sys.argv[1], 0); print("ok")
except OSError as e: print(errno.errorcode[e.errno])' "$M/config") $(errno_of truncate -s +1 "$M/config")" "EINVAL EINVAL"
equal "and is as it was" "$(cat "$M/config" | cksum)" "$had"
lines=$(head -n 1 "$M/config" | wc -c)
check "but by an open file" truncate -s "$lines" "$M/config"
equal "as any other" "$(cat "$M/config" | wc -c)" "$lines"
