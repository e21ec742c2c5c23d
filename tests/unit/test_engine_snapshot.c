/* Snapshots, going back to one, and sessions that begin as another: disk, branch and what the model is told. */
#include "face.h"

static int64_t begin_as(const char *name, const char *from, const char *script, const char *message)
{
	CLEAN_FREE char *file = xasprintf("%s.script", name);
	CLEAN_FREE char *path = face_script(file, script);
	CLEAN_FREE char *text = xasprintf("---\nfrom: %s\nmodel: script:%s\n---\n%s\n", from, path, message);
	int64_t id = face_create(name, text);
	if (!id)
		printf("# refused: %s\n", face.last_error.text);
	CHECK(id > 0);
	return id;
}

static const char *branch(int64_t id)
{
	return sh("cd project && git rev-parse -q --verify sandbox/%" PRId64 " || true", id);
}

static void ctl(int64_t id, const char *line)
{
	CHECK_INT(face_do(REQ_CTL, id, line), 0);
	CHECK(face_wait_idle(id));
}

#define COMMIT(n) BASH("echo " n " > n && echo loose" n " > loose && git add n && git commit -qm c" n)

TEST(back_to_a_snapshot)
{
	int64_t id = face_session(
		"back", COMMIT("1") SAY("ALPHA") COMMIT("2") SAY("BRAVO") BASH("cat n loose") SHOW SHOW, "one");
	CHECK(face_wait_idle(id));
	const char *first = branch(id);
	ctl(id, "snapshot");
	CHECK(strstr(face_text(id, TEXT_LOG), "snapshot 1: ") != NULL);
	face_say(id, "two");
	const char *second = branch(id);
	CHECK(strcmp(first, second) != 0);
	ctl(id, "restore 1");
	const char *now = branch(id);
	CHECK_STR(now, first);
	CHECK_STR(face_text(id, TEXT_ANSWER), "ALPHA\n");
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "BRAVO") != NULL); /* what was read once stays */
	CHECK(strstr(face_text(id, TEXT_DIFF), "+1") && !strstr(face_text(id, TEXT_DIFF), "+2"));
	const char *sent = face_say(id, "three");
	CHECK(strstr(sent, "ALPHA") && strstr(sent, "[user] three") && strstr(sent, "1\nloose1"));
	CHECK(!strstr(sent, "BRAVO") && !strstr(sent, "[user] two"));
	/* and back to what was before the restore */
	ctl(id, "restore 2");
	now = branch(id);
	CHECK_STR(now, second);
	sent = face_say(id, "four");
	CHECK(strstr(sent, "ALPHA") && strstr(sent, "BRAVO") && strstr(sent, "[user] two") &&
	      strstr(sent, "[user] four"));
	CHECK(!strstr(sent, "[user] three"));
}

TEST(work_goes_on_after_a_restore)
{
	int64_t id = face_session("on", COMMIT("1") SAY("A") COMMIT("2") SAY("B") COMMIT("3") SAY("C"), "one");
	CHECK(face_wait_idle(id));
	ctl(id, "snapshot");
	face_say(id, "two");
	ctl(id, "restore 1");
	CHECK_STR(face_say(id, "three"), "C\n");
	CHECK(!face.view[id]->failed);
	CHECK_STR(sh("cd project && git log --format=%%s sandbox/%" PRId64, id), "c3\nc1\nfirst");
}

TEST(a_restore_outlives_the_daemon)
{
	int64_t id = face_session("outlive", SAY("ALPHA") SAY("BRAVO") SHOW, "one");
	CHECK(face_wait_idle(id));
	ctl(id, "snapshot");
	face_say(id, "two");
	ctl(id, "restore 1");
	face_stop();
	CHECK_INT(face_start(), 0);
	face_drain(100);
	const char *sent = face_say(id, "three");
	CHECK(strstr(sent, "ALPHA") && !strstr(sent, "BRAVO"));
}

TEST(what_cannot_be_restored_says_so)
{
	int64_t id = face_session("bad", SAY("x"), "one");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "restore 1"), -ENOENT);
	CHECK(strstr(face.last_error.text, "write `snapshot` to ctl") != NULL);
	CHECK_INT(face_do(REQ_CTL, id, "restore"), -EINVAL);
	CHECK_INT(face_do(REQ_CTL, id, "restore 1x"), -EINVAL);
	CHECK_INT(face_do(REQ_CTL, id, "snapshot 1"), -EINVAL);
	ctl(id, "snapshot");
	CHECK_INT(face_do(REQ_CTL, id, "restore 2"), -ENOENT);
	ctl(id, "restore 1");
}

/* A branch that somebody else has moved is left alone, and so is the disk. */
TEST(a_moved_branch_is_not_taken_back)
{
	int64_t id = face_session("moved", COMMIT("1") SAY("A") COMMIT("2") SAY("B") BASH("cat n") SHOW, "one");
	CHECK(face_wait_idle(id));
	ctl(id, "snapshot");
	face_say(id, "two");
	sh("cd project && git update-ref refs/heads/sandbox/%" PRId64 " $(git commit-tree -m mine HEAD^{tree})", id);
	const char *mine = branch(id);
	ctl(id, "restore 1");
	const char *now = branch(id);
	CHECK_STR(now, mine);
	CHECK(strstr(face_text(id, TEXT_LOG), "not restored: ") != NULL);
	const char *sent = face_say(id, "three");
	CHECK(strstr(sent, "bash2\n") && strstr(sent, "[user] two"));
}

TEST(compaction_looks_at_what_is_told)
{
	int64_t id = face_session("room", SAY("ALPHA") SAY("BRAVO") SAY("SUM") SHOW SHOW, "one");
	CHECK(face_wait_idle(id));
	ctl(id, "snapshot");
	face_say(id, "two");
	ctl(id, "compact");
	const char *sent = face_say(id, "three");
	CHECK(strstr(sent, "SUM") != NULL);
	ctl(id, "restore 1");
	sent = face_say(id, "four");
	CHECK(strstr(sent, "ALPHA") && !strstr(sent, "SUM") && !strstr(sent, "BRAVO"));
}

TEST(a_session_begins_as_another)
{
	int64_t id = face_session("origin", COMMIT("1") SAY("ALPHA") COMMIT("2") SAY("x"), "one");
	CHECK(face_wait_idle(id));
	int64_t two = begin_as("copy", "origin", BASH("cat n loose; pwd") SHOW COMMIT("9") SAY("done"), "again");
	CHECK(face_wait_idle(two));
	const char *first = branch(id), *copy = branch(two);
	CHECK_STR(first, copy);
	const char *sent = face_text(two, TEXT_ANSWER);
	CHECK(strstr(sent, "[user] one") && strstr(sent, "ALPHA") && strstr(sent, "[user] again"));
	CHECK(strstr(sent, "1\nloose1\n") != NULL);
	CHECK(strstr(face_text(two, TEXT_TRANSCRIPT), "this session began as origin") != NULL);
	CHECK(strstr(face_text(two, TEXT_TRANSCRIPT), "## user, message 2") != NULL);
	CHECK(strstr(face_text(two, TEXT_DIFF), "+1") != NULL);
	/* they go apart */
	face_say(two, "more");
	face_say(id, "more");
	const char *log = sh("cd project && git log --format=%%s --all");
	CHECK(strstr(log, "c9") && strstr(log, "c2"));
	CHECK_STR(face_text(id, TEXT_ANSWER), "x\n");
	CHECK(!strstr(face_text(id, TEXT_DIFF), "+9") && !strstr(face_text(two, TEXT_DIFF), "+2"));
	CHECK_INT(face_do(REQ_CTL, id, "destroy"), 0);
	CHECK_STR(face_say(two, "still there?"), "(script ended)\n");
}

TEST(from_an_id_and_while_it_runs)
{
	int64_t id = face_session("busy", SAY("ALPHA") BASH("echo half > half; sleep 3; echo whole > half") SAY("end"),
				  "one");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_MESSAGE, id, "go"), 0);
	CHECK(face_wait(id, "running bash"));
	CLEAN_FREE char *number = xasprintf("%" PRId64, id);
	int64_t two = begin_as("fork", number, SHOW, "what is this?");
	CHECK(face_wait_idle(two));
	const char *sent = face_text(two, TEXT_ANSWER);
	CHECK(strstr(sent, "[user] go") && strstr(sent, "[call] ") && strstr(sent, "[result] ")); /* repaired */
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_ANSWER), "end\n");
}

TEST(what_cannot_begin_says_so)
{
	int64_t id = face_session("kinds", SAY("x"), "one");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_create("a", "---\nfrom: nobody\n---\nhi\n"), 0);
	CHECK(strstr(face.last_error.text, "there is no session nobody") != NULL);
	CHECK_INT(face_create("a", "---\nfrom: kinds\nsandbox: vm\n---\nhi\n"), 0);
	CHECK(strstr(face.last_error.text, "leave the line out") != NULL);
	CHECK_INT(face_create("a", "---\nfrom: kinds\nsize: large\n---\nhi\n"), 0);
	sh("git init -q other && cd other && git commit -q --allow-empty -m x");
	CLEAN_FREE char *other = at("other");
	CLEAN_FREE char *draft = xasprintf("---\nfrom: kinds\nproject: %s\n---\nhi\n", other);
	CHECK_INT(face_create("a", draft), 0);
	CHECK(strstr(face.last_error.text, "project: kinds belongs to ") != NULL);
	CHECK_INT(face_do(REQ_CTL, id, "destroy force"), 0);
	CHECK_INT(face_create("a", "---\nfrom: kinds\n---\nhi\n"), 0);
}

FACE_MAIN()
