#!/bin/sh
# attach/ on a real mount: what is put there goes with the next message, images to the model, files into the sandbox.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
for i in 1 2 3 4 5 6 7 8; do echo '{"show":true}'; done >"$T/script"
start || exit 1
session s hello || { not_ok "a session"; exit 1; }
A=$S/s/attach
HOME_IN=$T/state/berthfs/sandboxes/1/home
idle() { timeout 60 cat "$S/s/wait/idle" >/dev/null; }
send() { printf '%s\n' "$1" >>"$S/s/input" && idle; }
answer() { timeout 60 cat "$S/s/wait/reply"; }
python3 - "$T" <<'EOF'
import struct, sys, zlib
def chunk(t, d): return struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d))
def png(w, h, more=0):
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(bytes((w * 3 + 1) * min(h, 4)))) + (chunk(b"tEXt", b"x" * more) if more else b"") +
            chunk(b"IEND", b""))
t = sys.argv[1]
open(t + "/small.png", "wb").write(png(4, 4))
open(t + "/huge.png", "wb").write(png(4, 4, 4000000))
open(t + "/wide.png", "wb").write(png(9000, 2))
open(t + "/broken.png", "wb").write(png(4, 4)[:20])
open(t + "/bytes", "wb").write(bytes(range(256)) * 5000)
EOF

# ---- a file and an image
cp "$T/bytes" "$A/a file with spaces é.bin"
cp "$T/small.png" "$A/no-suffix"
equal "listed" "$(ls "$A" | sort | tr '\n' '|')" "a file with spaces é.bin|no-suffix|"
equal "true sizes" "$(stat -c %s "$A/no-suffix")" "$(stat -c %s "$T/small.png")"
check "readable while they wait" cmp -s "$T/bytes" "$A/a file with spaces é.bin"
equal "nobody writes to what is there" "$(errno_of sh -c "echo x >>'$A/no-suffix'")" EACCES
equal "with O_EXCL it exists" "$(errno_of sh -c "set -C; echo x >'$A/no-suffix'")" EEXIST
send "look at these"
contains "the image goes to the model" "$(answer)" "[image] no-suffix image/png $(stat -c %s "$T/small.png") bytes"
contains "the file is named" "$(answer)" "
[the user attached the file $HOME_IN/attach/1/a file with spaces é.bin, 1280000 bytes]"
check "and is in the sandbox" cmp -s "$T/bytes" "$HOME_IN/attach/1/a file with spaces é.bin"
equal "attach/ is empty again" "$(ls -A "$A")" ""
contains "the transcript says so" "$(cat "$S/s/transcript")" "[attached: no-suffix, image/png]"
check "transcript.jsonl is JSON" python3 -c 'import json, sys
for l in open(sys.argv[1]): json.loads(l)' "$S/s/transcript.jsonl"
send "and now"
contains "an image stays in the conversation" "$(answer)" "[image] no-suffix"
equal "the next message has none of its own" "$(answer | sed -n '/^\[user\] and now/,$p' | grep -c '^\[image\]')" 0

# ---- taken back, refused
echo note >"$A/note.txt"
rm "$A/note.txt"
equal "unlink takes one back" "$(ls -A "$A")" ""
equal "an image that is too large: EFBIG" "$(errno_of cp "$T/huge.png" "$A/huge.png")" EFBIG
contains "in words" "$(cat "$S/s/error")" "an image that is shown to the model has at most"
equal "and nothing is left of it" "$(ls -A "$A")" ""
equal "a file that is too large: EFBIG" "$(errno_of sh -c "head -c 17000000 /dev/zero | dd of=$A/zero bs=65536")" EFBIG
contains "in words, too" "$(cat "$S/s/error")" "an attached file has at most 16 MiB"
equal "nothing of that either" "$(ls -A "$A")" ""
equal "no folders" "$(errno_of mkdir "$A/d")" EPERM
equal "no renaming" "$(echo x >"$A/x"; errno_of mv "$A/x" "$A/y")" EPERM
rm "$A/x"
cp "$T/wide.png" "$A/wide.png"
cp "$T/broken.png" "$A/broken.png"
send "two that are none"
equal "images that would be refused are files" "$(answer | grep -c '^\[image\] \(wide\|broken\)')" 0
contains "and it is said why" "$(answer)" "too many pixels"
contains "of both" "$(answer)" "it is broken"

# ---- durable, withdrawn
echo kept >"$A/kept.txt"
kill -9 "$DAEMON"
within 20 is_gone "$DAEMON"
start || exit 1
equal "it waits over a crash" "$(cat "$A/kept.txt")" kept
for i in 1 2 3 4 5; do echo '{"show":true,"delay_ms":60000}'; done >"$T/slow.script" # the fifth request is slow
for i in 6 7 8; do echo '{"show":true}'; done >>"$T/slow.script"
echo "script:$T/slow.script" >"$S/s/settings/model"
echo first >>"$S/s/input"
contains "it went with the first" "$(within 10 grep -q kept.txt "$S/s/transcript"; cat "$S/s/transcript")" "kept.txt"
echo other >"$A/other.txt"
echo second >>"$S/s/input"
equal "gone with a message that waits" "$(ls -A "$A")" ""
echo "withdraw $(cut -f 1 "$S/s/queue")" >"$S/s/ctl"
equal "back when that is withdrawn" "$(ls -A "$A")" other.txt
echo stop >"$S/s/ctl"
idle

# ---- how editors and shells write
printf 'a line\n' | tee "$A/tee.txt" >/dev/null
(echo one; echo two) >"$A/group.txt"
equal "a group is one file" "$(cat "$A/group.txt")" "one
two"
if have inotifywait; then
	inotifywait -m "$A" >"$T/events" 2>"$T/err" &
	pid=$!
	own $pid
	established() { grep -q established "$T/err"; }
	within 10 established
	echo w >"$A/w.txt"
	check "inotify: CREATE" within 5 grep -q "CREATE w.txt" "$T/events"
	echo go >>"$S/s/input"
	check "inotify: DELETE when it has gone" within 10 grep -q "DELETE w.txt" "$T/events"
	kill $pid
fi
idle
echo "destroy force" >"$S/s/ctl"
gone() { [ ! -e "$T/state/berthfs/attach/1" ]; }
check "a destroyed session leaves nothing" within 10 gone
