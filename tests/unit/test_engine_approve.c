/* Approvals: what is asked for, what an answer does, over restarts and stops. */
#include "backend/approve.h"
#include "backend/base/json.h"
#include "face.h"

/* ---- the rules ---- */

static const char *rules(const struct approve_how *how, const char *tool, const char *args)
{
	static struct buf out;
	char *r[APPROVE_RULES_MAX];
	CLEAN_JSON cJSON *o = cJSON_Parse(args);
	size_t n = approve_rules(how, tool, o, r);
	buf_reset(&out);
	for (size_t i = 0; i < n; i++) {
		buf_addf(&out, "%s%s", i ? " | " : "", r[i]);
		free(r[i]);
	}
	return buf_str(&out);
}

TEST(which_calls_are_asked_for)
{
	static const char *const list = "write src/*.c, edit, bash git push, bash rm -rf";
	struct approve_how on = {"vm", true, list, ""}, off = {"vm", false, list, ""};
	CHECK_STR(rules(&on, "read", "{\"path\":\"x\"}"), "");
	CHECK_STR(rules(&on, "write", "{\"path\":\"src/a.c\"}"), "write src/*.c");
	CHECK_STR(rules(&on, "write", "{\"path\":\"/home/u/p/src/a.c\"}"), "write src/*.c");
	CHECK_STR(rules(&on, "write", "{\"path\":\"doc/a.md\"}"), "");
	CHECK_STR(rules(&on, "edit", "{\"path\":\"doc/a.md\"}"), "edit");
	CHECK_STR(rules(&on, "bash", "{\"command\":\"make\"}"), "");
	CHECK_STR(rules(&on, "bash", "{\"command\":\"git push && rm -rf x\"}"), "bash git push | bash rm -rf");
	CHECK_STR(rules(&on, "bash", "{\"command\":\"sh x.sh\"}"), "bash = sh x.sh");
	CHECK_STR(rules(&off, "bash", "{\"command\":\"git push\"}"), "");
}

/* On the user's own machine some things are asked for whatever is set. */
TEST(what_is_always_asked_for_on_the_host)
{
	struct approve_how host = {"host", false, "", "prod *.example.org"}, vm = {"vm", false, "", "prod"};
	CHECK_STR(rules(&host, "bash", "{\"command\":\"env X=1 git -C /x push\"}"), "bash git push");
	CHECK_STR(rules(&host, "bash", "{\"command\":\"sh -c 'git push'\"}"), "bash git push");
	CHECK_STR(rules(&host, "bash", "{\"command\":\"ssh me@prod\"}"), "bash ssh to a listed host");
	CHECK_STR(rules(&host, "bash", "{\"command\":\"ssh elsewhere\"}"), "");
	CHECK_STR(rules(&host, "bash", "{\"command\":\"$x push\"}"), "bash = $x push");
	CHECK_STR(rules(&host, "bash", "{\"command\":\"make test\"}"), "");
	CHECK_STR(rules(&host, "write", "{\"path\":\"x\"}"), "");
	CHECK_STR(rules(&vm, "bash", "{\"command\":\"git push; ssh prod\"}"), "");
}

TEST(values_of_approvals_ask)
{
	struct err err = ERR_INIT;
	CHECK_INT(approve_check_ask("", &err), 0);
	CHECK_INT(approve_check_ask("bash, write src/, edit *.c", &err), 0);
	CHECK_INT(approve_check_ask("git push", &err), -EINVAL);
	CHECK(strstr(err.text, "\"git\" is no tool") != NULL);
}

/* ---- a session ---- */

#define ON(name, script, message) session(name, script, message)

static int64_t session(const char *name, const char *script, const char *message)
{
	CLEAN_FREE char *file = xasprintf("%s.script", name);
	CLEAN_FREE char *path = face_script(file, script);
	CLEAN_FREE char *text = xasprintf("---\nmodel: script:%s\napprovals: on\n---\n%s\n", path, message);
	int64_t id = face_create(name, text);
	CHECK(id > 0);
	return id;
}

static int answer(int64_t id, uint64_t k, const char *text)
{
	struct request *r = face_request(REQ_APPROVE, id, text);
	r->number = k;
	int rc = face_ask(r);
	if (rc)
		face.last_error = r->err;
	request_free(r);
	return rc;
}

static int grant_setting(int64_t id, const char *text)
{
	struct request *r = face_request(REQ_SETTING, id, text);
	r->setting = SETTING_APPROVALS;
	int rc = face_ask(r);
	request_free(r);
	return rc;
}

static const char *home(int64_t id, const char *file)
{
	return sh("cat state/sandboxes/%" PRId64 "/home/%s 2>/dev/null || true", id, file);
}

TEST(a_call_waits_and_runs_once)
{
	int64_t id = ON("once", BASH("echo ran >> ../count") BASH("echo ran >> ../count") SAY("done"), "go");
	CHECK(face_wait(id, "waiting approval 1"));
	CHECK_STR(home(id, "count"), "");
	CHECK(!face.view[id]->idle);
	CHECK(strstr(face.view[id]->approval_text, "    echo ran >> ../count\n") != NULL);
	CHECK(strstr(face.view[id]->approval_text, "Rule: bash\n") != NULL);
	CHECK_INT(answer(id, 1, "maybe"), -EINVAL);
	CHECK_INT(answer(id, 1, "once more"), -EINVAL);
	CHECK_INT(answer(id, 7, "once"), -ESTALE);
	CHECK_INT(answer(id, 1, "once"), 0);
	CHECK_INT(answer(id, 1, "once"), -ESTALE);
	CHECK(face_wait(id, "waiting approval 2")); /* the next one is asked for again */
	CHECK_STR(home(id, "count"), "ran");
	CHECK_INT(answer(id, 2, "once"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(home(id, "count"), "ran\nran");
}

TEST(no_gives_the_model_a_result_with_the_reason)
{
	int64_t id = ON("no", BASH("touch ../made") "{\"show\":true}\n", "go");
	CHECK(face_wait(id, "waiting approval 1"));
	CHECK_INT(answer(id, 1, "no use make instead\n"), 0);
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_ANSWER), "[result] bashnot run: the user has refused it: use make instead") !=
	      NULL);
	CHECK_STR(home(id, "made"), "");
	CHECK(strstr(face_text(id, TEXT_JSONL), "\"error\":true") != NULL);
}

/* Row 19 of what users suffer from: scopes are kept, listed, revocable, and go no further than they say. */
TEST(scopes_are_kept_and_revocable)
{
	face_config("approvals.ask = bash, write\n");
	int64_t id = ON("scope", BASH("true") BASH("true") SAY("a") BASH("true") SAY("b"), "go");
	CHECK(face_wait(id, "waiting approval 1"));
	CHECK_INT(answer(id, 1, "session"), 0);
	CHECK(face_wait_idle(id)); /* the second one ran without */
	CHECK(strstr(face.view[id]->grants, "\tsession\t") && strstr(face.view[id]->grants, "\tbash\n"));
	int64_t other = ON("other", BASH("true") SAY("a") BASH("true") SAY("b") BASH("true") SAY("c"), "go");
	CHECK(face_wait(other, "waiting approval 1")); /* it was for that session alone */
	CHECK_INT(answer(other, 1, "project"), 0);
	CHECK(face_wait_idle(other));
	CHECK(strstr(face.view[id]->grants, "\tproject\t") != NULL); /* all of the project show it */
	face_stop();
	CHECK_INT(face_start(), 0);
	face_drain(100);
	int64_t third = ON("third", BASH("true") SAY("a"), "go");
	CHECK(face_wait_idle(third));
	CHECK_INT(face_do(REQ_MESSAGE, other, "again"), 0);
	CHECK(face_wait_idle(other));
	CHECK_INT(grant_setting(other, "revoke nothing"), -EINVAL);
	CHECK_INT(grant_setting(other, "revoke 999"), -ENOENT);
	CHECK_INT(grant_setting(other, "revoke all"), 0);
	face_drain(100);
	CHECK(!face.view[other]->grants && face.view[id]->grants && !strstr(face.view[id]->grants, "project"));
	CHECK_INT(face_do(REQ_MESSAGE, other, "again"), 0);
	CHECK(face_wait(other, "waiting approval 2"));
	CHECK_INT(grant_setting(id, "revoke all"), 0);
	CHECK_INT(answer(other, 2, "no"), 0);
	CHECK(face_wait_idle(other));
	face_config("");
}

TEST(it_survives_a_restart)
{
	int64_t id = ON("restart", BASH("echo ran >> ../count") SAY("done"), "go");
	CHECK(face_wait(id, "waiting approval 1"));
	face_stop();
	CHECK_INT(face_start(), 0);
	CHECK(face_wait(id, "waiting approval 1"));
	CHECK(strstr(face.view[id]->approval_text, "echo ran") != NULL);
	CHECK_INT(answer(id, 1, "once"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(home(id, "count"), "ran");
}

/* What waits costs no thread. */
TEST(waiting_sessions_do_not_hold_workers)
{
	face_config("workers = 2\n");
	int64_t id[6];
	for (int i = 0; i < 6; i++) {
		CLEAN_FREE char *name = xasprintf("crowd%d", i);
		id[i] = ON(name, BASH("true") SAY("done"), "go");
	}
	for (int i = 0; i < 6; i++)
		CHECK(face_wait(id[i], "waiting approval 1"));
	int64_t free_one = face_session("free", SAY("done"), "go");
	CHECK(face_wait_idle(free_one));
	for (int i = 0; i < 6; i++)
		CHECK_INT(answer(id[i], 1, "once"), 0);
	for (int i = 0; i < 6; i++)
		CHECK(face_wait_idle(id[i]));
	face_config("");
}

TEST(stop_and_destroy_while_it_waits)
{
	int64_t id = ON("stop", BASH("touch ../made") "{\"show\":true}\n", "go");
	CHECK(face_wait(id, "waiting approval 1"));
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(answer(id, 1, "once"), -ESTALE);
	CHECK_STR(home(id, "made"), "");
	CHECK_INT(face_do(REQ_MESSAGE, id, "go on"), 0);
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_ANSWER), "[result] bashstopped by the user") != NULL);
	int64_t gone = ON("gone", BASH("true"), "go");
	CHECK(face_wait(gone, "waiting approval 1"));
	CHECK_INT(face_do(REQ_CTL, gone, "destroy force"), 0);
	CHECK_INT(answer(gone, 1, "once"), -ESHUTDOWN);
}

TEST(several_calls_and_calls_that_never_run)
{
	int64_t id =
		ON("several",
		   "{\"tools\":[{\"name\":\"read\",\"input\":{\"path\":\"a.txt\"}},{\"name\":\"nothing\",\"input\":{}},"
		   "{\"name\":\"write\",\"input\":{\"path\":\"n.txt\",\"content\":\"x\"}},{\"name\":\"bash\",\"input\":"
		   "{\"command\":\"cat n.txt\"}}]}\n" SAY("done"),
		   "go");
	CHECK(face_wait(id, "waiting approval 1"));
	CHECK(strstr(face.view[id]->approval_text, "asks to run write") != NULL);
	CHECK_INT(answer(id, 1, "once"), 0);
	CHECK(face_wait(id, "waiting approval 2"));
	CHECK_INT(answer(id, 2, "once"), 0);
	CHECK(face_wait_idle(id));
}

/* What is allowed is what is seen. */
TEST(nothing_is_hidden_from_who_decides)
{
	int64_t id = ON("hidden", BASH("echo a\\u001b[2K\\rrm -rf x\\u202e; true") SAY("done"), "go");
	CHECK(face_wait(id, "waiting approval 1"));
	const char *t = face.view[id]->approval_text;
	CHECK(!strchr(t, 27) && !strchr(t, '\r') && strstr(t, "\\x1b[2K\\x0drm -rf x\\u202?; true"));
	CHECK_INT(answer(id, 1, "no"), 0);
	CHECK(face_wait_idle(id));
}

FACE_MAIN()
