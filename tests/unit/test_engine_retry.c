/* Failed model requests: what is tried again, when, for how long, also over restarts. */
#include "face.h"

static int64_t seconds_left(int64_t id)
{
	long long s = -1;
	return sscanf(face_value(id, VALUE_STATUS), "retrying in %lld s", &s) == 1 ? s : -1;
}

TEST(retry_after_is_obeyed_and_shown)
{
	int64_t id = face_session("after",
				  "{\"error\":429,\"retry_after\":100,\"message\":\"slow down\"}\n" SAY("fine"), "go");
	CHECK(face_wait(id, "retrying in"));
	CHECK(seconds_left(id) > 90 && seconds_left(id) <= 100);
	CHECK(strstr(face_value(id, VALUE_STATUS), "slow down") != NULL);
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_ANSWER), "fine\n");
}

TEST(a_short_wait_ends_by_itself)
{
	int64_t from = clock_mono_ms();
	int64_t id = face_session("short", "{\"error\":503}\n" SAY("fine"), "go");
	CHECK(face_wait_idle(id));
	CHECK(clock_mono_ms() - from >= 1000);
	CHECK_STR(face_text(id, TEXT_ANSWER), "fine\n");
}

TEST(what_is_never_tried_again)
{
	static const char *const lines[] = {
		"{\"error\":400}\n",
		"{\"error\":401}\n",
		"{\"error\":429,\"code\":\"insufficient_quota\"}\n",
		"{\"error\":429,\"code\":\"enforced_spend_limit_reached\",\"should_retry\":true}\n",
		"{\"error\":529,\"should_retry\":false}\n",
		"{\"error\":413}\n"};
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		CLEAN_FREE char *name = xasprintf("never%zu", i);
		CLEAN_FREE char *script = xasprintf("%s" SAY("fine"), lines[i]);
		int64_t id = face_session(name, script, "go");
		CHECK(face_wait(id, "failed: "));
		CHECK_INT(face_do(REQ_CTL, id, "retry"), 0); /* a person may */
		CHECK(face_wait_idle(id));
		CHECK_STR(face_text(id, TEXT_ANSWER), "fine\n");
	}
}

TEST(should_retry_is_obeyed)
{
	int64_t id =
		face_session("should", "{\"error\":418,\"should_retry\":true,\"retry_after\":50}\n" SAY("fine"), "go");
	CHECK(face_wait(id, "retrying in"));
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id));
}

TEST(wall_time_is_a_limit_and_survives_a_restart)
{
	face_config("retry.limit = 5 s\n");
	int64_t id = face_session(
		"limit", "{\"error\":529}\n{\"error\":529}\n{\"error\":529}\n{\"error\":529}\n" SAY("fine"), "go");
	CHECK(face_wait(id, "retrying in"));
	face_stop();
	CHECK_INT(face_start(), 0);
	CHECK(face_wait(id, "failed: given up: retry.limit"));
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0); /* begins anew */
	CHECK(face_wait(id, "retrying in"));
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	int64_t far = face_session("far", "{\"error\":529,\"retry_after\":60}\n" SAY("fine"), "go");
	CHECK(face_wait(far, "failed: the server asks for a longer wait"));
	face_config("");
}

/* The clock was set back while no daemon ran: what was due in a minute is not due in years. */
TEST(a_wait_is_bounded_whatever_the_clock_says)
{
	face_config("retry.limit = 300 s\n");
	int64_t id = face_session("clock", "{\"error\":529,\"retry_after\":100}\n" SAY("fine"), "go");
	CHECK(face_wait(id, "retrying in"));
	face_stop();
	sh("command -v sqlite3 >/dev/null && sqlite3 state/berthfs.db 'UPDATE sessions SET "
	   "retry_ms=retry_ms+315360000000 "
	   "WHERE id=%" PRId64
	   "' || python3 -c \"import sqlite3; d=sqlite3.connect('state/berthfs.db'); d.execute('UPDATE "
	   "sessions SET retry_ms=retry_ms+315360000000 WHERE id=%" PRId64 "'); d.commit()\"",
	   id, id);
	CHECK_INT(face_start(), 0);
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS;
	     (seconds_left(id) < 0 || seconds_left(id) > 300) && clock_mono_ms() < end;)
		face_drain(50);
	CHECK(seconds_left(id) > 200 && seconds_left(id) <= 300);
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id));
	face_config("");
}

TEST(a_wait_survives_a_restart)
{
	int64_t id = face_session("durable", "{\"error\":529,\"retry_after\":100}\n" SAY("fine"), "go");
	CHECK(face_wait(id, "retrying in"));
	face_stop();
	CHECK_INT(face_start(), 0);
	CHECK(face_wait(id, "retrying in"));
	CHECK(seconds_left(id) > 80);
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_MESSAGE, id, "again"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_ANSWER), "fine\n");
}

FACE_MAIN()
