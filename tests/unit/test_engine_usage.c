/* What a session has used: by model and by tool, failed and aborted attempts too. */
#include "face.h"

#define U(in, out, cached) ",\"usage\":{\"in\":" #in ",\"out\":" #out ",\"cached\":" #cached "}"

static void same(int64_t id, const char *want)
{
	const char *got = face_text(id, TEXT_USAGE);
	CHECK_STR(got, want);
	CHECK_INT(face.view[id]->text[TEXT_USAGE].size, strlen(got));
}

TEST(every_attempt_counts)
{
	int64_t id = face_session("usage",
				  "{\"error\":503" U(100, 0, 0) "}\n{\"text\":\"cut\",\"cut\":true" U(
					  200, 5, 50) "}\n"
						      "{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"true\"}}"
						      ",{\"name\":\"bash\",\"input\":{\"command\":\"false\"}},"
						      "{\"name\":\"no\\tsuch\",\"input\":{}}]" U(
							      300, 20, 200) "}\n"
									    "{\"text\":\"done\"" U(400, 30, 300) "}\n",
				  "go");
	CHECK(face_wait_idle(id));
	CLEAN_FREE char *file = at("usage.script");
	CLEAN_FREE char *want = xasprintf("4\t1000\t55\t550\t-\tscript:%s\t2\t0\n2\t-\t-\t-\t-\ttool "
					  "bash\t1\t0\n1\t-\t-\t-\t-\ttool no such\t1\t0\n",
					  file);
	same(id, want);
	int64_t other = face_session("other", SAY("x"), "go");
	CHECK(face_wait_idle(other));
	CLEAN_FREE char *file2 = at("other.script");
	CLEAN_FREE char *want2 = xasprintf("1\t0\t0\t0\t0.000000\tscript:%s\t0\t0\n", file2);
	same(other, want2);
	face_stop();
	CHECK_INT(face_start(), 0);
	face_drain(100);
	same(id, want);
}

TEST(cost_by_the_price_of_the_time)
{
	CLEAN_FREE char *file = at("priced.script");
	CLEAN_FREE char *config = xasprintf("price.script:%s = 3 15 0.3\nprice.other = 1 2\n", file);
	face_config(config);
	int64_t id = face_session(
		"priced", "{\"text\":\"one\"" U(1000000, 100000, 500000) "}\n{\"text\":\"two\"" U(1000000, 0, 0) "}\n",
		"go");
	CHECK(face_wait_idle(id));
	CLEAN_FREE char *want = xasprintf("1\t1000000\t100000\t500000\t3.150000\tscript:%s\t0\t0\n", file);
	same(id, want);
	CLEAN_FREE char *dearer = xasprintf("price.script:%s = 10 0\n", file);
	face_config(dearer);
	CHECK_INT(face_do(REQ_MESSAGE, id, "more"), 0);
	CHECK(face_wait_idle(id));
	CLEAN_FREE char *sum = xasprintf("2\t2000000\t100000\t500000\t13.150000\tscript:%s\t0\t0\n", file);
	same(id, sum);
	CHECK_INT(face_do(REQ_CONFIG_LINE, 0, "price.x = many"), -EINVAL);
	CHECK_INT(face_do(REQ_CONFIG_LINE, 0, "price.x = 1"), -EINVAL);
	CHECK_INT(face_do(REQ_CONFIG_LINE, 0, "price.x = 1 -2"), -EINVAL);
	CHECK_INT(face_do(REQ_CONFIG_LINE, 0, "price. = 1 2"), -EINVAL);
	face_config("");
}

TEST(what_was_stopped_is_aborted)
{
	int64_t id =
		face_session("stopped", BASH("sleep 100") "{\"text\":\"slow\",\"delay_ms\":100000}\n" SAY("end"), "go");
	CLEAN_FREE char *file = at("stopped.script");
	CHECK(face_wait(id, "running bash"));
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_MESSAGE, id, "next"), 0);
	while (!face.view[id]->live || face.view[id]->live->run != 2) /* its request is pinned */
		face_drain(100);
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CLEAN_FREE char *want =
		xasprintf("2\t0\t0\t0\t0.000000\tscript:%s\t0\t1\n1\t-\t-\t-\t-\ttool bash\t0\t1\n", file);
	same(id, want);
}

FACE_MAIN()
