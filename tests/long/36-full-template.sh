#!/bin/sh
# A VM finds no room for its disk while a template is set up in it: that is said in words, and not as a silence; with room
# there, `retry` goes on. time limit: 900 s
[ "${1:-}" = inside ] || ! unshare -m true 2>/dev/null || exec unshare -m --propagation private sh "$0" inside
. "$(dirname "$0")/../lib.sh"
boxes=$T/state/berthfs/sandboxes
mkdir -p "$boxes" && chmod 700 "$T/state/berthfs" "$boxes"
[ "${1:-}" = inside ] && mount -t tmpfs -o size=64m,mode=700 none "$boxes" 2>/dev/null || { skip all "no tmpfs can be mounted here"; exit 0; }
trap 'stop >/dev/null 2>&1; for pid in $(sandbox_pids) $(gateway_pid); do kill -9 "$pid" 2>/dev/null; done
umount -l "$boxes"; finish' EXIT
mkdir -p "$P/.agents"
echo 'echo filling; head -c 150000000 /dev/urandom >~/big && sync && echo filled' >"$P/.agents/setup"
git -C "$P" add . && git -C "$P" commit -qm setup
use_vm
start || exit 1
words="the disk of $T/state/berthfs is full: free some space"
(cd "$P" && echo go >"$S/new/s")
failed() { grep -q '^failed: ' "$S/s/status"; }
check "it fails" within 600 failed
contains "status says why" "$(cat "$S/s/status")" "$words"
contains "error" "$(cat "$S/s/error")" "$words"
contains "log" "$(cat "$S/s/log")" "$words"
contains "the template's log" "$(cat "$M"/templates/*/log)" "failed: setting the project up failed: $words"
contains "its status" "$(cat "$M"/templates/*/status)" "$words"
equal "once" "$(grep -c filling "$M"/templates/*/log)" 1
equal "what filled the disk has gone" "$(ls "$boxes" | grep -c '......')" 0
mount -o remount,size=1g "$boxes"
echo retry >"$S/s/ctl"
check "with room it goes on" timeout 600 cat "$S/s/wait/idle" >/dev/null
contains "and is answered" "$(cat "$S/s/transcript")" "first answer"
equal "the template is ready" "$(cat "$M"/templates/*/status)" ready
