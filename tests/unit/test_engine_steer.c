/* Messages during a run: when the model sees them, their order, taking one back, two writers at once. */
#include <pthread.h>

#include "backend/base/json.h"
#include "backend/context.h"
#include "face.h"

static const char *of(int64_t id)
{
	return face_text(id, TEXT_TRANSCRIPT);
}

/* True if the texts stand in this order. */
static bool in_order(const char *t, const char *const *parts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *p = strstr(t, parts[i]);
		if (!p) {
			printf("# %s does not follow in\n%s\n", parts[i], t);
			return false;
		}
		t = p + strlen(parts[i]);
	}
	return true;
}

static void go_on(void)
{
	CLEAN_FREE char *path = at("go");
	CHECK_INT(file_write(path, "", 0, 0600, NULL), 0);
}

/* A command that runs until go_on(). */
static char *waiting_script(const char *rest)
{
	CLEAN_FREE char *go = at("go");
	unlink(go);
	return xasprintf("{\"text\":\"first\",\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"while [ ! -e %s "
			 "]; do sleep 0.02; done; echo waited\"}},"
			 "{\"name\":\"bash\",\"input\":{\"command\":\"echo second call\"}}]}\n%s",
			 go, rest);
}

TEST(messages_during_a_run_come_after_the_current_results)
{
	CLEAN_FREE char *script = waiting_script(SAY("answer"));
	int64_t id = face_session("steer", script, "begin");
	CHECK(face_wait(id, "running bash"));
	CHECK_INT(face_do(REQ_MESSAGE, id, "steer one"), 0);
	CHECK_INT(face_do(REQ_MESSAGE, id, "steer two"), 0);
	CHECK(strstr(face_text(id, TEXT_QUEUE), "steer one") && strstr(face_text(id, TEXT_QUEUE), "steer two"));
	go_on();
	CHECK(face_wait_idle(id));
	static const char *const parts[] = {"begin",	 "first",     "waited", "second call",
					    "steer one", "steer two", "answer"};
	CHECK(in_order(of(id), parts, ARRAY_LEN(parts)));
	CHECK_STR(face_text(id, TEXT_QUEUE), "");
	CHECK_INT(face.view[id]->unanswered, 0);
	CHECK_INT(face.view[id]->live->run, 1); /* one run answered all three */
}

/* While the model itself speaks: what comes then is answered by a run of its own, since the answer was final. */
TEST(a_message_during_the_answer_gets_the_next_run)
{
	int64_t id =
		face_session("late", "{\"text\":\"slow answer\",\"delay_ms\":5000}\n" SAY("to the second"), "begin");
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS;
	     (!face.view[id] || !face.view[id]->live || !face.view[id]->live->running) && clock_mono_ms() < end;)
		face_drain(100);
	CHECK_INT(face_do(REQ_MESSAGE, id, "while you speak"), 0);
	CHECK(face_wait_idle(id));
	static const char *const parts[] = {"begin", "slow answer", "while you speak", "to the second"};
	CHECK(in_order(of(id), parts, ARRAY_LEN(parts)));
	CHECK_INT(face.view[id]->live->run, 2);
}

TEST(withdraw_takes_back_one_that_waits_and_no_other)
{
	CLEAN_FREE char *script = waiting_script(SAY("answer"));
	int64_t id = face_session("withdraw", script, "begin");
	CHECK(face_wait(id, "running bash"));
	CHECK_INT(face_do(REQ_CTL, id, "withdraw 1"), -EBUSY); /* the model has seen it */
	CHECK_INT(face_do(REQ_MESSAGE, id, "stays"), 0);
	CHECK_INT(face_do(REQ_MESSAGE, id, "goes"), 0);
	CHECK_INT(face_do(REQ_MESSAGE, id, "stays too"), 0);
	CHECK_INT(face_do(REQ_CTL, id, "withdraw 3"), 0);
	CHECK_INT(face_do(REQ_CTL, id, "withdraw 3"), -EBUSY);
	CHECK_INT(face_do(REQ_CTL, id, "withdraw 5"), -ENOENT);
	CHECK_INT(face_do(REQ_CTL, id, "withdraw 0"), -EINVAL);
	CHECK_INT(face_do(REQ_CTL, id, "withdraw"), -EINVAL);
	CHECK(!strstr(face_text(id, TEXT_QUEUE), "goes"));
	go_on();
	CHECK(face_wait_idle(id));
	CHECK(strstr(of(id), "stays") && strstr(of(id), "stays too") && !strstr(of(id), "goes"));
	CHECK_INT(face_do(REQ_CTL, id, "withdraw 2"), -EBUSY);
	CHECK_INT(face.view[id]->unanswered, 0);
}

/* Held messages: all may be withdrawn, also the very first, and the session is idle without a run. */
TEST(withdraw_while_the_sandbox_is_prepared)
{
	int64_t id = face_session("early", SAY("to the second"), "first");
	int first = face_do(REQ_CTL, id, "withdraw 1");
	int second = face_do(REQ_MESSAGE, id, "second");
	CHECK_INT(second, 0);
	CHECK(face_wait_idle(id));
	CHECK(first == 0 || first == -EBUSY);
	CHECK(!strstr(of(id), "first") == (first == 0));
	int64_t none = face_session("none", SAY("never said"), "only");
	if (!face_do(REQ_CTL, none, "withdraw 1")) {
		CHECK(face_wait_idle(none));
		CHECK_STR(of(none), "");
	} else {
		CHECK(face_wait_idle(none));
	}
}

TEST(withdraw_while_a_retry_waits_and_when_failed)
{
	int64_t id =
		face_session("wretry", "{\"error\":529,\"retry_after\":1000}\n{\"error\":400}\n" SAY("end"), "begin");
	CHECK(face_wait(id, "retrying"));
	CHECK_INT(face_do(REQ_MESSAGE, id, "goes away"), 0);
	CHECK_INT(face_do(REQ_CTL, id, "withdraw 2"), 0);
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait(id, "failed"));
	CHECK_INT(face_do(REQ_MESSAGE, id, "goes on"), 0);
	CHECK(face_wait_idle(id));
	static const char *const parts[] = {"begin", "goes on", "end"};
	CHECK(in_order(of(id), parts, ARRAY_LEN(parts)) && !strstr(of(id), "goes away"));
}

/* Withdrawing at random moments of a run: a message is either seen and cannot be taken back, or taken back and unseen.
 */
TEST(withdraw_at_every_moment)
{
	CLEAN_BUF struct buf script = BUF_INIT;
	for (int i = 0; i < 60; i++)
		buf_adds(&script, i % 3 == 2 ? SAY("answer") : BASH("echo work"));
	int64_t id = face_session("moments", buf_str(&script), "begin");
	bool gone[41] = {false};
	for (int k = 2; k <= 40; k++) {
		CLEAN_FREE char *text = xasprintf("message <%d>", k), *verb = xasprintf("withdraw %d", k);
		CHECK_INT(face_do(REQ_MESSAGE, id, text), 0);
		clock_sleep_ms(k % 8 * 7);
		int rc = face_do(REQ_CTL, id, verb);
		gone[k] = rc == 0;
		CHECK(rc == 0 || rc == -EBUSY);
	}
	CHECK(face_wait_idle(id));
	int kept = 0;
	for (int k = 2; k <= 40; k++) {
		CLEAN_FREE char *text = xasprintf("message <%d>", k);
		CHECK((strstr(of(id), text) == NULL) == gone[k]);
		kept += !gone[k];
	}
	printf("# %d of 39 were seen before they could be withdrawn\n", kept);
}

/* A message that is taken back before its run has asked the model: no request is made for it. */
TEST(withdrawn_before_the_request)
{
	CLEAN_BUF struct buf script = BUF_INIT;
	for (int i = 0; i < 60; i++)
		buf_adds(&script, SAY("answer"));
	int64_t id = face_session("quick", buf_str(&script), "begin");
	CHECK(face_wait_idle(id));
	int seen = 1, requests = 0;
	for (int k = 2; k <= 21; k++) {
		bool sent = false, taken = false;
		CLEAN_FREE char *verb = xasprintf("withdraw %d", k);
		struct request *m = face_request(REQ_MESSAGE, id, "quick"), *v = face_request(REQ_CTL, id, verb);
		m->done = v->done = face_done;
		m->arg = &sent;
		v->arg = &taken;
		backend_submit(face.b, m);
		backend_submit(face.b, v);
		while (!sent || !taken)
			face_drain(100);
		seen += v->rc != 0;
		request_free(m);
		request_free(v);
		CHECK(face_wait_idle(id));
	}
	const char *t = of(id);
	for (const char *p = t; (p = strstr(p, "## assistant")); p++)
		requests++;
	CHECK_INT(requests, seen);
	CHECK(!face.view[id]->live->running);
	printf("# %d of 20 were seen\n", seen - 1);
}

/* ---- two writers ---- */

struct writer {
	int64_t id;
	char name;
	atomic_int answered;
	struct request *requests[30];
};

static void answered(struct request *r)
{
	atomic_fetch_add((atomic_int *)r->arg, 1);
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	for (int i = 0; i < 30; i++) {
		CLEAN_FREE char *text = xasprintf("%c%02d begin\n%c%02d end", w->name, i, w->name, i);
		w->requests[i] = face_request(REQ_MESSAGE, w->id, text);
		w->requests[i]->done = answered;
		w->requests[i]->arg = &w->answered;
		backend_submit(face.b, w->requests[i]);
		clock_sleep_ms(i % 5);
	}
	return NULL;
}

TEST(two_writers_at_once_keep_their_order_and_never_mix)
{
	CLEAN_BUF struct buf script = BUF_INIT;
	for (int i = 0; i < 200; i++)
		buf_adds(&script, i % 2 ? SAY("answer") : BASH("echo work"));
	int64_t id = face_session("writers", buf_str(&script), "begin");
	struct writer w[2] = {{.id = id, .name = 'a'}, {.id = id, .name = 'b'}};
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, writer_main, &w[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	while (atomic_load(&w[0].answered) + atomic_load(&w[1].answered) < 60)
		face_drain(100);
	CHECK(face_wait_idle(id));
	for (int i = 0; i < 2; i++) {
		const char *at = of(id);
		for (int k = 0; k < 30; k++) {
			CLEAN_FREE char *whole = xasprintf("%c%02d begin\n%c%02d end\n", w[i].name, k, w[i].name, k);
			CHECK_INT(w[i].requests[k]->rc, 0);
			const char *found = strstr(at, whole);
			CHECK(found != NULL);
			at = found ? found + 1 : at;
			CHECK(!strstr(at, whole));
			request_free(w[i].requests[k]);
		}
	}
	CHECK_INT(face.view[id]->accepted, 61);
	CHECK_INT(face.view[id]->unanswered, 0);
}

FACE_MAIN()
