#!/bin/sh
# People in a container with their own clients: berthfs ssh, and ssh, scp, sftp, rsync and sshfs by `berthfs ssh-config`;
# what has to be refused; a container that is down, a daemon that is away, a container that dies.
# time limit: 600 s
. "$(dirname "$0")/../lib.sh"
use_image container
echo "sandbox.allow-dir = yes" >>"$T/config/berthfs/config"
start || exit 1
(cd "$P" && echo hello >"$S/new/box") && timeout 300 cat "$S/box/wait/idle" >/dev/null || not_ok "a session"
. "$(dirname "$0")/people.inc"
D=$T/state/berthfs/sandboxes/1

# ---- plain ssh alone, then berthfs ssh
people_ssh
equal "its user is the container's, with no right at all" "$(into 'id -u; grep CapEff /proc/self/status | tr -d "\t"; grep NoNewPrivs /proc/self/status | tr -d "\t"')" "1000
CapEff:0000000000000000
NoNewPrivs:1"
contains "it has no other network than a job has" "$(into 'cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d " "; python3 -c "
import socket
s = socket.socket(); s.settimeout(5); print(s.connect_ex((\"1.1.1.1\", 80)))"' | tr '\n' ' ')" "lo 101"

# ---- other programs
in_use() { :; }
people_programs
none_left() { [ "$(into 'ps ax | grep -c "[d]ropbear -i"')" = 1 ]; } # the one that asks
check "no server stays behind" within 60 none_left

# ---- ports: into the sandbox, never out of it
people_ports

# ---- who is let in
people_refused ""
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
(timeout 600 ssh -F "$T/cfg" box.berth 'echo begun; sleep 1000' >"$T/long"; echo $? >"$T/long.code") &
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
equal "and serves the session" "$(cd "$P" && printf 'go on\n' >>"$S/box/input" && timeout 300 cat "$S/box/wait/reply")" "second answer"

# ---- what cannot be
into 'mv /usr/sbin/dropbear /usr/sbin/dropbear.off; rm /run/berthfs/ssh/ready'
said "an image without a server" 255 "no ssh server" "$BERTHFS" ssh box true
(cd "$P" && printf -- '---\nsandbox: dir\n---\nhi\n' >"$S/new/plain") && timeout 200 cat "$S/plain/wait/idle" >/dev/null
said "kind dir" 64 "have no ssh server" "$BERTHFS" ssh plain true
contains "and where to go" "$(cat "$T/err")" "cd '"
echo 'destroy force' >"$S/box/ctl"
within 60 test ! -e "$S/box" || not_ok "destroy"
within 60 test ! -e "$D" || not_ok "its folder goes, with the keys"
said "a session that has ended" 66 'no session "box"' "$BERTHFS" ssh box
