#!/bin/sh
# Ships to a pull request, and ships by themselves after a run. The forge is a folder of bare repositories whose hook says
# what a forge says, and a `gh` that keeps what it is told.
. "$(dirname "$0")/../lib.sh"
git init -q --bare -b main "$T/remote.git"
cat >"$T/remote.git/hooks/post-receive" <<'END'
#!/bin/sh
while read -r old new ref; do
	case $ref in *sandbox-*) printf '\nCreate a pull request by visiting:\n  https://forge.example/app/new?head=%s\n\n' "${ref#refs/heads/}" ;; esac
done
END
chmod +x "$T/remote.git/hooks/post-receive"
mkdir "$P/.agents" "$T/bin"
echo '{"checks":[{"name":"no-bad","command":"test ! -e bad"}]}' >"$P/.agents/project.json"
(cd "$P" && git add . && git commit -qm checks && git remote add origin "$T/remote.git" && git push -q -u origin main) || exit 1

make_gh() {
	cat >"$T/bin/gh" <<END
#!/bin/sh
[ -t 0 ] && exit 9
printf '%s\n' "\$@" >"$T/gh.args"
cat >"$T/gh.body"
pwd >"$T/gh.cwd"
$1
END
	chmod +x "$T/bin/gh"
}
PATH=$T/bin:$PATH
export PATH
work() { printf '{"tools":[{"name":"bash","input":{"command":"%s; git add -A; git commit -qm \\"%s\\""}}]}\n{"text":"done\\n\\n```plan\\n- [x] %s\\n```\\n"}\n' "$2" "$1" "$1"; }
ready='{"text":"rebased","tools":[{"name":"bash","input":{"command":"git rebase -q refs/berthfs/base"}}]}
{"text":"SHIP-READY"}'
draft() { # NAME AFTER SHIP
	(cd "$P" && printf -- '---\nmodel: script:%s\nafter-run: %s\nship: %s\n---\nMend it, please.\nAll of it.\n' "$T/$1.script" "$2" "$3" >"$S/new/$1")
}
start || exit 1

# ---- with gh
make_gh 'echo "Creating pull request" >&2; echo https://forge.example/app/pull/7'
{ work "add b" "echo b >b.txt"; echo "$ready"; } >"$T/one.script"
draft one none pr
timeout 200 cat "$S/one/wait/idle" >/dev/null
echo >"$S/one/ship"
timeout 200 cat "$S/one/wait/shipped" >"$T/shipped"
head=$(git -C "$P" rev-parse sandbox/1)
branch=sandbox-1-$(echo "$head" | cut -c 1-12)
equal "the link is in ship" "$(cat "$S/one/ship")" "landed $branch $head https://forge.example/app/pull/7"
equal "the commit is on a branch of its own" "$(git -C "$T/remote.git" rev-parse "$branch")" "$head"
equal "main is untouched" "$(git -C "$T/remote.git" rev-parse main)" "$(git -C "$P" rev-parse main)"
equal "gh is asked" "$(tr '\n' ' ' <"$T/gh.args")" \
	"pr create --repo $T/remote.git --head $branch --base main --title add b --body-file - "
contains "the plan is in the text" "$(cat "$T/gh.body")" "- [x] add b"
contains "and the commits" "$(cat "$T/gh.body")" "tester  add b"
equal "in the checkout" "$(cat "$T/gh.cwd")" "$P"
contains "the work is still told against main" "$(cat "$S/one/changes")" "b.txt"
equal "base" "$(cut -d' ' -f1 "$S/one/base")" main
contains "the model was told" "$(cat "$S/one/transcript")" "offered as a pull request for branch main of origin"
echo pr >"$S/one/ship"
timeout 200 cat "$S/one/wait/shipped" >/dev/null
contains "again without SHIP-READY: blocked" "$(cat "$S/one/ship")" "blocked:"

# ---- an open one is found again; a name and password in the URL do not get into arguments
make_gh 'echo "a pull request for branch \"x\" into branch \"main\" already exists:" >&2; echo https://forge.example/app/pull/8 >&2; exit 1'
git -C "$P" remote set-url --push origin "file://user:s3cret@localhost$T/remote.git" 2>/dev/null
{ work "add c" "echo c >c.txt"; work "add d" "echo d >d.txt"; echo "$ready"; } >"$T/two.script"
draft two none main
timeout 200 cat "$S/two/wait/idle" >/dev/null
echo more >>"$S/two/input"
timeout 200 cat "$S/two/wait/idle" >/dev/null
echo pr >"$S/two/ship"
timeout 200 cat "$S/two/wait/shipped" >/dev/null
contains "one that is there already" "$(cat "$S/two/ship")" "https://forge.example/app/pull/8"
contains "more than one commit: the first message is the title" "$(cat "$T/gh.args")" "Mend it, please."
check "no password" sh -c "! grep -q s3cret '$T/gh.args' && grep -q 'file://localhost$T/remote.git' '$T/gh.args'"
git -C "$P" config --unset remote.origin.pushurl

# ---- gh fails, gh is not there: the branch is pushed, and it is said where to go on
make_gh 'echo "error: not logged in: run gh auth login" >&2; exit 4'
{ work "add e" "echo e >e.txt"; echo "$ready"; } >"$T/three.script"
draft three none pr
timeout 200 cat "$S/three/wait/idle" >/dev/null
echo >"$S/three/ship"
timeout 200 cat "$S/three/wait/shipped" >/dev/null
branch=sandbox-3-$(git -C "$P" rev-parse sandbox/3 | cut -c 1-12)
contains "the remote's own link" "$(cat "$S/three/ship")" "https://forge.example/app/new?head=$branch"
contains "error says why" "$(cat "$S/three/error")" "gh auth login"
check "it is pushed" sh -c "git -C '$T/remote.git' rev-parse -q --verify '$branch' >/dev/null"

# ---- after a run: by themselves, but only what is good
make_gh 'echo https://forge.example/app/pull/9'
{ work "add f" "echo f >f.txt"; echo "$ready"; } >"$T/four.script"
draft four pr main
check "after-run: pr" within 60 grep -q "^landed sandbox-4-.*/pull/9" "$S/four/ship"
{ work "bad" "echo >bad"; work "good" "git rm -q bad; echo g >g.txt"; echo "$ready"; } >"$T/five.script"
draft five ship main
timeout 200 cat "$S/five/wait/idle" >/dev/null
equal "a failing check ships nothing" "$(cat "$S/five/ship")" none
contains "log says so" "$(cat "$S/five/log")" "not shipped: a check has not passed"
echo "mend it" >>"$S/five/input"
timeout 200 cat "$S/five/wait/idle" >/dev/null
equal "after-run: ship" "$(cat "$S/five/ship")" "landed main $(git -C "$T/remote.git" rev-parse main)"
printf '{"tools":[{"name":"bash","input":{"command":"echo h >h; git add h; git commit -qm h"}}]}\n{"text":"Which?\\n\\n```result\\nquestion: Which?\\n- a: one\\n- b: two\\n```\\n"}\n{"text":"nothing to do"}\n' >"$T/six.script"
draft six ship main
equal "a question ships nothing" "$(timeout 200 cat "$S/six/wait/idle"; cat "$S/six/ship")" "asking
none"
printf '{"text":"nothing to do"}\n' >"$T/seven.script"
draft seven ship main
equal "no work ships nothing" "$(timeout 200 cat "$S/seven/wait/idle"; cat "$S/seven/ship")" "idle
none"

# ---- killed around the push and the opening: one branch, one pull request
for point in ship.pushed ship.opened; do
	stop
	BERTHFS_KILL_AT=$point timeout 60 "$BERTHFS" mount "$M" || exit 1
	DAEMON=$(daemon_pid)
	name=k-${point#ship.}
	{ work "$name" "echo $name >$name"; echo "$ready"; } >"$T/$name.script"
	draft "$name" none pr
	timeout 200 cat "$S/$name/wait/idle" >/dev/null
	echo >"$S/$name/ship"
	check "$point: dies" within 60 is_gone "$DAEMON"
	start || exit 1
	check "$point: it goes on" within 60 grep -q "^landed sandbox-.*/pull/9" "$S/$name/ship"
done
