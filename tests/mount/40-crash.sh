#!/bin/sh
# Starting and ending: a second mount, a dead daemon, a stale mount, a busy one, mount(8).
. "$(dirname "$0")/../lib.sh"
mounts() { grep -c " $M " /proc/self/mountinfo; }
helper_pid() { within 60 has_helper; helpers; } # a new one takes a moment until it goes by that name
has_helper() { [ -n "$(helpers)" ]; }
helpers() { for p in /proc/[0-9]*; do
	[ "$(cat "$p/comm" 2>/dev/null)" = berthfs-helper ] &&
		[ "$(readlink "$p/fd/2" 2>/dev/null)" = "$T/state/berthfs/log" ] && echo "${p#/proc/}"
done; }

equal "umount of nothing" "$("$BERTHFS" umount "$M"; echo $?)" "nothing is mounted at $M
0"
mkdir "$M"
equal "the directory may be there" "$(start 2>&1; echo $?)" 0
stop
rmdir "$M"
start || exit 1
check "and is made if it is missing" test -f "$M/README"
session s hello || { not_ok "a session"; exit 1; }

# ---- second mount
out=$("$BERTHFS" mount "$T/other" 2>&1)
equal "a second mount exits 69" $? 69
contains "and says where the first is" "$out" "$M"
mkdir "$T/full"
touch "$T/full/x"
out=$(XDG_STATE_HOME=$T/s2 XDG_CACHE_HOME=$T/c2 XDG_RUNTIME_DIR=$T/r2 "$BERTHFS" mount "$M" 2>&1)
equal "another instance over it exits 69" $? 69
contains "and says so" "$out" "another berthfs instance"
out=$(XDG_STATE_HOME=$T/s2 XDG_CACHE_HOME=$T/c2 XDG_RUNTIME_DIR=$T/r2 "$BERTHFS" mount "$T/full" 2>&1)
equal "a directory that is not empty exits 73" $? 73
contains "and says so" "$out" "not empty"
out=$(XDG_STATE_HOME=$T/s2 XDG_CACHE_HOME=$T/c2 XDG_RUNTIME_DIR=$T/r2 "$BERTHFS" mount "$T/s2/berthfs/m" 2>&1)
equal "a directory in the state folder exits 73" $? 73
mkdir -p "$T/x3/berthfs"
echo 'nonsense = 1' >"$T/x3/berthfs/config"
out=$(XDG_STATE_HOME=$T/s3 XDG_CACHE_HOME=$T/c3 XDG_RUNTIME_DIR=$T/r3 XDG_CONFIG_HOME=$T/x3 "$BERTHFS" mount "$T/m3" 2>&1)
equal "a broken config exits 78" $? 78
contains "and says which line" "$out" "nonsense"
equal "nothing was mounted by all that" "$(grep -c " $T/" /proc/self/mountinfo)" 1

# ---- busy
(cd "$S" && umount "$M" >/dev/null 2>&1; echo $?) | grep -qv '^0$' && ok "umount(8) of a busy mount is refused" ||
	not_ok "umount(8) of a busy mount is refused"
check "and it goes on" test -f "$M/README"

# ---- kill -9: the helper clears away
(cd "$S/s" && exec sleep 100) &
own $!
stands_in() { [ "$(readlink "/proc/$1/cwd")" = "$S/s" ]; }
within 5 stands_in $!
helper=$(helper_pid)
kill -9 "$DAEMON"
no_mount() { [ "$(mounts)" = 0 ]; }
check "kill -9: the mount is cleared away" within 5 no_mount
check "its helper ends" within 5 is_gone "$helper"
start
equal "mount after kill -9" $? 0
equal "the session is there" "$(cat "$S/s/id")" 1
kill -9 "$DAEMON"
start
equal "mount at once after kill -9" "$? $(mounts)" "0 1"
for i in 1 2 3 4 5; do
	kill -9 "$DAEMON"
	start || not_ok "round $i"
done
equal "five times" "$(mounts) $(cat "$S/s/id")" "1 1"

# ---- the helper is dead too: a stale mount
exec 9<"$S/s/transcript"
helper=$(helper_pid)
check "there is a helper" test -n "$helper"
own "$helper"
kill -9 "$helper"
kill -9 "$DAEMON"
within 5 is_gone "$DAEMON"
equal "a stale mount is left" "$(mounts) $(errno_of ls "$M/README")" "1 ENOTCONN"
start
equal "and replaced at the next start" "$? $(mounts) $(cat "$S/s/id")" "0 1 1"
exec 9<&-
helper=$(helper_pid)
own "$helper"
kill -9 "$helper"
kill -9 "$DAEMON"
within 5 is_gone "$DAEMON"
equal "umount clears a stale one away" "$("$BERTHFS" umount "$M"; echo $?) $(mounts)" "0 0"

# ---- a hung daemon: nothing may touch the path
start
helper=$(helper_pid)
own "$helper"
kill -9 "$helper"
kill -STOP "$DAEMON"
equal "a second mount of a hung one does not hang" "$(timeout 60 "$BERTHFS" mount "$M" >/dev/null 2>&1; echo $?)" 69
kill -CONT "$DAEMON"
kill -9 "$DAEMON"
within 5 is_gone "$DAEMON"
equal "and it is replaced when it is dead" "$(start; echo $?) $(mounts)" "0 1"
stop
DAEMON=

# ---- by other names
mkdir "$T/real"
ln -s "$T/real" "$T/link"
equal "a symlink to the directory" "$("$BERTHFS" mount "$T/link" && grep -c " $T/real " /proc/self/mountinfo)" 1
contains "a second mount by that name" "$("$BERTHFS" mount "$T/link" 2>&1)" "is mounted at $T/real"
equal "umount by it" "$("$BERTHFS" umount "$T/link"; echo $?)" 0
equal "a relative name, and umount without one" "$(cd "$T" && "$BERTHFS" mount real/. && "$BERTHFS" umount; echo $?)" 0
equal "the default is ~/berth" "$("$BERTHFS" mount && grep -c " $HOME/berth " /proc/self/mountinfo && "$BERTHFS" umount; echo $?)" "1
0"

# ---- foreground, mount(8), options
"$BERTHFS" mount -f "$M" 2>"$T/err" &
pid=$!
own $pid
check "-f stays" within 10 test -f "$M/README"
kill -INT $pid
wait $pid
equal "and ends with 0 on a signal" "$? $(mounts)" "0 0"
if [ "$(id -u)" = 0 ] && [ -x /sbin/mount.fuse3 ]; then
	ln -s "$BERTHFS" "$T/berthfs"
	# As mount(8) calls it, but that looks for programs in the system's folders only.
	PATH=$T:$PATH /sbin/mount.fuse3 somewhere "$M" -t fuse.berthfs -o rw,noauto,x-test=1,nowatch,_netdev 2>"$T/err"
	equal "mount -t fuse.berthfs" "$? $(mounts)" "0 1"
	equal "its source is shown" "$(awk -v m="$M" '$2 == m { print $1 }' /proc/self/mounts)" somewhere
	DAEMON=$(daemon_pid)
	umount "$M"
	check "umount(8) ends the daemon" within 20 is_gone "$DAEMON"
	DAEMON=
elif [ "$(id -u)" = 0 ]; then
	skip "mount -t fuse.berthfs" "no mount.fuse3: install fuse3"
fi
equal "an unknown option exits 64" "$("$BERTHFS" mount -o nonsense "$M" 2>/dev/null; echo $?)" 64
equal "--version" "$("$BERTHFS" --version | cut -d ' ' -f 1)" berthfs
contains "--help" "$("$BERTHFS" --help)" "berthfs mount"
contains "help of a verb" "$("$BERTHFS" mount --help)" "allow_other"
equal "unknown verb exits 64" "$("$BERTHFS" dance 2>/dev/null; echo $?)" 64
