#!/bin/sh
# What somebody finds who breaks out of the guest into QEMU: no privileges, no network, no other process, none of the
# user's files, an image that cannot be written. Looked at from outside and tried from inside.
. "$(dirname "$0")/../lib.sh"
use_vm
printf '{"tools":[{"name":"bash","input":{"command":"echo inside >/tmp/x; cat /tmp/x"}}]}\n{"text":"done"}\n' >"$T/script"
echo "secret of the user" >"$HOME/secret"
start || exit 1
(cd "$P" && echo hello >"$S/new/a")
check "a session in a jailed VM" sh -c "timeout 250 cat '$S/a/wait/idle' >/dev/null && grep -q done '$S/a/transcript'"
qemu=
for dir in /proc/[0-9]*; do
	case $({ tr '\0' ' ' <"$dir/cmdline"; } 2>/dev/null) in
	qemu-system*"$T/"*) qemu=${dir#/proc/} ;;
	esac
done
[ -n "$qemu" ] || { not_ok "there is a QEMU"; exit 1; }

# ---- from outside
field() { sed -n "s/^$1:[^0-9a-f]*//p" "/proc/$qemu/status"; }
equal "no privileges" "$(field CapEff) $(field CapPrm) $(field CapBnd) $(field NoNewPrivs)" \
	"0000000000000000 0000000000000000 0000000000000000 1"
equal "a filter of system calls" "$(field Seccomp)" 2
for ns in user mnt pid net ipc uts; do
	check "a namespace of its own: $ns" [ "$(readlink "/proc/$qemu/ns/$ns")" != "$(readlink "/proc/self/ns/$ns")" ]
done
equal "its interfaces" "$(tail -n +3 "/proc/$qemu/net/dev" | grep -vc ' lo:')" 0
equal "what it has open" "$(find "/proc/$qemu/fd" -lname '/*' ! -lname '/dev/*' -printf '%l\n' | sort -u | grep -v "^$T/state/\|^$IMAGES/\|/memfd:")" ""

# ---- from inside: a program in the same namespaces
if [ "$(id -u)" = 0 ] && have nsenter; then
	image=$(cat "$T/state/berthfs/sandboxes/1/image")
	inside() { nsenter -t "$qemu" -S 65534 -G 65534 -U -m -n -i -u -- "$@" 2>&1; }
	equal "its root" "$(inside ls / | grep -vxE 'bin|sbin|lib|lib64|usr|etc|dev|nix' | sort | tr '\n' ' ')" \
		"$(printf '%s\n%s\n' "$(echo "$T" | cut -d/ -f2)" "$(echo "$image" | cut -d/ -f2)" | sort -u | tr '\n' ' ')"
	equal "the folders of the user" "$(inside find "$T" -type f)" "$T/state/berthfs/sandboxes/1/disk.qcow2"
	check "not the home" sh -c '! nsenter -t "$1" -S 65534 -G 65534 -U -m -- cat "$2/secret" 2>/dev/null' - "$qemu" "$HOME"
	contains "the image cannot be written" "$(inside sh -c "echo x >'$image/new'")" "Read-only file system"
	contains "nor the kernel" "$(inside sh -c "echo x >>'$image/vmlinux'")" "Read-only file system"
	contains "nor the system's programs" "$(inside sh -c "echo x >/usr/bin/berth-test")" "Read-only file system"
	equal "etc" "$(inside find /etc -mindepth 1 -maxdepth 1 | grep -v 'alternatives\|ld.so.cache')" ""
	python3 -c 'import socket, sys, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(60)' >"$T/port" &
	own $!
	within 10 test -s "$T/port"
	for where in "('127.0.0.1', $(cat "$T/port"))" "('10.0.2.2', 80)" "('169.254.169.254', 80)"; do
		contains "no way to $where" "$(inside python3 -c "import socket; socket.create_connection($where, 3)" | tail -n 1)" Error
	done
	equal "the gateway's sockets are not there" "$(inside find / -xdev -type s)" ""
else
	skip "from inside" "not root"
fi

# ---- it ends with its jail, and the jail with its keeper
jail=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$qemu/status")
keeper=$(cut -d' ' -f1 "$T/state/berthfs/sandboxes/1/keeper.pid")
kill -9 "$keeper"
check "a keeper that is killed takes QEMU with it" within 10 is_gone "$qemu"
check "and the jail" within 10 is_gone "$jail"
echo more >>"$S/a/input"
check "the session goes on" sh -c "timeout 250 cat '$S/a/wait/idle' >/dev/null; grep -q '^idle' '$S/a/status'"
