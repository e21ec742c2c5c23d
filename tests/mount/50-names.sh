#!/bin/sh
# Sessions and projects as names: rmdir, mv, numbers, symlinks, listings.
. "$(dirname "$0")/../lib.sh"
start || exit 1
session s hello || { not_ok "a session"; exit 1; }
session t hello

# ---- numbers
equal "sessions/N is the session" "$(cat "$S/1/id") $(cat "$S/2/id")" "1 2"
equal "and is not listed" "$(ls "$S" | tr '\n' ' ')" "new s t "
equal "both names together" "$(cat "$S/1/id" "$S/s/id" "$S/1/settings/network" "$S/s/settings/network" | tr '\n' ' ')" \
	"1 1 $(cat "$S/s/settings/network") $(cat "$S/s/settings/network") "
(for i in $(seq 200); do cat "$S/1/settings/network" || echo bad; done) >"$T/a" 2>&1 &
(for i in $(seq 200); do cat "$S/s/settings/network" || echo bad; done) >"$T/b" 2>&1
wait
equal "also at once" "$(cat "$T/a" "$T/b" | sort -u | wc -l)" 1
equal "no such number" "$(errno_of cat "$S/77/id")" ENOENT

# ---- mv
rename() { # mv takes EINVAL for a directory moved into itself
	python3 -c "
import errno, os, sys
try: os.rename(sys.argv[1], sys.argv[2]); print('ok')
except OSError as e: print(errno.errorcode[e.errno])" "$S/$1" "$S/$2"
}
check "mv renames" mv "$S/t" "$S/u"
equal "under its new name" "$(cat "$S/u/id") $(cat "$S/2/id")" "2 2"
equal "and not the old one" "$(errno_of cat "$S/t/id")" ENOENT
contains "the index has it" "$(cat "$M/index")" "2	u	"
: >"$M/error"
equal "to an existing one: refused" "$(errno_of mv -T "$S/u" "$S/s")" EEXIST
equal "to a bad name: EINVAL" "$(rename u 77)" EINVAL
equal "to a hidden name: EINVAL" "$(rename u .u)" EINVAL
contains "with words" "$(cat "$M/error")" "point"
equal "out of sessions: EPERM" "$(errno_of mv "$S/u" "$M/u")" EPERM
equal "of the drop box: EPERM" "$(errno_of mv "$S/new" "$S/old")" EPERM
check "by number" mv "$S/2" "$S/v"
equal "too" "$(cat "$S/v/id")" 2

# ---- rmdir
exec 8<"$S/v/transcript"
check "rmdir ends a session" rmdir "$S/v"
equal "it is gone" "$(errno_of cat "$S/v/id") $(errno_of cat "$S/2/id")" "ENOENT ENOENT"
equal "an open file of it gives an error, no hang" "$(timeout 60 cat <&8 >/dev/null 2>&1; echo $?)" 1
exec 8<&-
equal "its name is free" "$(session v again; cat "$S/v/id")" 3
contains "its transcript can be shown" "$("$BERTHFS" show 2)" hello
equal "rmdir of new: EPERM" "$(errno_of rmdir "$S/new")" EPERM
equal "rmdir of settings: EPERM" "$(errno_of rmdir "$S/s/settings")" EPERM
equal "a write to an open input of an ended session" "$(python3 - "$S/v" <<'END'
import errno, os, sys
fd = os.open(sys.argv[1] + "/input", os.O_WRONLY)
os.rmdir(sys.argv[1])
try: os.write(fd, b"too late\n"); print("written")
except OSError as e: print(errno.errorcode[e.errno])
END
)" ESHUTDOWN

# ---- projects
check "ln -s registers a project" ln -s "$P" "$M/projects/app"
equal "it is a symlink" "$(readlink "$M/projects/app") $(cat "$M/projects/app/a.txt")" "$P hello"
check "its drop box is there" test -d "$S/new/app"
(cd / && echo hi >"$S/new/app/w") && timeout 60 cat "$S/w/wait/idle" >/dev/null
equal "and takes sessions from anywhere" "$(cat "$S/w/project")" "$P"
mkdir "$T/nogit"
: >"$M/error"
check "no git checkout: refused" sh -c "! ln -s '$T/nogit' '$M/projects/bad' 2>/dev/null"
check "with words" test -s "$M/error"
check "a project inside the mount: refused" sh -c "! ln -s '$S' '$M/projects/bad' 2>/dev/null"
equal "a file in projects: EPERM" "$(errno_of touch "$M/projects/x")" EPERM
check "rm takes it away" rm "$M/projects/app"
equal "it is gone" "$(ls "$M/projects") $(errno_of ls "$S/new/app")" " ENOENT"
equal "rm of nothing: ENOENT" "$(errno_of rm "$M/projects/app")" ENOENT

# ---- listings
equal "ls -l tells sizes" "$(stat -c %s "$S/s/id" "$S/s/project" | tr '\n' ' ')" "2 $((${#P} + 1)) "
equal "modes" "$(stat -c %a "$S/s/id" "$S/s/input" "$S/s/ctl" "$S/s" "$S/new" | tr '\n' ' ')" "444 644 644 555 755 "
for f in README index events status sessions/s/transcript sessions/s/transcript.jsonl sessions/s/log sessions/s/checks; do
	true_size() { [ "$(stat -c %s "$M/$f")" = "$(cat "$M/$f" | wc -c)" ]; }
	check "size of $f is true" within 3 true_size # it may grow between the two
done
equal "blocks" "$(stat -c %b "$M/README")" $((($(stat -c %s "$M/README") + 511) / 512))
contains "README has every name" "$(cat "$M/README")" "transcript.jsonl"
check "README has at most 48 lines" [ "$(wc -l <"$M/README")" -le 48 ]
