/* The daemon's side of the gateway: the engine's tokens, over all that may die. */
#include "backend/db.h"
#include "backend/gate_link.h"
#include "face.h"

static struct session *load(int64_t id)
{
	struct db *db = NULL;
	struct session *s = NULL;
	CLEAN_FREE char *path = at("state/berthfs.db");
	CHECK_INT(db_open(path, false, &db, NULL), 0);
	CHECK_INT(session_load(db, id, &s, NULL), 0);
	db_close(db);
	return s;
}

static int token_of(int64_t id, char token[GATE_TOKEN], struct err *err)
{
	CLEAN_FREE char *socket = NULL;
	struct session *s = load(id);
	int rc = gate_token(face.b, s, NULL, &socket, token, err);
	if (!rc)
		CHECK(strstr(socket, "gateway.sock") != NULL);
	session_free(s);
	return rc;
}

/* How many tokens of that kind the gateway has for the session. */
static int count(int64_t id, const char *kind)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	CLEAN_FREE char *row = xasprintf("%" PRId64 "\t%s\t", id, kind);
	int n = 0;
	if (gateway_tokens(&face.paths, &out, NULL))
		return -1;
	for (const char *p = buf_str(&out); (p = strstr(p, row)); p++)
		n += p == out.p || p[-1] == '\n';
	return n;
}

static bool soon(int64_t id, const char *kind, int want)
{
	for (int64_t end = clock_mono_ms() + 60000; clock_mono_ms() < end; face_drain(10))
		if (count(id, kind) == want)
			return true;
	return false;
}

static int gateway_pid(void)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	int pid = 0;
	if (!gateway_status(&face.paths, &out, NULL))
		sscanf(buf_str(&out), "pid %d", &pid);
	return pid;
}

static void kill_gateway(void)
{
	int pid = gateway_pid();
	CHECK(pid > 0);
	kill(pid, SIGKILL);
	while (!kill(pid, 0)) /* it is nobody's child here: init reaps it */
		clock_sleep_ms(2);
}

static const char *state(void)
{
	return face.root && face.root->gateway ? face.root->gateway->state : "";
}

static bool shows(const char *words)
{
	for (int64_t end = clock_mono_ms() + 60000; clock_mono_ms() < end; face_drain(20))
		if (strstr(state(), words))
			return true;
	printf("# it is: %s\n", state());
	return false;
}

TEST(a_token_lasts_as_long_as_its_session)
{
	char one[GATE_TOKEN], two[GATE_TOKEN], again[GATE_TOKEN];
	struct err err = ERR_INIT;
	int64_t a = face_session("a", SAY("x"), "go"), b = face_session("b", SAY("x"), "go");
	CHECK(face_wait_idle(a) && face_wait_idle(b));
	CHECK_INT(token_of(a, one, &err), 0);
	CHECK_INT(token_of(b, two, &err), 0);
	CHECK(strcmp(one, two) && !strncmp(one, "berth-", 6));
	CHECK_INT(token_of(a, again, &err), 0);
	CHECK_STR(again, one);
	CHECK_INT(count(a, "engine"), 1);
	CHECK(soon(a, "sandbox", 1)); /* its sandbox has one, too */

	kill_gateway(); /* whoever needs it meanwhile waits for the next one */
	CHECK_INT(token_of(a, again, &err), 0);
	CHECK_STR(again, one);
	CHECK(soon(a, "engine", 1)); /* it may be given before its end is noticed */

	gate_token_forget(face.b, a);
	CHECK_INT(token_of(a, again, &err), 0);
	CHECK(strcmp(again, one) != 0);
	CHECK_INT(count(a, "engine"), 1);

	CHECK_INT(face_do(REQ_CTL, b, "destroy force"), 0);
	CHECK(soon(b, "engine", 0) && soon(b, "sandbox", 0));
	CHECK_INT(count(a, "engine"), 1);
}

TEST(one_that_was_made_for_nobody_is_taken_back)
{
	char text[GATE_TOKEN];
	CLEAN_FREE char *socket = at("run/other.sock");
	CHECK_INT(gateway_token_mint(&face.paths, "engine", "999", "p", "none", NULL, text, sizeof text, NULL), 0);
	CHECK_INT(gateway_token_mint(&face.paths, "sandbox", "998", "p", "none", socket, text, sizeof text, NULL), 0);
	CHECK(soon(999, "engine", 0) && soon(998, "sandbox", 0));
}

TEST(a_new_daemon_takes_the_gateway_over)
{
	char one[GATE_TOKEN], two[GATE_TOKEN];
	struct err err = ERR_INIT;
	int64_t id = face_session("over", SAY("x"), "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(token_of(id, one, &err), 0);
	int pid = gateway_pid();
	face_stop(); /* the sandboxes are up: it stays */
	CHECK_INT(gateway_pid(), pid);
	CHECK_INT(face_start(), 0);
	CHECK_INT(token_of(id, two, &err), 0);
	CHECK_INT(gateway_pid(), pid);
	CHECK(strcmp(one, two) != 0); /* the engine's is in memory only */
	CHECK_INT(count(id, "engine"), 1);
	CHECK_INT(count(id, "sandbox"), 1);
}

TEST(a_gateway_that_lost_everything)
{
	char one[GATE_TOKEN], two[GATE_TOKEN];
	struct err err = ERR_INIT;
	int64_t id = face_session("lost", SAY("x"), "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(token_of(id, one, &err), 0);
	int pid = gateway_pid();
	kill(pid, SIGSTOP); /* so that none comes up before its folder is gone */
	sh("rm -rf state/gateway");
	kill(pid, SIGKILL);
	CHECK(shows("starting") || shows("running"));
	CHECK(shows("running"));
	CHECK_INT(token_of(id, two, &err), 0);
	CHECK(strcmp(one, two) != 0);
	CHECK_INT(count(id, "engine"), 1);
}

TEST(a_gateway_whose_sockets_are_gone)
{
	char text[GATE_TOKEN];
	struct err err = ERR_INIT;
	int64_t id = face_session("sockets", SAY("x"), "go");
	CHECK(face_wait_idle(id));
	int pid = gateway_pid();
	sh("rm run/gateway*");
	gate_kick(face.b);
	for (int64_t end = clock_mono_ms() + 60000; (gateway_pid() == pid || !gateway_pid()) && clock_mono_ms() < end;)
		face_drain(50);
	CHECK(gateway_pid() > 0 && gateway_pid() != pid);
	CHECK_INT(token_of(id, text, &err), 0);
	CHECK(soon(id, "sandbox", 1));
}

TEST(a_gateway_that_cannot_run)
{
	char text[GATE_TOKEN];
	struct err err = ERR_INIT;
	int64_t id = face_session("down", SAY("x") SAY("y"), "go");
	CHECK(face_wait_idle(id));
	sh("echo sk-0123456789 > state/gateway/keys/open && chmod 644 state/gateway/keys/open");
	kill_gateway();
	CHECK(shows("down: "));
	CHECK(strstr(state(), "chmod 600") != NULL);
	int64_t from = clock_mono_ms();
	CHECK_INT(token_of(id, text, &err), -EAGAIN);
	CHECK(strstr(err.text, "chmod 600") != NULL);
	CHECK(clock_mono_ms() - from < 8000); /* it is known to be down: nobody waits 10 s for it */
	CHECK_INT(face_do(REQ_MESSAGE, id, "what needs none works"), 0);
	CHECK(face_wait_idle(id));
	sh("rm state/gateway/keys/open");
	CHECK(shows("running"));
	CHECK_INT(token_of(id, text, &err), 0);
}

TEST(it_ends_with_the_daemon)
{
	int pid = gateway_pid();
	CHECK(pid > 0);
	face_end();
	for (int64_t end = clock_mono_ms() + 60000; !kill(pid, 0) && clock_mono_ms() < end;)
		clock_sleep_ms(10);
	CHECK(kill(pid, 0) && errno == ESRCH);
	CHECK(!gateway_running(&face.paths));
	CHECK_INT(face_start(), 0);
}

static int with_gateway(void)
{
	face.gateway = true;
	return 0;
}

int main(int argc, char **argv)
{
	return face_main(argc, argv, with_gateway);
}
