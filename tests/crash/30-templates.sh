#!/bin/sh
# kill -9 of the daemon at each step of a template. After `berthfs mount` again the session is answered, the template is
# whole, and nothing of its build is left. KIND=vm, KIND=container: the same with those.
. "$(dirname "$0")/../lib.sh"
[ "${KIND:-dir}" = dir ] || use_image "$KIND"

mkdir "$P/.agents"
printf 'echo setting up\necho made >>made\n' >"$P/.agents/setup"
echo /made >"$P/.gitignore"
(cd "$P" && git add . && git commit -qm setup)
only_sessions() { ! ls "$T/state/berthfs/sandboxes" | grep -q '......'; } # the ids of builds are long

for point in begun started cloned installed down saved ready dropped; do
	name=at-$point
	echo '{"tools":[{"name":"bash","input":{"command":"cat made | wc -l; git status --porcelain; git log -1 --format=%s"}}]}' >"$T/$name.script"
	echo '{"text":"done"}' >>"$T/$name.script"
	(cd "$P" && echo "$point" >b.txt && git add . && git commit -qm "$point")
	# each begins at the base image: a changed setup
	[ "$point" = dropped ] || (cd "$P" && echo "# $point" >>.agents/setup && git commit -qam "$point")
	BERTHFS_KILL_AT=template.$point start || { not_ok "$name: it mounts"; exit 1; }
	(cd "$P" && printf -- '---\nmodel: script:%s\n---\ngo\n' "$T/$name.script" >"$S/new/$name") 2>/dev/null
	if [ "$point" = dropped ]; then
		timeout 120 cat "$S/$name/wait/idle" >/dev/null 2>&1
		# the last user of an old one; in a VM that of at-ready stays: the new one's disk lies on it
		[ "${KIND:-dir}" = vm ] && last=at-saved || last=at-ready
		echo "destroy force" >"$S/$last/ctl" 2>/dev/null
	fi
	within 120 is_gone "$DAEMON" || not_ok "$name: it came so far"
	start || { not_ok "$name: it mounts again"; exit 1; }
	check "$name: it becomes idle" timeout 300 cat "$S/$name/wait/idle" >/dev/null
	made=1
	[ "$point" = dropped ] && made=2
	contains "$name: it was set up" "$(cat "$S/$name/transcript")" "$made
$point"
	equal "$name: its template is ready" "$(cat "$M"/templates/*"$(git -C "$P" rev-parse --short=12 HEAD)"/status)" ready
	check "$name: nothing of the build is left" within 60 only_sessions
	stop || not_ok "$name: it ends"
done
start
for name in "$S"/at-*; do echo "destroy force" >"$name/ctl"; done
rmdir "$M"/templates/* || not_ok "they can be dropped"
none() { [ "$(templates_kept)" = 0 ]; }
check "nothing is left of templates" within 60 none
