# For the tests that drive a real mount. Source it first:   . "$(dirname "$0")/../lib.sh"
#
# It gives a private folder ($T) with an instance of its own (the four XDG folders), and takes all away again when the
# script ends, however it ends. Each check prints one line, `ok NAME`, `not ok NAME` or `skip NAME: why`; the exit code
# is 1 if one was not ok. Only processes that were started here are ended, by their pids.
#
#   $T   the folder        $M   the mount point        $P   a project (git checkout with one commit)
#   $S   $M/sessions       $BERTHFS   the program (default: build/berthfs)

set -u
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
BERTHFS=${BERTHFS:-$ROOT/build/berthfs}
NAME=$(basename "$0" .sh)
FAILED=0
KEEP=${KEEP:-} # KEEP=1: the folder stays for a look

[ -x "$BERTHFS" ] || { echo "skip $NAME: no program at $BERTHFS; build first"; exit 0; }
IMAGES=${XDG_CACHE_HOME:-$HOME/.cache} # the user's cache: the base image of kind vm is built once
T=$(mktemp -d "${TMPDIR:-/tmp}/berthfs-$NAME-XXXXXX")
M=$T/m S=$M/sessions P=$T/project
HOME=$T/home
XDG_STATE_HOME=$T/state XDG_CACHE_HOME=$T/cache XDG_RUNTIME_DIR=$T/run XDG_CONFIG_HOME=$T/config
GIT_CONFIG_GLOBAL=$HOME/.gitconfig GIT_CONFIG_NOSYSTEM=1
LC_ALL=C.UTF-8
export HOME XDG_STATE_HOME XDG_CACHE_HOME XDG_RUNTIME_DIR XDG_CONFIG_HOME GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM LC_ALL
PIDS= # of what the test started and has to end, each with the time it was born; add with `own PID`

ok() { echo "ok $NAME: $1"; }
not_ok() {
	echo "not ok $NAME: $1"
	FAILED=1
}
skip() { echo "skip $NAME: $1: $2"; }
note() { printf '# %s\n' "$*"; }
# born PID: when that process was started, in ticks of the machine; nothing if there is none.
born() {
	{ read -r born_stat <"/proc/$1/stat"; } 2>/dev/null || return 0
	set -- ${born_stat##*) }
	echo "${20}"
}
# The machine gives a number out again within a minute when many tests run: by its number alone somebody else's process
# would be ended for one of ours that has long gone.
own() { PIDS="$PIDS $1:$(born "$1")"; }
# end_owned [PID...]: those of the owned that still live, or all.
end_owned() {
	for owned in $PIDS; do
		owned_pid=${owned%%:*} owned_born=${owned#*:}
		case " ${*:-$owned_pid} " in *" $owned_pid "*) ;; *) continue ;; esac
		[ -n "$owned_born" ] && [ "$(born "$owned_pid")" = "$owned_born" ] && kill -9 "$owned_pid" 2>/dev/null
	done
}
have() { command -v "$1" >/dev/null 2>&1; }

# check NAME COMMAND...: ok if the command succeeds.
check() {
	check_name=$1
	shift
	if "$@"; then ok "$check_name"; else not_ok "$check_name"; fi
}
# equal NAME GOT WANTED
equal() {
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1"
		note "got:    $2"
		note "wanted: $3"
	fi
}
# contains NAME TEXT PART
contains() {
	case $2 in
	*"$3"*) ok "$1" ;;
	*)
		not_ok "$1"
		note "got:      $2"
		note "lacks:    $3"
		;;
	esac
}
# within SECONDS COMMAND...: tries again until the command succeeds; fails when the time is up. The time is that of a quiet
# machine: a deadline of more than 3 seconds is one of a minute at least, for a busy one does the same some ten times slower.
within() {
	within_seconds=$1
	[ "$1" -le 3 ] || [ "$1" -ge 60 ] || within_seconds=60
	within_end=$(($(date +%s%3N) + within_seconds * 1000))
	shift
	until "$@"; do
		[ "$(date +%s%3N)" -lt "$within_end" ] || return 1
		sleep 0.02
	done
}
# errno_of COMMAND...: name of the errno that it fails with in its last words, as programs print them; "ok" if it succeeds.
errno_of() {
	if errno_out=$("$@" 2>&1); then
		echo ok
		return
	fi
	case $errno_out in
	*"Permission denied"*) echo EACCES ;;
	*"Operation not permitted"*) echo EPERM ;;
	*"Invalid argument"*) echo EINVAL ;;
	*"File exists"*) echo EEXIST ;;
	*"No such file"*) echo ENOENT ;;
	*"File too large"*) echo EFBIG ;;
	*"multibyte"*) echo EILSEQ ;;
	*"Device or resource busy"*) echo EBUSY ;;
	*"shutdown"*) echo ESHUTDOWN ;;
	*"Input/output error"*) echo EIO ;;
	*"not supported"*) echo EOPNOTSUPP ;;
	*"Transport endpoint is not connected"*) echo ENOTCONN ;;
	*) echo "other: $errno_out" ;;
	esac
}

is_mounted() { grep -q " $M fuse.berthfs \| $M .* - fuse.berthfs " /proc/self/mountinfo; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }
# is_reading PID PATH: it has that file (a pattern) open and waits in a read of it, rather than for its attributes, say.
is_reading() {
	[ -n "$(find "/proc/$1/fd" -lname "$2" 2>/dev/null)" ] || return
	reading_call=
	{ read -r reading_call reading_rest <"/proc/$1/syscall"; } 2>/dev/null
	case $(uname -m):$reading_call in
	x86_64:0 | aarch64:63) ;;
	*:[0-9]* | *:running) return 1 ;;
	*) grep -q '^State:.S' "/proc/$1/status" 2>/dev/null ;; # it may not be looked at: it sleeps at least
	esac
}
is_ours() { grep -qzx "XDG_STATE_HOME=$T/state" "/proc/$1/environ" 2>/dev/null; } # and nobody who got its number later
daemon_pid() { sed -n 's/^pid //p' "$T/state/berthfs/mount" 2>/dev/null; }

start() {
	timeout 60 "$BERTHFS" mount "$@" "$M" || return
	DAEMON=$(daemon_pid)
}
stop() { timeout 60 "$BERTHFS" umount "$M"; }
# keeper_says: the status line of the keeper of session 1's VM
keeper_says() {
	python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b"status\n")
data = b""
while True:
    more = s.recv(4096)
    if not more: break
    data += more
print(data.decode().split("\n")[1])' "$T/run/berthfs/1.sock"
}

# use_vm: sessions get a VM of the base image in the user's cache (built if there is none; that takes minutes).
use_vm() { use_image vm; }
# use_image KIND: the same for any kind of sandbox that starts from the base image.
use_image() {
	XDG_CACHE_HOME=$IMAGES
	export XDG_CACHE_HOME
	printf 'sandbox = %s\nsize = mini\nmodel = script:%s\n' "$1" "$T/script" >"$T/config/berthfs/config"
	timeout 1200 "$BERTHFS" image build >"$T/image.log" 2>&1 || { not_ok "the base image"; cat "$T/image.log"; exit 1; }
}

# session NAME [TEXT]: creates one from the project and waits until it is idle.
session() {
	(cd "$P" && printf '%s\n' "${2:-hello}" >"$S/new/$1") && timeout 60 cat "$S/$1/wait/idle" >/dev/null
}
# own_templates: the folder in the cache with the templates of this instance; nothing if there never was one.
own_templates() { grep -lxs "$T/state/berthfs" "$XDG_CACHE_HOME"/berthfs/templates/*/state | sed 's,/state$,,'; }
# templates_kept: how many of them there are.
templates_kept() { for templates_dir in $(own_templates); do ls "$templates_dir" | grep -c '^[0-9]'; done | grep . || echo 0; }

# Processes of sandboxes whose command line names our folder; and the gateway that does.
sandbox_pids() {
	for sandbox_dir in /proc/[0-9]*; do
		sandbox_line=$({ tr '\0' ' ' <"$sandbox_dir/cmdline"; } 2>/dev/null) || continue
		case $sandbox_line in
		*tool-daemon*"$T/"* | *vm-keeper*"$T/"* | *box-keeper*"$T/"* | *qemu-system*"$T/"*) echo "${sandbox_dir#/proc/}" ;;
		esac
	done
}
# gateway_is_up: it runs, and events say so. It starts beside the sessions, and what they wait for is not all of it.
gateway_is_up() { grep -q '^gateway running' "$M/status" && grep -q '	gateway	\(started\|taken over\)$' "$M/events"; }
gateway_pid() {
	for gateway_dir in /proc/[0-9]*; do
		case $({ tr '\0' ' ' <"$gateway_dir/cmdline"; } 2>/dev/null) in
		*" gateway "*"$T/"*) echo "${gateway_dir#/proc/}" ;;
		esac
	done
}
# After a failure: what the daemon has said, and whether it and its mount are still there.
last_words() {
	is_mounted && note "in the end: mounted at $M" || note "in the end: nothing is mounted at $M"
	[ -z "${DAEMON:-}" ] || { is_ours "$DAEMON" && note "the daemon, $DAEMON, lives"; } || note "the daemon, $DAEMON, has gone"
	if [ -f "$T/state/berthfs/log" ]; then tail -n 15 "$T/state/berthfs/log" | sed 's/^/# log: /'; fi
}
finish() {
	code=$?
	trap - EXIT INT TERM HUP
	cd /
	[ "$code$FAILED" = 00 ] || last_words
	end_owned
	if is_mounted; then timeout 40 "$BERTHFS" umount "$M" >/dev/null 2>&1; fi
	if is_mounted; then
		timeout 10 umount -l "$M" 2>/dev/null || timeout 10 fusermount3 -u -z "$M" 2>/dev/null
		[ -n "${DAEMON:-}" ] && is_ours "$DAEMON" && kill -9 "$DAEMON" 2>/dev/null
	fi
	for pid in $(sandbox_pids) $(gateway_pid); do kill -9 "$pid" 2>/dev/null; done
	if [ -n "$KEEP" ]; then echo "# kept: $T"; else rm -rf $(own_templates) "$T"; fi
	[ "$code" = 0 ] && code=$FAILED
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir -p "$T/home" "$T/run" "$T/config/berthfs" "$P"
chmod 700 "$T/run"
git config --global user.name tester
git config --global user.email tester@example.org
(cd "$P" && git init -q -b main && echo hello >a.txt && git add . && git commit -q -m first)
printf '{"text":"first answer"}\n{"text":"second answer"}\n' >"$T/script"
cat >"$T/config/berthfs/config" <<-END
	sandbox = dir
	sandbox.allow-dir = yes
	model = script:$T/script
END
