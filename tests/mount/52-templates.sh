#!/bin/sh
# templates/ on a real mount: what is listed, read and dropped.
. "$(dirname "$0")/../lib.sh"

mkdir "$P/.agents"
printf 'echo setting up\n[ -e "%s/go" ] || exit 3\n' "$T" >"$P/.agents/setup"
(cd "$P" && git add . && git commit -qm setup)
TEMPLATE=$M/templates/project@$(git -C "$P" rev-parse --short=12 HEAD)
start || exit 1
equal "there is none" "$(ls "$M/templates")" ""
(cd "$P" && echo hello >"$S/new/one")
within 60 grep -q '^failed' "$S/one/status" || not_ok "it fails"
contains "the session says why" "$(cat "$S/one/status")" "failed: setting the project up failed: .agents/setup ended with exit code 3"
contains "and so does the template" "$(cat "$TEMPLATE/status")" "failed: setting the project up failed"
contains "its log has the words of the setup" "$(cat "$TEMPLATE/log")" "setting up"
equal "sizes are true" "$(stat -c %s "$TEMPLATE/log" "$TEMPLATE/status" "$TEMPLATE/size")" "$(for f in log status size; do wc -c <"$TEMPLATE/$f"; done)"
touch "$T/go"
echo retry >"$S/one/ctl" || not_ok "retry"
check "a retry works" timeout 60 cat "$S/one/wait/idle" >/dev/null
equal "it is ready" "$(cat "$TEMPLATE/status")" ready
check "and has a size" [ "$(cat "$TEMPLATE/size")" -gt 0 ]
equal "one is listed" "$(ls "$M/templates")" "$(basename "$TEMPLATE")"
equal "its files" "$(ls "$TEMPLATE" | tr '\n' ' ')" "log size status "
equal "nothing is made here" "$(errno_of mkdir "$M/templates/x")" EPERM
equal "nor there" "$(errno_of sh -c "echo x >$TEMPLATE/x")" EPERM
equal "files stay" "$(errno_of rm "$TEMPLATE/log")" EPERM
check "rmdir drops it" rmdir "$TEMPLATE"
equal "it is not listed any more" "$(ls "$M/templates")" ""
equal "and not there" "$(errno_of cat "$TEMPLATE/status")" ENOENT
equal "its disk stays while a session lies on it" "$(templates_kept)" 1
echo "destroy force" >"$S/one/ctl"
none() { [ "$(templates_kept)" = 0 ]; }
check "and goes with it" within 60 none

# ---- watchers
if have inotifywait; then
	inotifywait -m -r "$M/templates" >"$T/events" 2>"$T/err" &
	own $!
	established() { grep -q established "$T/err"; }
	within 30 established
	saw() { grep -q "$1" "$T/events"; }
	session watched
	NAME_OF=$(basename "$TEMPLATE")
	check "CREATE of one that is built" within 30 saw "templates/ CREATE,ISDIR $NAME_OF"
	echo more >>"$P/a.txt"
	(cd "$P" && git commit -qam more)
	session watched2
	check "DELETE of one that is old" within 30 saw "templates/ DELETE,ISDIR $NAME_OF"
	equal "the new one is listed" "$(ls "$M/templates")" "project@$(git -C "$P" rev-parse --short=12 HEAD)"
	equal "and can be read" "$(cat "$M"/templates/*/status)" ready
	tail -f "$M"/templates/*/log >"$T/tail" 2>/dev/null &
	own $!
	rm "$T/go"
	(cd "$P" && git rm -q --cached a.txt && git commit -qm less && echo hello >"$S/new/watched3")
	within 30 grep -q '^failed' "$S/watched3/status"
	check "MODIFY of what changes" within 30 saw "MODIFY log"
else
	skip watchers "no inotifywait"
fi

# ---- the daemon ends while one is built: what the setup fetches comes by the gateway, which stays
printf 'echo setting up\nwhile [ ! -e "%s/go2" ]; do sleep 0.1; done\necho end\n' "$T" >"$P/.agents/setup"
(cd "$P" && git commit -qam slow && echo hello >"$S/new/slow")
within 60 grep -q "^preparing installing" "$S/slow/status" || not_ok "it is being built"
within 60 grep -q "^gateway running" "$M/status" || not_ok "the gateway runs"
stop || not_ok "it is unmounted"
check "the gateway stays for the build" [ -n "$(gateway_pid)" ]
start || exit 1
touch "$T/go2"
check "the next daemon goes on with it" timeout 60 cat "$S/slow/wait/idle" >/dev/null
equal "the setup ran once" "$(cat "$M"/templates/*/log | grep -c '^setting up$')" 1
