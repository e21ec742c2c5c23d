#!/bin/sh
# Sandboxes on another machine, kind ssh:HOST: an sshd of this user on loopback stands for it. A session on it with its
# gateway; keys, agents and hosts; cuts of the connection at every place while a command runs; what is left at the end.
# time limit: 900 s
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/sshd.inc"
far_port=$(free_port)
sshd_start far "$far_port"
listener=$SSHD
host far "$far_port"

# ---- the same cases as every kind of sandbox
timeout 280 "$BERTHFS" conformance ssh:far >"$T/cases" 2>&1
equal "the conformance suite" $? 0
contains "all of it" "$(tail -n 1 "$T/cases")" "0 failed, 0 left out"
grep -a '^not ok' "$T/cases"
equal "nothing is left there" "$(ls -A "$F")" ""

# ---- a session
cat >"$T/script" <<'END'
{"text":"one","tools":[{"name":"bash","input":{"command":"git log --oneline | wc -l; pwd; curl -s -o /dev/null -w '%{http_code}\\n' $ANTHROPIC_BASE_URL/v1/models"}}]}
{"text":"first"}
{"text":"two","tools":[{"name":"bash","input":{"command":"echo begun >../begun; while [ ! -e ../go ]; do sleep 0.1; done; echo over >a.txt; git commit -qam far; echo the end of it"}}]}
{"text":"second"}
{"text":"three","tools":[{"name":"bash","input":{"command":"echo begun >../begun; while [ ! -e ../go ]; do sleep 0.1; done; echo after the cut"}}]}
{"text":"third"}
{"text":"four","tools":[{"name":"bash","input":{"command":"echo begun >../begun; sleep 1000"}}]}
{"text":"fourth"}
{"text":"five","tools":[{"name":"bash","input":{"command":"cat a.txt"}}]}
{"text":"fifth"}
END
start || exit 1
(cd "$P" && printf -- '---\nsandbox: ssh:far\n---\nhi\n' >"$S/new/box") && timeout 200 cat "$S/box/wait/reply" >"$T/reply"
equal "a session answers" "$(cat "$T/reply")" first
equal "its sandbox" "$(cat "$S/box/sandbox")" "ssh:far running"
contains "the clone is there" "$(cat "$S/box/transcript")" ".berthfs"
check "and the way to the gateway" grep -qE '^ *(200|4[0-9][0-9])$' "$S/box/transcript"
home=$(echo "$F"/.berthfs/*-1/home)
# said TEXT: a message whose command waits for $home/go; returns when it runs
said() {
	rm -f "$home/go" "$home/begun"
	echo "$1" >>"$S/box/input"
	within 60 test -e "$home/begun" || not_ok "the command runs: $1"
}
answered() { equal "$1" "$(timeout 200 cat "$S/box/wait/reply")" "$2"; }

# ---- cuts while a command runs
said "the bridge dies"
kill -9 $(bridges)
touch "$home/go"
answered "kill -9 of the bridge: the command's result is collected" second
equal "once" "$(grep '"kind":"tool_result"' "$S/box/transcript.jsonl" | grep -c 'the end of it')" 1
timeout 200 cat "$S/box/wait/idle" >/dev/null
equal "its work comes over" "$(git -C "$P" show sandbox/1:a.txt)" over

said "the server dies, with its connections, and is away for a while"
kill -STOP "$listener" # or it takes the bridge in again before it is killed
pkill -9 -P "$listener" -x sshd
kill -9 "$listener"
within 20 sh -c "! kill -0 $listener 2>/dev/null"
for link in $(far_pids " link "); do kill -9 "$link" 2>/dev/null; done
within 60 test -s "$T/state/berthfs/sandboxes/1/trouble" || not_ok "the bridge says that it is cut off"
touch "$home/go"
sshd_start far "$far_port"
listener=$SSHD
answered "a cut of the connection: the command's result is collected" third
contains "what it says" "$(cat "$S/box/transcript")" "after the cut"

said "the machine restarts"
far_tools=$(far_daemon 1)
kill -9 "$far_tools"
answered "kill -9 of the tool daemon: the command is interrupted, the session goes on" fourth
contains "and it is said" "$(cat "$S/box/transcript")" interrupted
echo "one more" >>"$S/box/input"
answered "with all its files" fifth

# ---- the daemon of this side
stop || not_ok "umount"
check "the bridge outlives the daemon" test -n "$(bridges)"
start || exit 1
equal "and is taken over" "$(cat "$S/box/sandbox")" "ssh:far running"
timeout 200 cat "$S/box/wait/idle" >/dev/null
echo down >"$S/box/ctl"
within 60 grep -q "^ssh:far down" "$S/box/sandbox" || not_ok "down: $(cat "$S/box/sandbox" "$S/box/error")"
within 60 nothing_runs || not_ok "down ends what runs there"
echo 'destroy force' >"$S/box/ctl"
within 60 test ! -e "$T/state/berthfs/sandboxes/1" || not_ok "destroy"
equal "destroy leaves nothing there" "$(ls -A "$F")" ""

# ---- a project that has to be set up: in the session's own clone
mkdir "$P/.agents"
echo "echo setting up; [ -e $T/allow ] || { echo it is broken; exit 3; }; echo 'ran there' >>made" >"$P/.agents/setup"
git -C "$P" add .agents && git -C "$P" commit -qm setup
printf '%s\n' '{"tools":[{"name":"bash","input":{"command":"cat made"}}]}' '{"text":"set up"}' >"$T/setup.script"
(cd "$P" && printf -- '---\nsandbox: ssh:far\nmodel: script:%s\n---\nhi\n' "$T/setup.script" >"$S/new/set")
broken() { grep -q '^failed: setting the project up failed' "$S/set/status"; }
check "a setup that fails fails the session" within 60 broken
contains "log has its last words" "$(cat "$S/set/log")" ".agents/setup: it is broken"
touch "$T/allow"
echo retry >"$S/set/ctl"
equal "retry runs it again" "$(timeout 200 cat "$S/set/wait/reply")" "set up"
contains "in the clone" "$(cat "$S/set/transcript")" "ran there"
timeout 200 cat "$S/set/wait/idle" >/dev/null
echo 'destroy force' >"$S/set/ctl"
within 60 test ! -e "$T/state/berthfs/sandboxes/2" || not_ok "destroy"

# ---- kill -9 of the daemon while a project is set up there
echo "echo begun >>$T/setups; while [ ! -e $T/finish ]; do sleep 0.1; done; echo 'ran there' >made" >"$P/.agents/setup"
git -C "$P" commit -qam "a long setup"
(cd "$P" && printf -- '---\nsandbox: ssh:far\nmodel: script:%s\n---\nhi\n' "$T/setup.script" >"$S/new/cut")
check "a setup runs" within 60 test -s "$T/setups"
kill -9 "$DAEMON"
within 60 is_gone "$DAEMON"
start || exit 1
touch "$T/finish"
equal "killed during a setup: the session is answered" "$(timeout 200 cat "$S/cut/wait/reply")" "set up"
contains "killed during a setup: it was set up" "$(cat "$S/cut/transcript")" "ran there"
equal "killed during a setup: once" "$(grep -c . "$T/setups")" 1
timeout 200 cat "$S/cut/wait/idle" >/dev/null
echo 'destroy force' >"$S/cut/ctl"
within 60 test ! -e "$T/state/berthfs/sandboxes/3" || not_ok "destroy"
equal "killed during a setup: nothing is left there" "$(ls -A "$F")" ""

printf -- '---\nsandbox: ssh:-oProxyCommand=touch\n---\nhi\n' >"$S/new/bad" 2>/dev/null && not_ok "an option is no host"
contains "an option is no host" "$(cat "$M/error")" "needs a host"
stop

# ---- hosts and keys
no_bridge() { [ -z "$(bridges)" ]; }
# up NAME ID WORDS...: it cannot be reached, and is told so
cannot() {
	cannot_name=$1 cannot_kind=$2 cannot_words=$3
	if timeout 100 "$BOX" up "ssh:$cannot_kind" 7 >"$T/out" 2>&1; then
		not_ok "$cannot_name"
	else
		contains "$cannot_name" "$(cat "$T/out")" "$cannot_words"
	fi
	timeout 60 "$BOX" destroy "ssh:$cannot_kind" 7 >/dev/null 2>&1
	within 60 no_bridge || not_ok "$cannot_name: a bridge is left"
}
can() {
	can_name=$1
	check "$can_name" timeout 100 "$BOX" up "ssh:$2" 8
	timeout 60 "$BOX" destroy "ssh:$2" 8 || not_ok "$can_name: destroy"
}
mv "$T/ssh/known" "$T/ssh/known.good"
: >"$T/ssh/known"
cannot "an unknown host" far "is not in known_hosts: its ssh-ed25519 key is $(ssh-keygen -lf "$T/ssh/host.pub" | cut -d' ' -f2). Run \`ssh far\` once"
ssh-keygen -q -t ed25519 -N "" -f "$T/ssh/stranger"
echo "[127.0.0.1]:$far_port $(cat "$T/ssh/stranger.pub")" >"$T/ssh/known"
cannot "a host whose key has changed" far "Somebody may stand in between"
echo "@revoked * $(cat "$T/ssh/host.pub")" >>"$T/ssh/known"
cannot "a revoked key" far "is revoked"
echo "[127.0.0.1]:$far_port ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7" >"$T/ssh/known"
cannot "a host of which only an RSA key is known" far "HostKeyAlgorithms=ssh-ed25519"
cp "$T/ssh/known.good" "$T/ssh/known" && ssh-keygen -q -H -f "$T/ssh/known" 2>/dev/null
can "a known_hosts with hashed names" far
mv "$T/ssh/user" "$T/ssh/aside"
ssh-keygen -q -t rsa -b 2048 -N "" -f "$T/ssh/user2" && cat "$T/ssh/user2.pub" >>"$T/ssh/authorized" && mv "$T/ssh/user2" "$T/ssh/user"
cannot "an RSA key" far "an RSA key, which libssh2 cannot use"
rm "$T/ssh/user" && ssh-keygen -q -t ed25519 -N "a phrase" -f "$T/ssh/user2.2" && mv "$T/ssh/user2.2" "$T/ssh/user"
cannot "a key with a passphrase" far "it has a passphrase"
mv "$T/ssh/stranger" "$T/ssh/user"
cannot "a key that is not let in" far "not accepted"
rm "$T/ssh/user"
cannot "no key" far "by none of our keys"
key ec ecdsa && mv "$T/ssh/ec" "$T/ssh/user"
can "an ECDSA key" far
mv "$T/ssh/user" "$T/ssh/ec"
ssh-agent -D -a "$T/ssh/agent" >/dev/null 2>&1 &
own $!
within 10 test -S "$T/ssh/agent"
SSH_AUTH_SOCK=$T/ssh/agent
export SSH_AUTH_SOCK
ssh-add -q "$T/ssh/ec" "$T/ssh/aside" 2>/dev/null
rm "$T/ssh/user.pub"
cannot "keys of the agent that are not named" far "by none of our keys"
cp "$T/ssh/aside" "$T/ssh/user.was" && ssh-keygen -y -f "$T/ssh/aside" >"$T/ssh/user.pub"
can "a named key in the agent alone" far
unset SSH_AUTH_SOCK
mv "$T/ssh/aside" "$T/ssh/user"
host jump "$far_port" "ProxyCommand exec 3<>/dev/tcp/%h/%p; cat <&3 & exec cat >&3"
sed -i 's,ProxyCommand .*,ProxyCommand bash -c "exec 3<>/dev/tcp/%h/%p; cat <\&3 \& exec cat >\&3",' "$T/config/berthfs/ssh_config"
can "through a ProxyCommand" jump
host far.jumped "$far_port" "ProxyJump $(id -un)@far:$far_port"
can "through a ProxyJump, whose host our own ssh_config knows" far.jumped
mkdir "$T/fake" && printf '#!/bin/sh\necho Linux s390x\n' >"$T/fake/uname" && chmod +x "$T/fake/uname"
other_port=$(free_port)
sshd_start arch "$other_port" "SetEnv PATH=$T/fake:/usr/bin:/bin"
host arch "$other_port"
cannot "another architecture" arch "says Linux s390x"
noisy_port=$(free_port)
cannot "nobody listens" "ssh://127.0.0.1:$noisy_port" "cannot reach"

# ---- a tool daemon that is just dying there: it holds its lock and is still connected to, and nobody answers
cat >"$T/dying.py" <<'END'
import fcntl, os, select, socket, sys, time
os.chdir(sys.argv[1])
lock = open("tools.pid", "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
lock.write("%d\n" % os.getpid())
lock.truncate()
lock.flush()
os.unlink("sock")
s = socket.socket(socket.AF_UNIX)
s.bind("sock")
s.listen()
print("dying", flush=True)
select.select([s], [], [], 200)
time.sleep(0.5)
os._exit(0)
END
no_link() { [ "$(far_pids)" = "$(far_daemon 9)" ]; }
"$BOX" up ssh:far 9 2>/dev/null || not_ok "up"
"$BOX" run ssh:far 9 'echo here >kept' || not_ok "run"
kill -9 $(bridges)
within 60 no_link || not_ok "a link goes with its bridge"
kill -9 "$(far_daemon 9)"
python3 "$T/dying.py" "$(echo "$F"/.berthfs/*-9)" >"$T/dying" &
dying=$!
own $dying
within 60 test -s "$T/dying" || not_ok "the dying daemon"
check "a tool daemon that is just dying is waited for" timeout 100 "$BOX" up ssh:far 9
is_gone $dying || not_ok "it has ended before"
equal "and another one serves" "$("$BOX" run ssh:far 9 'cat kept')" here
"$BOX" destroy ssh:far 9 || not_ok "destroy"

# ---- a host that is away when its sandbox ends
"$BOX" up ssh:far 9 2>/dev/null || not_ok "up"
kill -STOP "$listener"
pkill -9 -P "$listener" -x sshd
kill -9 "$listener"
check "destroy with the host away" timeout 100 "$BOX" destroy ssh:far 9
check "something is left" test -n "$(ls -A "$F")"
sshd_start far "$far_port"
can "the next one there" far
equal "takes it away" "$(ls -A "$F")$(ls -A "$T/state/berthfs/ssh-left")" ""
