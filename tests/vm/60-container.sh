#!/bin/sh
# What somebody finds who tries to get out of a container: no way to a network but the gateway's address, no file, no
# process and no socket of the machine, no right to gain, no more than its share. time limit: 600 s
. "$(dirname "$0")/../lib.sh"
BOXCTL=$(dirname "$BERTHFS")/tests/boxctl
export BERTHFS
BOX_CACHE=$IMAGES/berthfs
export BOX_CACHE
box() { verb=$1; shift; timeout 250 "$BOXCTL" "$verb" container "$@"; }
inside() { box run 1 "$1"; }
finish_boxes() { for id in 1 2; do box destroy $id 2>/dev/null; done; }
trap 'finish_boxes; finish' EXIT
D=$XDG_STATE_HOME/berthfs/sandboxes/1
echo "secret of the user" >"$HOME/secret"
gateway=$T/gateway.sock

# Listeners of the machine: TCP on loopback (both families), an abstract socket.
python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_INET6); s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0); s.bind(("::", 0)); s.listen()
a = socket.socket(socket.AF_UNIX); a.bind("\0" + sys.argv[1]); a.listen()
print(s.getsockname()[1], flush=True); time.sleep(600)' "berth-$$" >"$T/port" &
own $!
within 30 test -s "$T/port"

box up 1 "$gateway" 2>"$T/up"
equal "a container" "$?" 0
check "the probes are put inside" box put 1 "$ROOT/tests/vm/jailbreak.py" try.py
inside "python3 try.py $(cat "$T/port") berth-$$ $HOME/secret $T $D $BOX_CACHE $gateway $ROOT/meson.build /etc/shadow-of-none" >"$T/tries" 2>"$T/words"
equal "the probes ran" "$?" 0
sed 's/^/# /' "$T/words"
got() { sed -n "s|^$1	||p" "$T/tries"; }

# ---- system calls, sockets: each refused
bad=$(awk -F '\t' '/^core files/ { next } $2 == "DONE" || $2 == "True"' "$T/tries")
equal "nothing of it is done" "$bad" ""
for name in mount umount "unshare user" "clone user" setns keyctl add_key bpf perf_event_open userfaultfd kexec_load init_module finit_module \
	open_by_handle_at reboot TIOCSTI "TIOCSTI with a high half" "socket raw" "socket raw IPv6" "ptrace of init" "mknod of a disk"; do
	equal "$name" "$(got "$name")" EPERM
done
for name in clone3 io_uring_setup "x32 call"; do equal "$name" "$(got "$name")" ENOSYS; done
for name in packet vsock alg bluetooth can "netlink audit" "netlink kobject" xdp; do equal "socket $name" "$(got "socket $name")" EAFNOSUPPORT; done
equal "the machine's loopback" "$(got "host loopback") $(got "host loopback IPv6")" "ECONNREFUSED ECONNREFUSED"
equal "its abstract sockets" "$(got "abstract socket berth-$$")" ECONNREFUSED
equal "no socket has a name, no disk is there" "$(got "sockets and disks by name")" none

# ---- files and processes
equal "its processes are its own" "$(got processes)" 1
equal "init cannot be looked into" "$(got "descriptors of init") $(got "memory of init") $(got "environment of init")" "EACCES EACCES EACCES"
equal "nothing of /proc can be written" "$(got "writable in /proc")" none
equal "nothing of the kernel's memory" "$(got "kernel's memory")" 0
equal "devices" "$(got devices)" "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
equal "no /sys" "$(got sysfs)" empty
equal "no capability, no way to more, a filter" "$(got rights)" \
	"0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 1 2"
equal "setuid does nothing" "$(got setuid)" "['1000', 'CapEff:', '0000000000000000']"
equal "no sudo" "$(got sudo)" no
equal "nobody but the user" "$(got ids)" "1000 1000 1000 1000 1000 1000"
equal "no core files" "$(got "core files")" "(0, 0)"
equal "memory is limited" "$(got "3 GiB of memory")" refused
check "nothing is left of the tries" inside 'rm -f /tmp/suid try.py'

# ---- seen from outside
keeper=$(cut -d' ' -f1 "$D/keeper.pid")
below() { ps -o pid= --ppid "$1" | tr -d ' '; }
# jail_of KEEPER; beside it is the process that measures the disk
jail_of() { ps -o pid=,comm= --ppid "$1" | awk '$2 == "bwrap" { print $1 }'; }
jail=$(jail_of "$keeper")
init=$(below "$jail")
for ns in user mnt pid net ipc uts; do
	check "a namespace of its own: $ns" [ "$(readlink "/proc/$init/ns/$ns")" != "$(readlink "/proc/self/ns/$ns")" ]
done
equal "no mount of it is seen here" "$(grep -c "$D" /proc/self/mountinfo)" 0
check "no secret in the keeper's environment" sh -c "! tr '\\0' '\\n' </proc/$keeper/environ | grep -i 'key\\|token\\|secret'"

# ---- its share: processes, and what it leaves behind
fork='import os, time
n = 0
try:
    while n < 20000:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n)'
most=$(inside "ulimit -Hu")
inside "exec timeout -s KILL 40 python3 -c '$fork'" >/dev/null 2>&1 &
bomb=$!
count=0
for try in $(seq 200); do
	now=$(lsns -n -t pid -o NPROCS -p "$init" | tr -d ' ')
	[ "${now:-0}" -le $count ] || count=$now
	kill -0 $bomb 2>/dev/null || break
	sleep 0.1
done
wait $bomb
note "it had $count processes at most; its limit is $most"
if [ "$(id -u)" != 0 ] || ! grep -q 'processes.* cannot be limited' "$T/up"; then
	check "it cannot fork without end" [ "$count" -ge 200 -a "$count" -le $((most + 50)) ]
else
	skip "it cannot fork without end" "no cgroup of ours, and root's processes are not counted"
fi
check "and is well again" within 60 inside 'true' 2>/dev/null
equal "its files" "$(inside 'echo mine >/usr/bin/git; echo kept >kept; cat kept')" kept
check "another one" box up 2 "$gateway"
contains "has files of its own" "$(box run 2 'git --version; ls kept 2>&1')" "git version"
contains "all of them" "$(box run 2 'git --version; ls kept 2>&1')" "No such file"
check "the image is as it was" "$(cat "$D/image")/tree/usr/bin/git" --version
inside 'mkdir -p locked/in; chmod 000 locked; d=.; python3 -c "
import os
for i in range(3000):
    os.mkdir(\"deep\"); os.chdir(\"deep\")"' >/dev/null
check "it goes with folders that are locked, and deep ones" box destroy 2

# ---- its maker is killed while that tries out what can be mounted; and what such a one of an older program has left
printf '#!/bin/sh\ncase "$*" in *" --probe "*) echo $$ >"%s"; exec sleep 600 ;; esac\nexec "%s" "$@"\n' "$T/trying" "$BERTHFS" >"$T/slow"
chmod +x "$T/slow"
BERTHFS=$T/slow "$BOXCTL" up container 2 "$gateway" 2>/dev/null &
maker=$!
within 60 test -s "$T/trying" || not_ok "a container is about to be made"
kill -9 $maker
wait $maker 2>/dev/null
kill -9 "$(cat "$T/trying")"
check "killed while it is made: the next start makes it" box up 2 "$gateway"
equal "whole" "$(box run 2 'echo whole')" whole
check "it goes" box destroy 2
mkdir -p "$XDG_STATE_HOME/berthfs/sandboxes/2/root"
check "a folder that has not become a container: the next start makes it" box up 2 "$gateway"
equal "whole, too" "$(box run 2 'echo whole')" whole
check "it goes, too" box destroy 2

# ---- killed
box run 1 'echo $$ >pid; setsid sleep 600 & echo up' >/dev/null
beside=$(below "$keeper" | grep -v "^$jail$")
kill -9 "$keeper"
check "a keeper that is killed takes all with it" within 20 sh -c "! kill -0 $init 2>/dev/null && ! kill -0 $jail 2>/dev/null && ! kill -0 ${beside:-1} 2>/dev/null"
check "it starts again" box up 1 "$gateway"
equal "with its files" "$(inside 'cat kept; ps ax | grep -c "[s]leep 600"')" "kept
0"
init=$(below "$(jail_of "$(cut -d' ' -f1 "$D/keeper.pid")")")
kill -9 "$init"
check "killed from outside it is down" within 20 sh -c "! [ -e $D/keeper.pid ]"
check "and starts again" box up 1 "$gateway"
equal "still with its files" "$(inside 'cat kept')" kept
check "it goes" box destroy 1
check "with all of its folder" [ ! -e "$D" ]
equal "no group of limits is left" "$(find /sys/fs/cgroup -maxdepth 4 -type d -name 'berthfs-*' 2>/dev/null | grep -c "$(printf 'berthfs-.*-%x$' 0)")" 0
