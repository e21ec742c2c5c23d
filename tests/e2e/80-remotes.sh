#!/bin/sh
# Ships to real remotes: smart HTTP with basic auth, git-daemon, sshd; with and without credentials, with rules of the
# remote's and of the user's, to one that is gone, full, or dies with the push's answer. Nothing may wait for a password.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/ports.inc"
R=$T/remotes
mkdir "$R" "$T/p"
for word in sshd ssh python3; do have "$word" || PATH=$PATH:/usr/sbin; done

# ---- the servers
python3 "$ROOT/tests/e2e/git_http.py" "$R" ann s3cret >"$T/http.port" 2>"$T/http.log" &
HTTP=$!
own $HTTP
within 20 test -s "$T/http.port" || { not_ok "the HTTP server starts"; exit 1; }
http=http://127.0.0.1:$(cat "$T/http.port")

git_port=$(free_port)
"$(git --exec-path)/git-daemon" --reuseaddr --listen=127.0.0.1 --port="$git_port" --export-all --enable=receive-pack --base-path="$R" "$R" 2>"$T/git-daemon.log" &
own $!
within 20 listens "$git_port" || { not_ok "git-daemon starts: $(cat "$T/git-daemon.log")"; exit 1; }

ssh_port=$(free_port)
if have sshd; then
	mkdir "$T/ssh" && chmod 700 "$T/ssh"
	for key in host user other; do ssh-keygen -q -t ed25519 -N "" -f "$T/ssh/$key"; done
	ssh-keygen -q -t ed25519 -N "a phrase" -f "$T/ssh/locked"
	cat "$T/ssh/user.pub" "$T/ssh/locked.pub" >"$T/ssh/authorized"
	cat >"$T/ssh/sshd_config" <<-END
		ListenAddress 127.0.0.1
		Port $ssh_port
		HostKey $T/ssh/host
		PidFile none
		AuthorizedKeysFile $T/ssh/authorized
		StrictModes no
		PasswordAuthentication no
		KbdInteractiveAuthentication no
	END
	[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
	"$(command -v sshd)" -D -e -f "$T/ssh/sshd_config" 2>"$T/ssh/log" &
	own $!
	within 20 listens "$ssh_port" || { not_ok "sshd starts: $(cat "$T/ssh/log")"; exit 1; }
	echo "[127.0.0.1]:$ssh_port $(cat "$T/ssh/host.pub")" >"$T/ssh/known"
	echo "[127.0.0.1]:$ssh_port $(cat "$T/ssh/other.pub")" >"$T/ssh/changed"
	: >"$T/ssh/none"
fi
ssh_url=ssh://$(id -un)@127.0.0.1:$ssh_port$R
# ssh_as KNOWN KEY: the ssh command of a user with that known_hosts and that key
ssh_as() { printf "ssh -F /dev/null -o UserKnownHostsFile=%s -o IdentitiesOnly=yes -i %s" "$T/ssh/$1" "$T/ssh/$2"; }

# A program that asks for a password and waits for the answer; nobody is there.
printf '#!/bin/sh\necho "$*" >>%s/asked\nexec sleep 600\n' "$T" >"$T/askpass"
chmod +x "$T/askpass"
GIT_ASKPASS=$T/askpass SSH_ASKPASS=$T/askpass SSH_ASKPASS_REQUIRE=force DISPLAY=:99
export GIT_ASKPASS SSH_ASKPASS SSH_ASKPASS_REQUIRE DISPLAY

# ---- projects: NAME URL, then settings of its checkout
names=
project() {
	git init -q --bare -b main "$R/$1.git" && git -C "$R/$1.git" config http.receivepack true && mkdir "$T/p/$1" || exit 1
	(
		cd "$T/p/$1" && git init -q -b main && echo "$1" >name && git add . && git commit -qm first && git push -q "$R/$1.git" main &&
			git remote add origin "$2"
	) || exit 1
	name=$1
	names="$names $1"
	shift 2
	for setting; do git -C "$T/p/$name" config "${setting%%=*}" "${setting#*=}"; done
}
hook() { # FILE TEXT
	mkdir -p "$(dirname "$1")"
	printf '#!/bin/sh\n%s\n' "$2" >"$1"
	chmod +x "$1"
}
good="http://ann:s3cret@127.0.0.1:$(cat "$T/http.port")"
echo "$good" >"$T/good"
echo "http://ann:wrong@127.0.0.1:$(cat "$T/http.port")" >"$T/wrong"

project http "$http/http.git" "credential.helper=store --file $T/good"
project http-in-url "$good/http-in-url.git"
project http-none "$http/http-none.git"
project http-wrong "$http/http-wrong.git" "credential.helper=store --file $T/wrong"
project http-slow "$http/slow/http-slow.git" "http.lowSpeedLimit=1000" "http.lowSpeedTime=2"
project http-large "$http/open/http-large.git" "http.postBuffer=65536"
project namespace "$http/ns/team/namespace.git" "credential.helper=store --file $T/good"
git -C "$R/namespace.git" update-ref refs/namespaces/team/refs/heads/main main
git -C "$R/namespace.git" symbolic-ref refs/namespaces/team/HEAD refs/namespaces/team/refs/heads/main
project daemon "git://127.0.0.1:$git_port/daemon.git"
if have sshd; then
	project ssh "$ssh_url/ssh.git" "core.sshCommand=$(ssh_as known user)"
	project ssh-unknown "$ssh_url/ssh-unknown.git" "core.sshCommand=$(ssh_as none user)"
	project ssh-changed "$ssh_url/ssh-changed.git" "core.sshCommand=$(ssh_as changed user)"
	project ssh-stranger "$ssh_url/ssh-stranger.git" "core.sshCommand=$(ssh_as known other)"
	project ssh-locked "$ssh_url/ssh-locked.git" "core.sshCommand=$(ssh_as known locked)"
else
	skip ssh "there is no sshd"
fi
project protected "$http/open/protected.git"
hook "$R/protected.git/hooks/pre-receive" 'while read -r old new ref; do [ "$ref" != refs/heads/main ] || { echo "GH006: Protected branch update failed for main." >&2; exit 1; }; done'
project own-rule "$R/own-rule.git"
hook "$T/p/own-rule/.git/hooks/pre-push" 'echo "run make lint first" >&2; exit 1'
project gone "$http/open/gone.git"
rm -rf "$R/gone.git"
project lost "$R/lost.git"
hook "$R/lost.git/hooks/reference-transaction" '[ "$1" != committed ] || kill -9 $PPID'
project closed "$http/open/closed.git"
git -C "$R/closed.git" config http.receivepack false
full=
if mkdir "$R/small" && mount -t tmpfs -o size=1m none "$R/small" 2>/dev/null; then
	full=1
	project full "$R/small/full.git"
	git clone -q --bare "$R/full.git" "$R/small/full.git"
else
	skip full "a small file system cannot be mounted here"
fi
remote_tidy() { [ -z "$full" ] || umount -l "$R/small"; }
trap 'remote_tidy; finish' EXIT

# ---- a session in each, and its ship
start || exit 1
for name in $names; do
	size=20
	case $name in *large | full) size=3000000 ;; esac
	cat >"$T/$name.script" <<-END
		{"tools":[{"name":"bash","input":{"command":"head -c $size /dev/urandom >made; git add made; git commit -qm made"}}]}
		{"text":"made"}
		{"tools":[{"name":"bash","input":{"command":"git rebase -q refs/berthfs/base"}}]}
		{"text":"SHIP-READY"}
	END
	printf -- '---\nproject: %s\nmodel: script:%s\n---\ngo\n' "$T/p/$name" "$T/$name.script" >"$S/new/$name" || not_ok "$name: a session"
done
for name in $names; do
	timeout 200 cat "$S/$name/wait/idle" >/dev/null
	echo >"$S/$name/ship" || not_ok "$name: ship can be written"
done
refs_of() {
	case $1 in
	full) git -C "$R/small/full.git" for-each-ref ;;
	*) git -C "$R/$1.git" for-each-ref 2>&1 ;;
	esac
}
lands() { # NAME [REF]
	timeout 200 cat "$S/$1/wait/shipped" >/dev/null
	head=$(git -C "$T/p/$1" rev-parse "sandbox/$(cat "$S/$1/id")")
	equal "$1: landed" "$(cat "$S/$1/ship")" "landed main $head"
	equal "$1: the remote has it" "$(git -C "$R/$1.git" rev-parse "${2:-refs/heads/main}")" "$head"
}
# refused NAME BEGIN WORDS: the outcome begins so and holds the words; the remote has what it had.
refused() {
	timeout 200 cat "$S/$1/wait/shipped" >/dev/null
	got=$(cat "$S/$1/ship")
	case $got in
	"$2"*"$3"*) ok "$1: ${2%:}, in words" ;;
	*)
		not_ok "$1: ${2%:}, in words"
		note "got:   $got"
		note "lacks: $2 ... $3"
		;;
	esac
	case $got in *s3cret* | *wrong@*) not_ok "$1: no password in words" ;; esac
	[ "$1" = gone ] || equal "$1: the remote is as it was" "$(refs_of "$1" | wc -l)" 1
}
lands http
lands http-in-url
lands http-large
lands namespace refs/namespaces/team/refs/heads/main
equal "namespace: the rest is untouched" "$(git -C "$R/namespace.git" rev-list --count main)" 1
lands daemon
refused http-none blocked: "could not read Username"
refused http-wrong blocked: "Authentication failed"
refused http-slow blocked: "remote origin cannot be reached"
if have sshd; then
	lands ssh
	refused ssh-unknown blocked: "Host key verification failed"
	refused ssh-changed blocked: "HOST IDENTIFICATION HAS CHANGED"
	refused ssh-stranger blocked: "Permission denied (publickey)"
	refused ssh-locked blocked: "Permission denied (publickey)"
fi
refused protected refused: "Protected branch update failed for main"
refused own-rule refused: "run make lint first"
refused gone blocked: "not found"
refused closed refused: "403"
[ -z "$full" ] || refused full refused: "No space left on device"
lands lost
equal "lost: pushed once" "$(git -C "$R/lost.git" rev-list --count main)" 2
contains "lost: log tells of it" "$(cat "$S/lost/log")" "cannot be reached"
check "nobody was asked for a password" test ! -e "$T/asked"
for name in $names; do
	[ "$(git -C "$T/p/$name" rev-list --count HEAD; git -C "$T/p/$name" status --porcelain)" = 1 ] || not_ok "$name: the checkout is untouched"
done
