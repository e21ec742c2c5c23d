#!/bin/sh
# How programs save files, other than by writing them from start to end: in place after a look, by a temporary file and
# a rename, with a backup beside it. In the drop box that makes one session; a session's files are saved in place or not
# at all, in words, and nothing is left behind.
. "$(dirname "$0")/../lib.sh"
start || exit 1
cd "$P" || exit 1
N=$S/new
session s hello || { not_ok "a session"; exit 1; }
text_of() { sed -n 's/.*"kind":"user".*"text":"\(.*\)"}.*/\1/p' "$S/$1/transcript.jsonl" | head -n 1; }
made() { # NAME TEXT
	timeout 60 cat "$S/$1/wait/idle" >/dev/null 2>&1
	equal "$1" "$(text_of "$1")" "$2"
}
messages() { grep -c '"kind":"user"' "$S/s/transcript.jsonl"; }
names() { ls "$S" | sort | tr '\n' ' '; }
refused() { # NAME [TEXT]: a draft of that name which was refused
	printf -- "${2:----\ncolour: red\n---\nhello\n}" >"$T/f"
	! cp "$T/f" "$N/$1" 2>/dev/null
}

# ---- backups beside a draft; they are looked for at the end
refused kept && cp "$N/kept" "$N/kept~" && sed -i.bak 2d "$N/kept" && made kept 'hello\n'
refused other && mv "$N/other" "$N/othez~" && refused other '---\nsize: 9\n---\nhello\n'
echo foreign >"$N/foreign~"
echo new text >"$N/other" && made other 'new text\n'

# ---- a draft that is refused is what was written, however it was written
bad='---
colour: red
---
hello'
bash -c "printf -- '---\ncolour: red\n---\nhello\n' >'$N/by-lines'" 2>/dev/null
equal "refused, by a shell that writes lines" "$(cat "$N/by-lines")" "$bad"
bash -c "{ echo ---; echo colour: red; echo ---; /bin/echo hello; } >'$N/by-group'" 2>/dev/null
equal "refused, by a group" "$(cat "$N/by-group")" "$bad"
bash -c "{ echo ---; echo colour: red; echo colour: red; echo size: 3; } >'$N/by-twice'" 2>/dev/null
equal "refused several times, by a group" "$(sort -u "$N/by-twice")" "$(printf '%s\n' --- 'colour: red' 'size: 3')"
python3 - "$N/by-retry" <<'END'
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
for i in range(3):  # as an editor that tries again
    try: os.write(fd, b"---\ncolour: red\n---\nhello\n"); print("written")
    except OSError: pass
try: os.close(fd)
except OSError: pass
END
equal "refused, by a program that tries again" "$(cat "$N/by-retry")" "$bad"
echo "$bad" >"$T/f" && dd if="$T/f" of="$N/by-blocks" bs=5 conv=notrunc 2>/dev/null
contains "refused, in blocks: what came before it stays" "$bad" "$(cat "$N/by-blocks")"
before=$(cat "$M/config")
bash -c "{ echo sandbox = dir; echo colour = red; echo sandbox.allow-dir = yes; } >'$M/config'" 2>/dev/null
equal "a config with a bad line, by lines" "$(cat "$M/config")" "$(printf '%s\n' 'sandbox = dir' 'colour = red' 'sandbox.allow-dir = yes')"
echo "$before" >"$M/config"
contains "and mended" "$(cat "$M/config" "$M/status")" "$before"
rm "$N"/by-*

# ---- temporary file and rename, in the drop box
before=$(names)
refused sed-i && sed -i 2d "$N/sed-i" && made sed-i 'hello\n'
refused perl-i && perl -i -ne 'print unless $. == 2' "$N/perl-i" && made perl-i 'hello\n'
refused perl-i-bak && perl -i.bak -ne 'print unless $. == 2' "$N/perl-i-bak" && made perl-i-bak 'hello\n'
if have rsync; then
	ln -s "$P" "$M/projects/app" # rsync itself stands in the drop box, not in the checkout
	echo "by rsync" >"$T/rsync" && rsync "$T/rsync" "$N/app/" && made rsync 'by rsync\n'
else
	skip rsync "no rsync"
fi
python3 - "$N" <<'END' >"$T/py"
import os, sys, tempfile
d = sys.argv[1]
with tempfile.NamedTemporaryFile("w", dir=d, delete=False) as f:
    f.write("by mkstemp\n"); f.flush(); os.fsync(f.fileno())
os.replace(f.name, d + "/mkstemp")
with tempfile.NamedTemporaryFile("w", dir=d, delete=False) as f:  # renamed before it is closed
    f.write("by early rename\n"); f.flush()
    os.replace(f.name, d + "/early")
fd = os.open(d + "/qsavefile.XyZabc", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
os.write(fd, b"by QSaveFile\n"); os.fdatasync(fd); os.close(fd)
os.rename(d + "/qsavefile.XyZabc", d + "/qsavefile")
for end in ".tmp", ".vsctmp", "___jb_tmp___", ".part":
    with open(d + "/ends" + end, "w") as f: f.write("by an end\n")
    os.replace(d + "/ends" + end, d + "/ends-" + end.strip("._"))
fd = os.open(d + "/exclusive", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # not a saver: it asks for the id
os.write(fd, b"by exclusive\n"); print(os.read(fd, 100).decode().strip() != "")
END
equal "a temporary file that is read back is a session" "$(cat "$T/py")" True
made mkstemp 'by mkstemp\n'
made early 'by early rename\n'
made qsavefile 'by QSaveFile\n'
for end in tmp vsctmp jb_tmp part; do made "ends-$end" 'by an end\n'; done
made exclusive 'by exclusive\n'
tmp=$(mktemp -p "$N") && echo "by mktemp" >"$tmp" && mv "$tmp" "$N/mktemp" && made mktemp 'by mktemp\n'
equal "no session of a temporary name" "$(names)" "$(echo "$before" exclusive ends-jb_tmp ends-part ends-tmp ends-vsctmp early \
	mkstemp mktemp perl-i perl-i-bak qsavefile rsync sed-i | tr ' ' '\n' | sort -u | tr '\n' ' ' | sed 's/^ *//')"
refused refused-save
equal "a save that is refused again: EINVAL" "$(errno_of sed -i 2s/colour/color/ "$N/refused-save")" EINVAL
equal "and the old text stays" "$(cat "$N/refused-save")" "$bad"
rm -f "$N/refused-save"

# ---- a session's files: in place, or not at all
n=$(messages)
for command in "sed -i s/^/x/ input" "sed -i.bak s/^/x/ input" "perl -i -pe 's/^/x/' input" "rsync '$T/f' input" \
	"install -m 644 '$T/f' input" "mv '$T/f2' input" "cp --remove-destination '$T/f' input" "cp --backup=simple '$T/f' input" \
	"ln -sf /etc/hostname input" "sed -i s/.*/none/ settings/network"; do
	echo text >"$T/f" && cp "$T/f" "$T/f2"
	have "${command%% *}" || continue
	words=$(cd "$S/s" && sh -c "$command" 2>&1)
	case $words in
	*"not permitted"*) ok "$command: says why not" ;;
	*) not_ok "$command: $words" ;;
	esac
done
equal "none of them has sent anything" "$(messages)" "$n"
equal "nor left anything" "$(ls -A "$S/s" | grep -c '~\|sed\|bak\|\.input')" 0
# ---- what editors keep beside a file that may be written, for a moment: not listed, and of no effect
n=$(messages)
cp "$T/f" "$S/s/input~" && cp "$T/f" "$S/s/#input#" && cp "$T/f" "$S/s/settings/network~" && cp "$T/f" "$M/config.save"
equal "a backup is kept" "$(cat "$S/s/input~" "$S/s/#input#" "$S/s/settings/network~" "$M/config.save" | sort -u)" text
equal "in no listing" "$(ls -A "$M" "$S/s" "$S/s/settings" | grep -c '~$\|#\|\.save$')" 0
equal "renaming it: EPERM" "$(errno_of mv "$S/s/input~" "$S/s/input")" EPERM
equal "and to it: EPERM" "$(errno_of mv "$S/s/input" "$S/s/input~")" EPERM
for f in s/plan~ s/status~ s/x~ s/settings~ s/settings/model.tmp s/.input.swp new~ ../gateway/keys/anthropic~ ../gateway/ledger~; do
	equal "none of $f: EPERM" "$(errno_of sh -c "cp '$T/f' '$S/$f'")" EPERM
done
equal "that is no message" "$(messages)" "$n"
rm "$S/s/input~" "$S/s/settings/network~" "$M/config.save"
equal "removed" "$(errno_of cat "$S/s/input~")" ENOENT
echo gone soon >"$N/gone" && made gone 'gone soon\n' && cp "$T/f" "$S/gone/#input#"
rmdir "$S/gone" && echo other >"$N/gone" && made gone 'other\n'
equal "it goes with its session" "$(errno_of cat "$S/gone/#input#")" ENOENT
if have node; then
	node - "$S/s" "$N" <<'END' >"$T/node" 2>&1
const fs = require("fs"), [s, drop] = process.argv.slice(2);
// VS Code: looks, opens to write, writes at offsets, syncs, closes, looks again. On a second save it compares.
function save(path, text, flags) {
	const before = fs.existsSync(path) ? fs.statSync(path) : null;
	if (before && save.seen[path] && save.seen[path] != before.mtimeMs + ":" + before.size) console.log("changed behind our back", path);
	const fd = fs.openSync(path, flags);
	if (flags == "r+") fs.ftruncateSync(fd, 0);
	const data = Buffer.from(text);
	for (let at = 0; at < data.length;) at += fs.writeSync(fd, data, at, data.length - at, flags == "r+" ? at : null);
	fs.fdatasyncSync(fd);
	fs.closeSync(fd);
	const after = fs.statSync(path);
	save.seen[path] = after.mtimeMs + ":" + after.size;
}
save.seen = {};
save(s + "/input", "by w\n", "w");
save(s + "/input", "by r+\n", "r+");
save(s + "/settings/after-run", "none\n", "w");
save(s + "/settings/after-run", "merge\n", "r+");
save(drop + "/by-code", "by code\n", "w");
for (const [path, text] of [[s + "/settings/after-run", "everything\n"], [drop + "/by-code-2", "---\ncolour: red\n---\nx\n"]])
	try { save(path, text, "w"); console.log("taken", path); } catch (e) { if (e.code != "EINVAL") console.log(e.code, path); }
fs.writeFileSync(drop + "/by-code-3.vsctmp", "by rename\n"); // saved as a whole
fs.renameSync(drop + "/by-code-3.vsctmp", drop + "/by-code-3");
try { fs.writeFileSync(s + "/input.vsctmp", "x"); console.log("taken"); } catch (e) { if (e.code != "EPERM") console.log(e.code); }
END
	equal "the way of VS Code: nothing is wrong" "$(cat "$T/node")" ""
	timeout 60 cat "$S/s/wait/idle" >/dev/null
	equal "two messages" "$(sed -n 's/.*"kind":"user".*"text":"\(.*\)"}.*/\1/p' "$S/s/transcript.jsonl" | tail -n +$((n + 1)) | tr '\n' ' ')" \
		'by w\n by r+\n '
	equal "the setting" "$(cat "$S/s/settings/after-run")" merge
	made by-code 'by code\n'
	made by-code-3 'by rename\n'
	equal "the refused draft stays" "$(sed -n 2p "$N/by-code-2")" "colour: red"
else
	skip "the way of VS Code" "no node"
fi

# ---- when a draft has become a session its backups go with it, but nothing else does
backups() { ls -A "$N" | grep 'kept\|othe[rz]'; }
no_backups() { ! backups >/dev/null; }
check "the backups are gone" within 20 no_backups
check "another draft's is not" test -f "$N/foreign~"
