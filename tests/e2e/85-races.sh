#!/bin/sh
# Others push to the remote while sessions ship: between fetch and push, and in the middle of a push. No commit of either
# side is lost, and nothing is forced. ROUNDS=100: more of it.
. "$(dirname "$0")/../lib.sh"
rounds=${ROUNDS:-12}
git init -q --bare -b main "$T/remote.git"
mkdir "$P/.agents"
# The check runs between fetch and push, the hook when git has seen the remote's refs and not yet sent anything.
printf '{"checks":[{"name":"others","command":"%s/other check"}]}' "$T" >"$P/.agents/project.json"
(cd "$P" && git add . && git commit -qm checks && git remote add origin "$T/remote.git" && git push -q -u origin main) || exit 1
git clone -q "$T/remote.git" "$T/other.clone"
git -C "$T/other.clone" config user.name other
git -C "$T/other.clone" config user.email other@example.org
cat >"$T/other" <<END
#!/bin/sh
[ -e "$T/when.\$1" ] || exit 0
rm "$T/when.\$1"
unset \$(git rev-parse --local-env-vars) # a hook has those of its repository
cd "$T/other.clone" && git pull -q --rebase && date +%N >>theirs && git add theirs && git commit -qm theirs && git push -q 2>&1
END
printf '#!/bin/sh\nexec "%s/other" push >&2\n' "$T" >"$P/.git/hooks/pre-push"
chmod +x "$T/other" "$P/.git/hooks/pre-push"

# ---- round by round, one session
for i in $(seq $((rounds * 3))); do
	printf '{"tools":[{"name":"bash","input":{"command":"git rebase -q refs/berthfs/base; [ -e mine.%s ] || { echo >mine.%s; git add .; git commit -qm mine; }"}}]}\n{"text":"SHIP-READY"}\n' "$i" "$i"
done >"$T/one.script"
sed -i '1i {"text":"ready to go"}' "$T/one.script"
start || exit 1
new() { (cd "$P" && printf -- '---\nmodel: script:%s\n---\ngo\n' "$T/$1.script" >"$S/new/$1"); }
ship() { # NAME [WHEN]: others push then
	timeout 200 cat "$S/$1/wait/idle" >/dev/null
	[ -z "${2:-}" ] || : >"$T/when.$2"
	echo >"$S/$1/ship" && timeout 200 cat "$S/$1/wait/shipped"
}
new one
landed=0 moved=0 odd=
for i in $(seq "$rounds"); do
	when=
	case $((i % 3)) in
	1) when=check ;;
	2) when=push ;;
	esac
	got=$(ship one $when)
	case $((i % 3)):$got in
	0:landed*) landed=$((landed + 1)) ;;
	[12]:"moved: ship again")
		moved=$((moved + 1))
		case $(ship one) in landed*) landed=$((landed + 1)) ;; *) odd="$odd $i:again" ;; esac
		;;
	*) odd="$odd $i:$got" ;;
	esac
done
equal "$rounds rounds: each ends as it must" "$odd" ""
equal "all landed" "$landed" "$rounds"
note "$moved times the remote had moved"
count() { git -C "$T/remote.git" log --format=%s main | grep -c "^$1$"; }
equal "every commit of theirs is there" "$(count theirs)" "$(git -C "$T/other.clone" log --format=%s | grep -c '^theirs$')"
check "and as many as were made" test "$(count theirs)" = "$(git -C "$T/remote.git" show main:theirs | wc -l)" -a "$(count theirs)" = "$moved"
equal "every commit of ours is there" "$(count mine)" "$((rounds + moved))"
equal "in one line" "$(git -C "$T/remote.git" rev-list --merges --count main)" 0

# ---- sessions of one project that ship at once
crowd="a b c d"
for name in $crowd; do
	{
		printf '{"tools":[{"name":"bash","input":{"command":"echo %s >by.%s; git add .; git commit -qm by-%s"}}]}\n{"text":"made"}\n' $name $name $name
		for i in 1 2 3 4 5 6; do printf '{"tools":[{"name":"bash","input":{"command":"git rebase -q refs/berthfs/base"}}]}\n{"text":"SHIP-READY"}\n'; done
	} >"$T/$name.script"
	new $name
done
for name in $crowd; do timeout 200 cat "$S/$name/wait/idle" >/dev/null; done
before=$(git -C "$T/remote.git" rev-parse main)
left=$crowd again=0
while [ -n "$left" ] && [ $again -lt 6 ]; do
	for name in $left; do
		timeout 200 cat "$S/$name/wait/idle" >/dev/null
		echo >"$S/$name/ship"
	done
	next=
	for name in $left; do
		got=$(timeout 200 cat "$S/$name/wait/shipped")
		case $got in
		landed*) ;;
		moved*) next="$next $name" ;;
		*) not_ok "$name: $got" ;;
		esac
	done
	left=$next again=$((again + 1))
done
equal "four sessions at once: all land" "$left" ""
note "after $again tries"
equal "each commit once, one after the other" "$(git -C "$T/remote.git" log --format=%s "$before..main" | sort | tr '\n' ' ')" "by-a by-b by-c by-d "
equal "none is merged" "$(git -C "$T/remote.git" rev-list --merges --count main)" 0
equal "what came before stays" "$(git -C "$T/remote.git" merge-base "$before" main)" "$before"
equal "the checkout is untouched" "$(git -C "$P" status --porcelain; git -C "$P" rev-list --count HEAD)" 2
