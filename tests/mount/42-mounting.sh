#!/bin/sh
# Ways to mount and to end: mount(8) and fstab, a service manager, busy mounts, two instances side by side.
. "$(dirname "$0")/../lib.sh"
mounts() { grep -c " $M " /proc/self/mountinfo; }

# ---- a service manager: what it hears, on a socket of our own
if have python3; then
	cat >"$T/manager.py" <<-'END_PY'
		# manager.py ADDRESS PROGRAM...: runs it as a service manager would, and prints what it hears, a line a datagram.
		import os, select, signal, socket, subprocess, sys, time
		address = sys.argv[1]
		s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
		s.bind("\0" + address[1:] if address[0] == "@" else address)
		p = subprocess.Popen(sys.argv[2:], env=dict(os.environ, NOTIFY_SOCKET=address), stdin=subprocess.DEVNULL)
		def hear(seconds):
		    if select.select([s], [], [], seconds)[0]:
		        print(s.recv(4096).decode().replace("\n", " ").replace(" %d " % p.pid, " main ").replace("=%d " % p.pid, "=main "), flush=True)
		        return True
		hear(30) or print("nothing")
		print("environment", "NOTIFY_SOCKET" in open("/proc/%d/environ" % p.pid).read() and "has it at the start only", flush=True)
		print("mounted" if os.path.exists(os.environ["MNT"] + "/README") else "not mounted", flush=True)
		p.send_signal(signal.SIGTERM)
		hear(30) or print("nothing")
		print("ended", p.wait(30), flush=True)
		hear(0.2)
	END_PY
	mkdir "$M"
	for address in "$T/notify" "@berthfs-test-$$"; do
		MNT=$M timeout 90 python3 "$T/manager.py" "$address" "$BERTHFS" mount -f "$M" >"$T/heard" 2>"$T/err"
		equal "a manager at ${address%%[/b]*}... hears when it is ready, and when it stops" "$(grep -v ^env "$T/heard")" \
			"READY=1 MAINPID=main STATUS=mounted at $M
mounted
STOPPING=1 STATUS=finishing
ended 0"
	done
	NOTIFY_SOCKET=$T/nobody timeout 60 "$BERTHFS" mount "$M"
	equal "one that does not listen is no hindrance" "$? $(mounts)" "0 1"
	contains "but it is logged" "$(cat "$T/state/berthfs/log")" "was not told"
	echo '{"tools":[{"name":"bash","input":{"command":"env | grep -c NOTIFY_SOCKET"}}]}' >"$T/script"
	session s hello
	check "commands in a sandbox have no address of it" grep -qx 0 "$S/s/transcript"
	stop
else
	skip "a service manager" "no python3"
fi

# ---- the unit
if have systemd-analyze; then
	mkdir "$T/unit"
	sed "s,@bindir@,$(dirname "$BERTHFS")," "$ROOT/contrib/systemd/berthfs.service.in" >"$T/unit/berthfs.service"
	out=$(timeout 60 systemd-analyze verify --user --man=no "$T/unit/berthfs.service" 2>&1)
	equal "systemd-analyze has nothing to say of the unit" "$? $out" "0 "
	sed -i 's/^KillMode=.*/KillMode=nonsense/' "$T/unit/berthfs.service"
	check "and it would" sh -c "timeout 60 systemd-analyze verify --user --man=no '$T/unit/berthfs.service' 2>&1 | grep -qi 'kill mode'"
else
	skip "the unit" "no systemd-analyze"
fi

# ---- nothing that outlives the start holds its output: `berthfs mount 2>&1 | tee` comes back
echo '{"text":"x"}' >"$T/script"
for how in background foreground; do
	if [ $how = background ]; then
		start 2>"$T/starts"
	else
		"$BERTHFS" mount -f "$M" 2>"$T/starts" &
		own $!
		within 20 is_mounted
		DAEMON=$!
	fi
	session "held-$how" hello
	has_gateway() { [ -n "$(gateway_pid)" ]; }
	check "$how: there is a gateway" within 10 has_gateway
	holders=
	for dir in /proc/[0-9]*; do
		case $how:$({ tr '\0' ' ' <"$dir/cmdline"; } 2>/dev/null) in
		foreground:*"mount -f $M "*) continue ;; # itself and its helpers, which end with it
		esac
		find "$dir/fd" -lname "$T/starts" 2>/dev/null | grep -q . && holders="$holders $(tr '\0' ' ' <"$dir/cmdline" | cut -c1-60)"
	done
	equal "$how: nothing that outlives it holds them" "$holders" ""
	stop
done

# ---- busy: a working directory, open files, a reader that waits
printf '{"text":"one"}\n{"text":"x","delay_ms":600000}\n' >"$T/script"
start || exit 1
session busy hello || not_ok "a session"
echo more >>"$S/busy/input"
(cd "$S/busy" && exec sleep 100) &
own $!
exec 6<"$M" 7<"$S/busy/files" 8<"$S/busy/transcript" 9>>"$S/busy/input"
cat "$S/busy/wait/reply" >/dev/null 2>"$T/err" &
reader=$!
own $reader
within 60 is_reading $reader "$S/*"
printf 'the last words' >&9
old=$DAEMON
from=$(date +%s%3N)
equal "umount of a busy mount" "$(stop; echo $?) $(mounts)" "0 0"
check "does not wait for its users" test $(($(date +%s%3N) - from)) -lt 25000
check "the daemon has ended" within 5 is_gone "$old"
wait $reader
contains "a reader that waits hears of it" "$(cat "$T/err")" "shutdown"
equal "what was open is not connected" "$(errno_of cat <&8)" ENOTCONN
start
equal "the next one mounts while the old files are open" "$? $(mounts) $(cat "$S/busy/id")" "0 1 $(cat "$S/busy/id")"
check "and has what was written before the end" within 10 grep -q "the last words" "$S/busy/queue"
exec 6<&- 7<&- 8<&- 9>&-
echo stop >"$S/busy/ctl"

# ---- two instances side by side
two() {
	XDG_STATE_HOME=$T/s2 XDG_CACHE_HOME=$T/c2 XDG_RUNTIME_DIR=$T/r2 XDG_CONFIG_HOME=$T/x2 timeout 60 "$BERTHFS" "$@"
}
mkdir -p "$T/r2" "$T/x2"
cp -r "$T/config/berthfs" "$T/x2/"
equal "a second instance mounts" "$(two mount "$T/m2"; echo $?)" 0
(cd "$P" && echo hello >"$T/m2/sessions/new/other")
equal "they have sessions of their own" "$(ls "$S" | tr '\n' ' ')$(ls "$T/m2/sessions" | tr '\n' ' ')" "busy held-background held-foreground new s new other "
equal "and branches that do not collide" "$(timeout 60 cat "$T/m2/sessions/other/wait/idle"; cut -f5 "$M/index" "$T/m2/index" |
	sort | uniq -d)" "idle"
contains "umount of the other's directory is none of ours" "$("$BERTHFS" umount "$T/m2" 2>&1; echo $?)" "0"
two mount "$T/m2" >/dev/null 2>&1
equal "umount of one" "$(two umount; echo $?) $(grep -c " $T/m2 " /proc/self/mountinfo)" "0 0"
equal "leaves the other" "$(mounts) $(cat "$S/busy/id" >/dev/null && echo there)" "1 there"
stop
DAEMON=

# ---- options
equal "-o fsname" "$(start -o fsname=mine && awk -v m="$M" '$2 == m { print $1 }' /proc/self/mounts; stop)" mine
for option in ro remount nonempty default_permissions; do
	out=$("$BERTHFS" mount -o "rw,$option" "$M" 2>&1)
	equal "-o $option: 64" $? 64
	contains "and why" "$out" "no mount option $option: "
done

# ---- mount(8) and fstab: in a mount namespace, where the system's folders are ours
if [ "$(id -u)" != 0 ] || [ ! -x /sbin/mount.fuse3 ] || ! unshare -m true 2>/dev/null; then
	skip "mount(8)" "needs root, mount.fuse3 and unshare -m"
	exit 0
fi
mkdir -p "$T/bin" "$M"
chmod 755 "$T" "$T/bin"
cp "$BERTHFS" "$T/bin/berthfs"
cat >"$T/fstab" <<-END
	berthfs $M fuse.berthfs noauto,x-systemd.automount,x-systemd.idle-timeout=5,_netdev,rw,nosuid,nodev,noatime,comment=ours 0 0
	theirs $T/theirs fuse.berthfs noauto,user,setuid=nobody 0 0
END
mkdir -p "$T/theirs"
chown 65534 "$T/theirs"
mknod "$T/fuse" c 10 229 && chmod 666 "$T/fuse"
export T M S BERTHFS
unshare -m sh -c '
mount --make-rprivate / && mount --bind "$T/bin" /usr/local/bin && mount --bind "$T/fstab" /etc/fstab || exit 1
mount --bind "$T/fuse" /dev/fuse
cd /
shown() { awk -v m="$1" '\''$5 == m { for (i = 7; i <= NF; i++) if ($i == "-") print $6, $(i + 1), $(i + 2) }'\'' /proc/self/mountinfo; }
timeout 60 mount -t fuse.berthfs somewhere "$M" -o _netdev,x-y.z=1,rw,nosuid,dev,suid,nofail,nowatch
echo "mount8 $? $(shown "$M")"
head -n 1 "$M/README" >/dev/null && echo "mount8 readable"
timeout 60 umount "$M"; echo "umount8 $?"
timeout 60 "$BERTHFS" umount >/dev/null; echo "gone $?"
timeout 60 mount "$M"; echo "fstab $? $(shown "$M")"
cat "$M/status" >/dev/null && echo "fstab readable"
timeout 60 "$BERTHFS" umount >/dev/null; echo "umount $? $(shown "$M")"
timeout 60 mount "$M" -o nonsense 2>"$T/err"; echo "nonsense $? $(shown "$M")"
# As another user, by fstab: setuid= is of mount.fuse3. That user gets folders of its own.
HOME=$T/theirs-home XDG_STATE_HOME=$T/theirs-home/state XDG_CACHE_HOME=$T/theirs-home/cache
XDG_CONFIG_HOME=$T/theirs-home/config XDG_RUNTIME_DIR=$T/theirs-home/run
export HOME XDG_STATE_HOME XDG_CACHE_HOME XDG_CONFIG_HOME XDG_RUNTIME_DIR
mkdir -p "$HOME" && chown 65534 "$HOME"
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
timeout 60 mount "$T/theirs" 2>&1; echo "theirs $? $(shown "$T/theirs")"
nobody cat "$T/theirs/status" >/dev/null && echo "theirs readable"
cat "$T/theirs/status" 2>/dev/null || echo "and not by root"
nobody timeout 60 "$T/bin/berthfs" umount >/dev/null; echo "theirs ends $? $(shown "$T/theirs")"
' >"$T/out" 2>"$T/err2"
said() { grep "^$1" "$T/out"; }
equal "mount -t fuse.berthfs" "$(said mount8)" "mount8 0 rw,nosuid,nodev,relatime fuse.berthfs somewhere
mount8 readable"
equal "umount(8), and then there is nothing" "$(said 'umount8\|gone')" "umount8 0
gone 0"
equal "a line of fstab" "$(said fstab)" "fstab 0 rw,nosuid,nodev,relatime fuse.berthfs berthfs
fstab readable"
equal "and its end" "$(said 'umount ')" "umount 0 "
contains "an unknown option is told through mount(8)" "$(cat "$T/err")" "unknown mount option nonsense"
equal "a line of fstab for another user" "$(said 'theirs\|and not')" \
	"theirs 0 rw,nosuid,nodev,relatime fuse.berthfs theirs
theirs readable
and not by root
theirs ends 0 "
[ ! -s "$T/err2" ] || sed 's/^/# /' "$T/err2"
