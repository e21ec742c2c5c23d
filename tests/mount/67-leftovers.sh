#!/bin/sh
# What an earlier daemon has left is found at the start and removed; what belongs to a session that lives never is.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "needs python3"; exit 0; }
boxes=$T/state/berthfs/sandboxes
: >"$T/script"
start || exit 1
session lives && session ends || exit 1
cat "$S/lives/wait/idle" "$S/ends/wait/idle" >/dev/null
pid_of() { cat "$boxes/$1/tools.pid" 2>/dev/null | cut -d' ' -f1; }
lives=$(pid_of 1) ends=$(pid_of 2)
check "both have a process" test -d "/proc/$lives" -a -d "/proc/$ends"
stop
# As if a daemon had died between the end of a session and the end of its sandbox.
python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE sessions SET destroyed_ms=1, state='"'"'idle'"'"' WHERE id=2")
db.commit()' "$T/state/berthfs/berthfs.db"
mkdir -p "$boxes/77/home" "$T/state/berthfs/attach/1" "$T/state/berthfs/attach/2"
echo precious >"$boxes/77/home/file"
echo x >"$T/state/berthfs/attach/1/a" && echo x >"$T/state/berthfs/attach/2/a"
python3 -c 'import socket, sys
socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$T/run/berthfs/78.sock"
start || exit 1
gone() { [ ! -e "$boxes/2" ]; }
check "the sandbox of the one that has ended goes" within 30 gone
check "with its process" within 30 is_gone "$ends"
check "and what was attached" within 30 sh -c "! [ -e '$T/state/berthfs/attach/2' ]"
check "and a socket that nobody has" within 30 sh -c "! [ -e '$T/run/berthfs/78.sock' ]"
equal "the one that lives has its process" "$(pid_of 1)" "$lives"
check "which runs" test -d "/proc/$lives"
check "its socket and what was attached" test -e "$T/run/berthfs/1.sock" -a -e "$T/state/berthfs/attach/1/a"
equal "a folder that was never known is left alone" "$(cat "$boxes/77/home/file")" precious
contains "and said" "$(cat "$M/error")" "belongs to no session of this database"
check "the one that lives works" sh -c "echo more >>'$S/lives/input'" && cat "$S/lives/wait/idle" >/dev/null
rmdir "$S/lives" || echo destroy force >"$S/lives/ctl"
rm -rf "$boxes/77"
