#!/bin/sh
# gateway/ in the tree: keys, policy, ledger, head and tokens as files, and the process behind them.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/ports.inc"
words=$(timeout 60 "$BERTHFS" mount "$M" 2>&1) # as long as anybody has its standard error, this does not end
equal "mount says nothing, and nobody keeps its terminal" "$? $words" "0 "
DAEMON=$(daemon_pid)
G=$M/gateway
KEY=sk-tree-0123456789abcdefghij
runs() { grep -q '^gateway running' "$M/status"; }
gateway_pid() { sed -n 's/^gateway running pid \([0-9]*\),.*/\1/p' "$M/status"; }
size() { stat -c %s "$1"; }
check "it runs soon, and status says so" within 10 runs
equal "what is there" "$(ls "$G" | tr '\n' ' ')" "head keys ledger policy tokens "

# ---- keys
equal "each file has a time" "$(find "$G" -not -newermt '2020-01-01')" ""
printf '%s\n' "$KEY" >"$G/keys/anthropic"
equal "a key is taken in the write" $? 0
want="sha256:$(printf %s "$KEY" | sha256sum | cut -c1-16)"
equal "its file shows the fingerprint" "$(cat "$G/keys/anthropic")" "$want"
equal "with a true size" "$(size "$G/keys/anthropic")" "$(wc -c <"$G/keys/anthropic")"
equal "and nobody else may read it" "$(stat -c %a "$G/keys/anthropic")" 600
equal "it is listed" "$(ls "$G/keys")" anthropic
equal "a key that is too short" "$(errno_of bash -c "echo short >$G/keys/anthropic")" EINVAL
equal "the old one stays" "$(cat "$G/keys/anthropic")" "$want"
equal "two words are no key" "$(errno_of bash -c "echo sk-0123456789 sk-0123456789 >$G/keys/other")" EINVAL
equal "and leave no file" "$(ls "$G/keys")" anthropic
equal "a key that is too long" "$(errno_of sh -c "head -c 3000 /dev/zero | tr '\\0' a >$G/keys/other")" EFBIG
equal "a second write to the same open file" "$(errno_of bash -c "exec 3>$G/keys/other; printf sk-0123456789 >&3; printf 9876543210 >&3")" EINVAL
equal "the first one counts" "$(cat "$G/keys/other")" "sha256:$(printf sk-0123456789 | sha256sum | cut -c1-16)"
rm "$G/keys/other"
equal "rm takes it away" "$? $(ls "$G/keys")" "0 anthropic"
equal "and what is not there is not there" "$(errno_of rm "$G/keys/other")" ENOENT
equal "a strange name" "$(errno_of bash -c "echo $KEY >$G/keys/a+b")" EINVAL
equal "an editor's swap file" "$(errno_of bash -c "echo $KEY >$G/keys/.x.swp")" EPERM
: >"$G/keys/anthropic"
equal "to empty it changes nothing" "$? $(cat "$G/keys/anthropic")" "0 $want"
touch "$G/keys/nothing"
equal "touch leaves nothing behind" "$? $(ls "$G/keys")" "0 anthropic"
equal "chmod to the same mode" "$(errno_of chmod 600 "$G/keys/anthropic")" ok
equal "nothing else is made there" "$(errno_of mkdir "$G/keys/d") $(errno_of touch "$G/x") $(errno_of rm "$G/policy")" "EPERM EPERM EPERM"
if grep -rqsF "$KEY" "$M" "$T/state/berthfs/log" "$T/state/berthfs/berthfs.db" "$T/config" "$T/run"; then
	not_ok "the key is nowhere but in its file"
else
	ok "the key is nowhere but in its file"
fi
equal "which is 0600" "$(stat -c %a "$T/state/berthfs/gateway/keys/anthropic")" 600

# ---- policy
cp "$G/policy" "$T/policy"
equal "the policy has a true size" "$(size "$G/policy")" "$(wc -c <"$T/policy")"
contains "and is its own manual" "$(cat "$T/policy")" "route POST /v1/messages"
equal "a bad line is refused as it is written" "$(errno_of bash -c "echo 'route everything' >>$G/policy")" EINVAL
contains "in words" "$(tail -n 1 "$M/error")" "gateway/policy"
cmp -s "$G/policy" "$T/policy" && ok "and nothing has changed" || not_ok "and nothing has changed"
echo '# mine' >>"$G/policy"
equal "a good line is taken" "$? $(tail -n 1 "$G/policy")" "0 # mine"
equal "and is in force" "$(tail -n 1 "$T/state/berthfs/gateway/policy")" "# mine"
printf 'model nobody claude-*\n' >"$G/policy" # which a shell does not hear of: close tells it
contains "a whole that does not hold is refused, with line and reason" "$(tail -n 1 "$M/error")" "line 1"
equal "it stays as a draft" "$(cat "$G/policy")" "model nobody claude-*"
contains "status says so" "$(grep '^gateway' "$M/status")" draft
equal "the old one in force" "$(tail -n 1 "$T/state/berthfs/gateway/policy")" "# mine"
cp "$T/policy" "$G/policy"
equal "until a good one is written" "$? $(grep -c draft "$M/status")" "0 0"

# ---- ledger, head, tokens
equal "the ledger has a true size" "$(size "$G/ledger")" "$(wc -c <"$G/ledger")"
check "and is JSON lines" python3 -c 'import json, sys; [json.loads(l) for l in open(sys.argv[1])]' "$G/ledger"
contains "the key's writing is in it" "$(grep '"key written"' "$G/ledger")" "$want"
tail -n 0 -f "$G/ledger" >"$T/followed" 2>/dev/null &
own $!
within 5 sh -c "ls -l /proc/$!/fd | grep -q gateway/ledger"
echo "$KEY" >"$G/keys/second"
check "tail -f sees it grow" within 10 grep -q '"key":"second"' "$T/followed"
cat >"$T/poll.py" <<-'END'
	import os, select, sys, threading
	f = os.open(sys.argv[1] + "/ledger", os.O_RDONLY)
	while os.read(f, 1 << 20): pass
	p = select.poll(); p.register(f, select.POLLIN)
	assert not p.poll(0), "nothing new"
	threading.Timer(0.2, lambda: os.unlink(sys.argv[1] + "/keys/second")).start()
	assert p.poll(60000), "it is told"
	assert b"key removed" in os.read(f, 1 << 20)
END
check "poll tells of a new record" python3 "$T/poll.py" "$G"
if have inotifywait; then
	inotifywait -q -t 120 -e modify "$G/ledger" >"$T/event" 2>/dev/null &
	watcher=$!
	own $watcher
	within 5 sh -c "grep -q inotify /proc/$watcher/fdinfo/* 2>/dev/null"
	echo "$KEY" >"$G/keys/watched"
	within 10 is_gone $watcher
	contains "a watcher hears of it" "$(cat "$T/event")" MODIFY
	rm "$G/keys/watched"
else
	skip "a watcher hears of it" "no inotifywait"
fi
of_ledger() { grep -qw "length $(wc -l <"$G/ledger")" "$G/head"; }
check "head has length and hash" within 10 of_ledger
equal "with a true size" "$(size "$G/head")" "$(wc -c <"$G/head")"
(cat "$G/ledger" >"$T/ledger") && check "the ledger holds" "$BERTHFS" ledger verify "$T/ledger" >"$T/verify"
for how in "cp $T/key" "install -m 600 $T/key" "dd status=none if=$T/key of="; do
	printf '%s' "$KEY" >"$T/key"
	case $how in dd*) $how"$G/keys/tool" ;; *) $how "$G/keys/tool" ;; esac
	equal "$(echo "$how" | cut -d' ' -f1) hands one over" "$? $(cat "$G/keys/tool")" "0 $want"
	rm "$G/keys/tool"
done
equal "they can only be read" "$(errno_of bash -c "echo x >$G/ledger") $(errno_of bash -c "echo x >$G/head")" "EACCES EACCES"

# ---- settings
echo 'gateway.listen = 127.0.0.1:1' >>"$M/config"
free=$(free_port)
printf 'sandbox = dir\nsandbox.allow-dir = yes\nmodel = script:%s\ngateway.listen = 127.0.0.1:%s\nledger.sync = each\n' "$T/script" "$free" >"$M/config"
check "gateway.listen is heard at once" within 5 listens "$free"
printf 'sandbox = dir\nsandbox.allow-dir = yes\nmodel = script:%s\n' "$T/script" >"$M/config"
not_listens() { ! listens "$free"; }
check "and its end, too" within 5 not_listens

# ---- its life
pid=$(gateway_pid)
kill -9 "$pid"
is_another() { now=$(gateway_pid) && [ -n "$now" ] && [ "$now" != "$pid" ]; }
check "killed, it is there again" within 5 is_another
told() { [ "$(cut -f 4,5 "$M/events" | tail -n 2 | tr '\n\t' '  ')" = "gateway has ended; starting it again gateway started " ]; }
check "events tell of it" within 10 told
equal "and it has the key" "$(cat "$G/keys/anthropic")" "$want"
pid=$(gateway_pid)
kill -STOP "$pid"
equal "one that does not answer: the write is refused in time" "$(timeout 60 bash -c "echo $KEY >$G/keys/third" 2>&1 | grep -c 'timed out')" 1
check "the tree is there meanwhile" timeout 60 ls "$M/sessions" "$G/policy" >/dev/null
kill -CONT "$pid"
stop
check "it ends with the daemon when no sandbox is up" within 5 is_gone "$pid"
start || exit 1
check "and starts with it" within 10 runs
equal "with all it had" "$(cat "$G/keys/anthropic")" "$want"
pid=$(gateway_pid)
kill -9 "$DAEMON"
within 10 is_gone "$DAEMON"
start || exit 1
check "after a killed daemon" within 10 runs
equal "the next one takes it over" "$(gateway_pid)" "$pid"
