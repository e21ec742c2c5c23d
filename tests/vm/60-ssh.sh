#!/bin/sh
# People in a VM with their own clients: berthfs ssh, and ssh, scp, sftp, rsync and sshfs by `berthfs ssh-config`; what
# has to be refused; a sandbox that is down, a daemon that is away, a VM that dies.
# time limit: 600 s
. "$(dirname "$0")/../lib.sh"
use_vm
echo "sandbox.allow-dir = yes" >>"$T/config/berthfs/config"
start || exit 1
session box || not_ok "a session"
. "$(dirname "$0")/people.inc"

# ---- plain ssh alone, then berthfs ssh
people_ssh
into 'kill -9 $$' 2>/dev/null
equal "ended by a signal" $? 255
equal "words with blanks" "$(into printf '%s.' '"a b"' c)" "a b.c."
contains "a shell reads its commands" "$(printf 'pwd\nexit 0\n' | into)" /home/agent/project
contains "ssh -tt" "$(client ssh -tt box.berth 'tty; test -t 0 && echo yes' 2>/dev/null </dev/null | tr -d '\r')" /dev/pts/
none_connects() { for pid in $(pgrep -f ' connect 1$'); do ! is_ours "$pid" || return; done; }
none_counts() { [ "$(keeper_says)" = "running tcg ssh 0" ]; }
within 60 none_connects || not_ok "the streams end"
within 60 none_counts || not_ok "nobody is counted any more: $(keeper_says)"

# ---- other programs
in_use() { contains "it counts as in use" "$(keeper_says)" "ssh 1"; }
people_programs

# ---- ports: into the sandbox, never out of it
people_ports
mkdir "$T/agent" && chmod 700 "$T/agent"
ssh-agent -D -a "$T/agent/sock" >/dev/null 2>&1 &
own $!
within 10 test -S "$T/agent/sock"
equal "no agent gets in" "$(SSH_AUTH_SOCK=$T/agent/sock into 'echo "[$SSH_AUTH_SOCK]"')" "[]"

# ---- who is let in
people_refused sudo
equal "by plain ssh as well" "$(client ssh box.berth 'cat project/new.txt')" "by sshfs"

# ---- a session that begins as another one: the server of its copy has a key of its own, and none of the other's
(cd "$P" && printf -- '---\nfrom: box\n---\nhi\n' >"$S/new/copy") && timeout 300 cat "$S/copy/wait/idle" >/dev/null
key() { "$BERTHFS" ssh "$1" 'sudo sh -c "dropbearkey -y -f /var/lib/berthfs/ssh/host-* | grep ^ssh-"; cat /etc/machine-id' 2>/dev/null; }
check "it tells its key" [ "$(key copy | wc -l)" = 2 ]
equal "a copy shares no key and no id" "$({ key box; key copy; } | sort | uniq -d)" ""
equal "nor a key to come in with" "$(cat "$T"/state/berthfs/sandboxes/*/ssh/id.pub | sort | uniq -d)" ""
equal "and keeps none of the other's" "$("$BERTHFS" ssh copy 'sudo ls /var/lib/berthfs/ssh; wc -l <~/.ssh/authorized_keys' | tr '\n' ' ')" "host-$(cat "$S/copy/id") 1 "
echo 'destroy force' >"$S/copy/ctl"
within 60 test ! -e "$S/copy" || not_ok "the copy ends"

# ---- without a daemon
(timeout 600 ssh -F "$T/cfg" box.berth 'echo begun; sleep 1000' >"$T/long"; echo $? >"$T/long.code") &
own $!
check "a session is open" within 60 grep -q begun "$T/long"
stop || not_ok "umount"
contains "it goes on when the daemon ends" "$(keeper_says)" "ssh 1"
equal "into a VM whose daemon is away" "$(into cat a.txt)" hello
kill -9 "$(cut -d' ' -f1 "$T/state/berthfs/sandboxes/1/keeper.pid")"
check "the client of a VM that dies ends" within 60 test -s "$T/long.code"
equal "with ssh's own code" "$(cat "$T/long.code")" 255
equal "and the next one starts it again, without a daemon" "$(into cat a.txt 2>/dev/null)" hello
start || not_ok "the daemon takes it over"
equal "and serves the session" "$(cd "$P" && printf 'go on\n' >>"$S/box/input" && timeout 300 cat "$S/box/wait/reply")" "second answer"

# ---- what cannot be
said "an unknown session" 66 'no session "nobody"' "$BERTHFS" ssh nobody
said "connect to one" 66 'no session "nobody"' "$BERTHFS" connect nobody
said "no name" 64 usage "$BERTHFS" connect
(cd "$P" && printf -- '---\nsandbox: dir\n---\nhi\n' >"$S/new/plain") && timeout 200 cat "$S/plain/wait/idle" >/dev/null
said "kind dir" 64 "have no ssh server" "$BERTHFS" ssh plain true
into 'sudo mv /usr/sbin/dropbear /usr/sbin/dropbear.off; sudo rm /run/berthfs/ssh/ready'
said "an image without a server" 255 "no ssh server" "$BERTHFS" ssh box true
echo 'destroy force' >"$S/box/ctl"
within 60 test ! -e "$S/box" || not_ok "destroy"
within 60 test ! -e "$T/state/berthfs/sandboxes/1" || not_ok "its folder goes, with the keys"
said "a session that has ended" 66 'no session "box"' "$BERTHFS" ssh box
