#!/bin/sh
# The main job by files alone: a session is made, two messages are held while it is prepared, runs call tools, checks run,
# the work is shipped. Then the remote's head is the session's commit and the user's working tree is as it was.
# KIND=vm: the same in a VM.
. "$(dirname "$0")/../lib.sh"
if [ "${KIND:-dir}" = vm ]; then use_vm; fi

# ---- a project with a remote, a check, and work of the user's that is not committed
git init -q --bare -b main "$T/remote.git"
mkdir "$P/.agents"
echo '{"checks":[{"name":"has-b","command":"test -f b.txt && echo fine"},{"name":"quick","command":"true","timeout":20}]}' \
	>"$P/.agents/project.json"
(
	cd "$P" && git add . && git commit -qm checks && git remote add origin ../remote.git && git push -q -u origin main
	echo "not committed" >>a.txt
	echo "not tracked" >untracked.txt
	echo "staged" >staged.txt && git add staged.txt
) || exit 1
picture() { (cd "$P" && git rev-parse HEAD && git symbolic-ref HEAD && git status --porcelain && git ls-files -s && cat ./*.txt); }
before=$(picture)

cat >"$T/main.script" <<'END'
{"text":"first look","tools":[{"name":"read","input":{"path":"a.txt"}},{"name":"bash","input":{"command":"git remote; git config user.email; ls"}}]}
{"text":"one: it says hello"}
{"tools":[{"name":"write","input":{"path":"b.txt","content":"made\n"}},{"name":"bash","input":{"command":"git add b.txt && git commit -qm 'add b' && echo committed"}}]}
{"text":"two: b is there\n\n```plan\n- [x] look\n- [>] make b\n- [ ] ship\n```\n"}
{"text":"three: nothing to do\n\n```plan\n- [x] look\n- [x] make b\n- [ ] ship\n```\n\n```result\nquestion: Ship it?\n- yes: push to main\n- no: wait\n```\n"}
{"text":"rebasing","tools":[{"name":"bash","input":{"command":"git rebase -q refs/berthfs/base && git log --format=%s -n 3"}}]}
{"text":"rebased\n\nSHIP-READY\n"}
{"text":"four: after the ship"}
END

# The host's git, held before it packs the project's history until $T/go is there, and before it pushes: a preparation and a
# ship as long as the test wants them.
mkdir "$T/bin"
cat >"$T/bin/git" <<END
#!/bin/sh
case " \$* " in
*" pack-objects "*) while [ ! -e $T/go ]; do sleep 0.05; done ;;
*" push "*) while [ ! -e $T/go-push ]; do sleep 0.05; done ;;
esac
PATH=$PATH exec git "\$@"
END
chmod +x "$T/bin/git"

s=$S/fix-b
(PATH=$T/bin:$PATH && start) || exit 1
DAEMON=$(daemon_pid)

# ---- create
(cd "$P" && printf -- '---\nmodel: script:%s\n---\nLook at a.txt.\n' "$T/main.script" >"$S/new/fix-b")
check "the session is there at once" test -d "$s"
equal "id" "$(cat "$s/id")" 1
contains "it is being prepared" "$(cat "$s/status")" preparing
equal "project" "$(cat "$s/project")" "$P"
equal "branch" "$(cat "$s/branch")" sandbox/1
contains "index" "$(cat "$M/index")" "1	fix-b	preparing"

# ---- two messages are held, one more is taken back
echo "Make b.txt." >>"$s/input"
printf 'Anything else?\nTell me.\n' >>"$s/input"
echo "never mind" >>"$s/input"
equal "all wait in the queue" "$(cut -f1,3 "$s/queue")" "1	Look at a.txt.
2	Make b.txt.
3	Anything else?
4	never mind"
echo "withdraw 4" >"$s/ctl"
equal "one is taken back" "$(cut -f1 "$s/queue" | tr '\n' ' ')" "1 2 3 "
equal "and not twice" "$(errno_of sh -c "echo withdraw 4 | dd of=$s/ctl conv=notrunc")" EBUSY
contains "held messages are not idle" "$(timeout 0.3 cat "$s/wait/idle" 2>&1; echo "code $?")" "code 124"
contains "still preparing" "$(cat "$s/status")" preparing
: >"$T/go"
equal "it becomes idle" "$(timeout 200 cat "$s/wait/idle")" asking

# ---- the runs
texts() { python3 -c 'import json,sys
for line in open(sys.argv[1]):
    e = json.loads(line)
    print(e["kind"], e.get("name") or e.get("text", "").split("\n")[0] or "-")' "$s/transcript.jsonl"; }
texts >"$T/texts"
equal "each message has a run of its own, in order" "$(cat "$T/texts")" "user Look at a.txt.
assistant first look
tool_call read
tool_call bash
tool_result read
tool_result bash
assistant one: it says hello
user Make b.txt.
assistant -
tool_call write
tool_call bash
tool_result write
tool_result bash
assistant two: b is there
user Anything else?
assistant three: nothing to do"
equal "entries are numbered without a gap" \
	"$(python3 -c 'import json,sys; print([json.loads(l)["seq"] for l in sys.stdin] == list(range(1, 17)))' <"$s/transcript.jsonl")" True
contains "tools saw what is committed and no more" "$(cat "$s/transcript")" "hello"
case $(cat "$s/transcript") in *"not committed"* | *untracked* | *staged*) not_ok "uncommitted work stays out" ;; *) ok "uncommitted work stays out" ;; esac
contains "log says so" "$(cat "$s/log")" "commit"
contains "the clone has the user's name" "$(cat "$s/transcript")" tester@example.org
equal "the queue is empty" "$(cat "$s/queue")" ""
equal "it asks" "$(cat "$s/status")" asking
equal "the answer" "$(cat "$s/wait/reply" | head -n 1)" "three: nothing to do"
equal "the newest plan" "$(cat "$s/plan")" "- [x] look
- [x] make b
- [ ] ship"
equal "the question" "$(cat "$s/question")" "question: Ship it?
1. yes: push to main
2. no: wait"

# ---- checks, diff, branch
commit=$(git -C "$P" rev-parse sandbox/1)
check "checks pass" grep -q "^pass	.*	has-b	$(printf %.12s "$commit")" "$s/checks"
check "all of them" grep -q "^pass	.*	quick	" "$s/checks"
contains "diff" "$(cat "$s/diff")" "+made"
contains "changes" "$(cat "$s/changes")" "b.txt"
contains "commits" "$(cat "$s/commits")" "add b"
equal "base" "$(cat "$s/base")" "main $(git -C "$P" rev-parse main)"
equal "the work is on its branch" "$(git -C "$P" show sandbox/1:b.txt)" made
equal "the user's tree is as it was" "$(picture)" "$before"

# ---- somebody else pushes meanwhile; then ship
git clone -q "$T/remote.git" "$T/other"
(cd "$T/other" && echo theirs >c.txt && git add . && git commit -qm "add c" && git push -q)
theirs=$(git -C "$T/remote.git" rev-parse main)
equal "ship before" "$(cat "$s/ship")" none
echo >"$s/ship"
equal "ship while shipping: EBUSY" "$(errno_of sh -c "echo main | dd of=$s/ship conv=notrunc")" EBUSY
: >"$T/go-push"
equal "the wait for it ends with the outcome" "$(timeout 200 cat "$s/wait/shipped")" "$(cat "$s/ship")"
head=$(git -C "$T/remote.git" rev-parse main)
equal "landed" "$(cat "$s/ship")" "landed main $head"
equal "the remote's head is the session's commit" "$head" "$(git -C "$P" rev-parse sandbox/1)"
equal "on top of what the other pushed" "$(git -C "$T/remote.git" rev-parse main~1)" "$theirs"
equal "with the user as author" "$(git -C "$T/remote.git" log -1 --format='%an <%ae>' main)" "tester <tester@example.org>"
timeout 200 cat "$s/wait/idle" >/dev/null
equal "diff is now against the landed base" "$(cat "$s/diff")" ""
equal "the user's tree is still as it was" "$(picture)" "$before"
equal "nor has a branch but its own changed" "$(git -C "$P" for-each-ref --format='%(refname)' refs/heads | tr '\n' ' ')" \
	"refs/heads/main refs/heads/sandbox/1 "

# ---- it goes on, and ends
echo "And now?" >>"$s/input"
equal "it goes on after a ship" "$(timeout 200 cat "$s/wait/reply")" "four: after the ship"
timeout 200 cat "$s/wait/idle" >/dev/null
contains "events tell it all" "$(cut -f3,4 "$M/events" | tr '\t\n' ' \n')" "ship"
check "rmdir ends it" rmdir "$s"
equal "sessions is empty" "$(ls "$S")" new
contains "its transcript can be shown" "$("$BERTHFS" show fix-b)" "four: after the ship"
equal "its work stays on its branch" "$(git -C "$P" rev-parse sandbox/1)" "$head"
no_sandbox() { [ -z "$(sandbox_pids)" ]; }
check "its sandbox is gone" within 20 no_sandbox
check "and its disk" within 20 sh -c "[ -z \"\$(ls $T/state/berthfs/sandboxes)\" ]"
check "unmount" stop
check "nothing is mounted" sh -c "! grep -q ' $M ' /proc/self/mountinfo"
