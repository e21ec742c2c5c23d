#!/bin/sh
# People in a container with their own clients: berthfs ssh, and ssh, scp, sftp, rsync and sshfs by `berthfs ssh-config`;
# what has to be refused; a container that is down, a daemon that is away, a container that dies.
# time limit: 600 s
. "$(dirname "$0")/../lib.sh"
use_image container
echo "sandbox.allow-dir = yes" >>"$T/config/berthfs/config"
start || exit 1
(cd "$P" && echo hello >"$S/new/box") && timeout 300 cat "$S/box/wait/idle" >/dev/null || not_ok "a session"
into() { timeout 120 "$BERTHFS" ssh box "$@"; }
"$BERTHFS" ssh-config >"$T/cfg"
client() { # client PROGRAM ARGUMENTS...: with the printed config
	client_program=$1
	shift
	timeout 180 "$client_program" -F "$T/cfg" "$@"
}
D=$T/state/berthfs/sandboxes/1

# ---- plain ssh alone, before anything has made keys
equal "ssh by the printed config, the first time" "$(client ssh box.berth 'id -un' 2>"$T/err")" agent
equal "nothing is asked and nothing is warned of" "$(cat "$T/err")" ""
equal "by number" "$(client ssh 1.berth 'cat project/a.txt')" hello

# ---- berthfs ssh
equal "a command in the clone" "$(into pwd)" /home/agent/project
into exit 7
equal "its exit code" $? 7
head -c 3000000 /dev/urandom >"$T/blob"
equal "standard input and output, byte by byte" "$(into cat <"$T/blob" | sha256sum)" "$(sha256sum <"$T/blob")"
equal "standard error is its own" "$(into 'echo out; echo err >&2' 2>/dev/null)" out
contains "the way to the models is in its environment" "$(into env)" ANTHROPIC_BASE_URL=http://127.0.0.1:8080
contains "a terminal" "$(timeout 60 script -qec "stty rows 33 cols 101; '$BERTHFS' ssh box" /dev/null <<-END | tr -d '\r'
	stty size; tty
	exit
END
)" "33 101"
equal "its user is the container's, with no right at all" "$(into 'id -u; grep CapEff /proc/self/status | tr -d "\t"; grep NoNewPrivs /proc/self/status | tr -d "\t"')" "1000
CapEff:0000000000000000
NoNewPrivs:1"
contains "it has no other network than a job has" "$(into 'cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d " "; python3 -c "
import socket
s = socket.socket(); s.settimeout(5); print(s.connect_ex((\"1.1.1.1\", 80)))"' | tr '\n' ' ')" "lo 101"

# ---- other programs
printf '#!/bin/sh\nexec ssh -F %s "$@"\n' "$T/cfg" >"$T/ssh" && chmod +x "$T/ssh"
check "scp there" client scp -q "$T/blob" box.berth:blob
check "scp back" client scp -q box.berth:blob "$T/blob2"
check "it is the same" cmp "$T/blob" "$T/blob2"
check "scp by its old protocol" client scp -q -O box.berth:blob "$T/blob3"
printf 'put %s sub.bin\nls -l sub.bin\nrename sub.bin moved.bin\nget moved.bin %s\nrm moved.bin\n' "$T/blob" "$T/got" |
	client sftp -q -b - box.berth >"$T/sftp" 2>&1 || not_ok "sftp: $(cat "$T/sftp")"
check "sftp: put, rename, get" cmp "$T/blob" "$T/got"
mkdir -p "$T/tree/deep/er" && cp "$T/blob" "$T/tree/deep/er" && ln -s deep "$T/tree/link" && echo x >"$T/tree/a b"
check "rsync there" timeout 120 rsync -a -e "$T/ssh" "$T/tree/" box.berth:tree/
into 'echo more >>../tree/deep/new; rm "../tree/a b"'
check "rsync back" timeout 120 rsync -a --delete -e "$T/ssh" box.berth:tree/ "$T/tree/"
equal "what came back" "$(cat "$T/tree/deep/new" && ls "$T/tree" | tr '\n' ' ')" "more
deep link "
if have sshfs && mkdir "$T/fs" && timeout 60 sshfs -F "$T/cfg" box.berth:project "$T/fs" 2>"$T/err"; then
	equal "sshfs: read" "$(cat "$T/fs/a.txt")" hello
	echo by sshfs >"$T/fs/new.txt"
	equal "sshfs: written" "$(into cat new.txt)" "by sshfs"
	timeout 60 fusermount3 -u "$T/fs" || umount -l "$T/fs"
else
	skip sshfs "$(cat "$T/err")"
fi
many=
for i in 1 2 3 4 5 6; do
	client ssh box.berth "echo $i" >"$T/many.$i" &
	many="$many $!"
done
for i in $many; do wait "$i" || not_ok "one of six at once"; done
equal "six at once" "$(cat "$T"/many.* | tr '\n' ' ')" "1 2 3 4 5 6 "
none_left() { [ "$(into 'ps ax | grep -c "[d]ropbear -i"')" = 1 ]; } # the one that asks
check "no server stays behind" within 60 none_left

# ---- ports: into the sandbox, never out of it
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
client ssh -o ExitOnForwardFailure=yes -L "127.0.0.1:$port:127.0.0.1:3000" box.berth \
	'cd project && exec timeout 100 python3 -m http.server --bind 127.0.0.1 3000' >/dev/null 2>&1 &
preview=$!
own $preview
check "-L: a preview of what runs in there" within 60 sh -c "curl -s http://127.0.0.1:$port/a.txt | grep -qx hello"
kill $preview
wait $preview 2>/dev/null
if client ssh -o ExitOnForwardFailure=yes -R 3001:127.0.0.1:22 box.berth true 2>"$T/err"; then
	not_ok "-R is refused"
else
	contains "-R is refused" "$(cat "$T/err")" "remote port forwarding failed"
fi

# ---- who is let in
ssh-keygen -q -t ed25519 -N "" -f "$T/other"
refused() { # refused NAME OPTIONS...: permission denied, and no question
	refused_name=$1
	shift
	if client ssh "$@" -o BatchMode=yes box.berth true 2>"$T/err"; then
		not_ok "$refused_name"
	else
		contains "$refused_name" "$(cat "$T/err")" "Permission denied"
	fi
}
cp "$T/cfg" "$T/cfg.mine" && sed -i "s,IdentityFile.*,IdentityFile $T/other," "$T/cfg"
refused "another key"
cp "$T/cfg.mine" "$T/cfg"
refused "root" -l root
refused "no key at all" -o PubkeyAuthentication=no -o PreferredAuthentications=password,keyboard-interactive
# a server that shows another key than the one that was read over the tool connection
into 'mv /var/lib/berthfs/ssh/host-1 /tmp/keep && dropbearkey -t ed25519 -f /var/lib/berthfs/ssh/host-1 >/dev/null 2>&1'
if into true 2>"$T/err"; then
	not_ok "another host key is refused"
else
	contains "another host key is refused" "$(client ssh box.berth true 2>&1)" "verification failed"
fi
# the keys come back with the next start; that is also the way of a sandbox that is down
echo down >"$S/box/ctl"
within 60 grep -q "^container down" "$S/box/sandbox" || not_ok "down"
equal "a sandbox that is down is started" "$(into cat a.txt 2>/dev/null)" hello
equal "by plain ssh as well" "$(client ssh box.berth 'echo again')" again

# ---- a session that begins as another one: the server of its copy has a key of its own, and none of the other's
(cd "$P" && printf -- '---\nfrom: box\n---\nhi\n' >"$S/new/copy") && timeout 300 cat "$S/copy/wait/idle" >/dev/null
key() { "$BERTHFS" ssh "$1" 'dropbearkey -y -f /var/lib/berthfs/ssh/host-* | grep ^ssh-' 2>/dev/null; }
check "it tells its key" [ "$(key copy | wc -l)" = 1 ]
equal "a copy shares no key" "$({ key box; key copy; } | sort | uniq -d)" ""
equal "nor a key to come in with" "$(cat "$T"/state/berthfs/sandboxes/*/ssh/id.pub | sort | uniq -d)" ""
equal "and keeps none of the other's" "$("$BERTHFS" ssh copy 'ls /var/lib/berthfs/ssh; wc -l <~/.ssh/authorized_keys' | tr '\n' ' ')" "host-$(cat "$S/copy/id") 1 "
echo 'destroy force' >"$S/copy/ctl"
within 60 test ! -e "$S/copy" || not_ok "the copy ends"

# ---- without a daemon
(client ssh box.berth 'echo begun; sleep 1000' >"$T/long"; echo $? >"$T/long.code") &
own $!
check "a session is open" within 60 grep -q begun "$T/long"
stop || not_ok "umount"
equal "into a container whose daemon is away" "$(into cat a.txt)" hello
check "the one before goes on" [ ! -s "$T/long.code" ]
kill -9 "$(cut -d' ' -f1 "$D/keeper.pid")"
check "the client of a container that dies ends" within 60 test -s "$T/long.code"
equal "with ssh's own code" "$(cat "$T/long.code")" 255
equal "and the next one starts it again, without a daemon" "$(into cat a.txt 2>/dev/null)" hello
start || not_ok "the daemon takes it over"
equal "and serves the session" "$(cd "$P" && printf 'go on\n' >>"$S/box/input" && timeout 60 cat "$S/box/wait/reply")" "second answer"

# ---- what cannot be
said() { # said NAME CODE WORDS COMMAND...
	said_name=$1 said_code=$2 said_words=$3
	shift 3
	timeout 60 "$@" >/dev/null 2>"$T/err" </dev/null
	equal "$said_name: exit code" $? "$said_code"
	contains "$said_name: words" "$(cat "$T/err")" "$said_words"
}
into 'mv /usr/sbin/dropbear /usr/sbin/dropbear.off; rm /run/berthfs/ssh/ready'
said "an image without a server" 255 "no ssh server" "$BERTHFS" ssh box true
(cd "$P" && printf -- '---\nsandbox: dir\n---\nhi\n' >"$S/new/plain") && timeout 60 cat "$S/plain/wait/idle" >/dev/null
said "kind dir" 64 "have no ssh server" "$BERTHFS" ssh plain true
contains "and where to go" "$(cat "$T/err")" "cd '"
echo 'destroy force' >"$S/box/ctl"
within 60 test ! -e "$S/box" || not_ok "destroy"
within 60 test ! -e "$D" || not_ok "its folder goes, with the keys"
said "a session that has ended" 66 'no session "box"' "$BERTHFS" ssh box
