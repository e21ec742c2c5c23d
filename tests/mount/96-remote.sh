#!/bin/sh
# A session driven from elsewhere: through a bind mount in another mount namespace, from another pid namespace as well,
# and through sshfs (a real sshd on loopback, with keys of our own): started, talked to, waited for, read, renamed, ended.
# All of it runs in a mount namespace of its own, so that no mount can be left behind.
if [ -z "${IN_NAMESPACE:-}" ]; then
	if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
		echo "skip 96-remote: all: needs root and unshare -m"
		exit 0
	fi
	IN_NAMESPACE=1 exec unshare -m --propagation private sh "$0"
fi
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/ports.inc"
have jq || { skip all "no jq"; exit 0; }
printf '{"text":"answer %s"}\n' 1 2 3 4 5 6 7 8 9 >"$T/script"
start || exit 1
R=$T/r # where the tree is seen from elsewhere
mkdir "$R"
seq 1 20000 >"$T/long"
users() { jq -r 'select(.kind == "user") | .text' "$S/$1/transcript.jsonl"; }
counts() { [ "$(users "$1" | grep -c .)" = "$2" ]; }

# drive NAME COMMAND...: the same from every place; COMMAND... is put before each command and brings it there.
drive() {
	name=$1
	shift
	printf -- '---\nproject: %s\n---\nhello from %s\n' "$P" "$name" >"$T/draft"
	"$@" sh -c "cat '$T/draft' >'$R/sessions/new/$name'"
	equal "$name: a session is started" $? 0
	check "$name: and is there" within 10 test -d "$S/$name"
	equal "$name: its reply" "$("$@" timeout 60 cat "$R/sessions/$name/wait/reply")" "answer 1"
	"$@" sh -c "echo 'one line' >>'$R/sessions/$name/input'"
	check "$name: a message is sent" within 10 counts "$name" 2
	equal "$name: and answered" "$("$@" timeout 60 cat "$R/sessions/$name/wait/reply")" "answer 2"
	timeout 60 cat "$S/$name/wait/idle" >/dev/null
	"$@" cp "$T/long" "$R/sessions/$name/input"
	check "$name: a long one by cp" within 20 counts "$name" 20002
	"$@" sh -c "{ echo a; sh -c 'echo b'; echo c; } >>'$R/sessions/$name/input'"
	check "$name: a group of commands" within 20 counts "$name" 20005
	timeout 60 cat "$S/$name/wait/idle" >/dev/null
	equal "$name: each message is there once, whole, in order" "$(users "$name" | grep . | sha256sum)" \
		"$({ echo "hello from $name"; echo "one line"; cat "$T/long"; printf 'a\nb\nc\n'; } | sha256sum)"
	equal "$name: four of them" "$(grep -c '"kind":"user"' "$S/$name/transcript.jsonl")" 4
	equal "$name: the transcript is read whole" "$("$@" cat "$R/sessions/$name/transcript" | sha256sum)" \
		"$(sha256sum <"$S/$name/transcript")"
	equal "$name: values" "$("$@" sh -c "cat '$R/sessions/$name/status' '$R/sessions/$name/branch'")" \
		"$(cat "$S/$name/status" "$S/$name/branch")"
	out=$("$@" sh -c "echo dance >'$R/sessions/$name/ctl'" 2>&1)
	contains "$name: an unknown verb is told in error" "$("$@" cat "$R/sessions/$name/error")" "unknown verb"
	out=$("$@" sh -c "echo x >'$R/sessions/$name/status'" 2>&1)
	contains "$name: what cannot be written is refused" "$out" "ermission denied"
	"$@" mv "$R/sessions/$name" "$R/sessions/$name-2"
	equal "$name: renamed" "$? $(ls "$S" | grep -c "^$name-2\$")" "0 1"
	"$@" rmdir "$R/sessions/$name-2"
	equal "$name: ended" "$? $(ls "$S" | grep -c "^$name")" "0 0"
}

# ---- namespaces
elsewhere() { # FLAGS COMMAND...
	flags=$1
	shift
	unshare $flags sh -c 'mount --bind "$0" "$1" && shift && exec "$@"' "$M" "$R" "$@"
}
drive bound elsewhere "-m"
drive inner elsewhere "-m -p -f" # whose pids mean nothing here: a message is complete at its release

# ---- sshfs
sshd=$(command -v sshd || ls /usr/sbin/sshd 2>/dev/null)
if ! have sshfs || [ -z "$sshd" ] || ! have python3; then
	skip "sshfs" "needs sshfs, sshd and python3"
	exit
fi
mount -t tmpfs none /run && mkdir -m 755 /run/sshd # of this namespace alone
ssh-keygen -q -t ed25519 -N '' -f "$T/host" && ssh-keygen -q -t ed25519 -N '' -f "$T/key"
port=$(free_port)
cat >"$T/sshd_config" <<-END
	ListenAddress 127.0.0.1:$port
	HostKey $T/host
	AuthorizedKeysFile $T/key.pub
	PidFile none
	StrictModes no
	UsePAM no
	PasswordAuthentication no
	PermitRootLogin prohibit-password
	Subsystem sftp internal-sftp
END
printf '[127.0.0.1]:%s %s\n' "$port" "$(cut -d' ' -f1-2 "$T/host.pub")" >"$T/known"
cat >"$T/ssh_config" <<-END
	Host *
	IdentityFile $T/key
	IdentitiesOnly yes
	IdentityAgent none
	UserKnownHostsFile $T/known
	StrictHostKeyChecking yes
END
"$sshd" -D -f "$T/sshd_config" -E "$T/sshd.log" &
own $!
reachable() { ssh-keyscan -p "$port" 127.0.0.1 >/dev/null 2>&1; }
within 20 reachable || note "$(cat "$T/sshd.log")"
sshfs -f -F "$T/ssh_config" -p "$port" -o direct_io,dir_cache=no,max_conns=4 "root@127.0.0.1:$M" "$R" >"$T/sshfs.log" 2>&1 &
own $!
is_there() { [ -f "$R/README" ]; }
within 20 is_there || {
	not_ok "sshfs"
	sed 's/^/# /' "$T/sshfs.log" "$T/sshd.log"
	exit
}
drive remote env
umount -l "$R"
