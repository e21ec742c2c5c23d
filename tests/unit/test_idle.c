/* The policy of idle sandboxes, against a clock that the test moves. */
#include <string.h>

#include "backend/idle.h"
#include "check.h"

#define MIN 60000LL
#define T0  1000000000000LL /* when the session came to rest */

static struct idle_look look(void)
{
	return (struct idle_look){.now_ms = T0,
				  .sandbox = SANDBOX_RUNNING,
				  .can_pause = true,
				  .can_hibernate = true,
				  .pause_ms = MIN,
				  .hibernate_ms = 30 * MIN,
				  .down_ms = 0,
				  .quiet_ms = T0};
}

static enum idle_act after(struct idle_look *k, int64_t ms)
{
	k->now_ms = T0 + ms;
	return idle_decide(k);
}

static void answer(struct idle_look *k, enum idle_answer a)
{
	k->asked_ms = k->now_ms;
	k->answer = a;
	if (a == IDLE_BUSY)
		k->busy_ms = k->now_ms;
}

TEST(paused_then_to_disk_then_down)
{
	struct idle_look k = look();
	k.down_ms = 24 * 60 * MIN;
	CHECK_INT(after(&k, 0), IDLE_NOTHING);
	CHECK_INT(after(&k, MIN - 1), IDLE_NOTHING);
	CHECK_INT(after(&k, MIN), IDLE_ASK);
	answer(&k, IDLE_QUIET);
	CHECK_INT(after(&k, MIN + 5), IDLE_PAUSE);
	k.sandbox = SANDBOX_PAUSED;
	CHECK_INT(after(&k, 30 * MIN - 1), IDLE_NOTHING); /* and nobody is asked meanwhile */
	CHECK_INT(after(&k, 30 * MIN), IDLE_HIBERNATE);	  /* from when it came to rest, not from the pause */
	k.sandbox = SANDBOX_HIBERNATED;
	CHECK_INT(after(&k, 24 * 60 * MIN - 1), IDLE_NOTHING);
	CHECK_INT(after(&k, 24 * 60 * MIN), IDLE_DOWN);
	k.sandbox = SANDBOX_DOWN;
	CHECK_INT(after(&k, 1000 * 60 * MIN), IDLE_NOTHING);
}

TEST(busy_begins_anew)
{
	struct idle_look k = look();
	CHECK_INT(after(&k, MIN), IDLE_ASK);
	answer(&k, IDLE_BUSY);
	CHECK_INT(after(&k, MIN + 1), IDLE_NOTHING);
	CHECK_INT(after(&k, 2 * MIN - 1), IDLE_NOTHING);
	CHECK_INT(after(&k, 2 * MIN), IDLE_ASK);
	answer(&k, IDLE_QUIET);
	CHECK_INT(after(&k, 2 * MIN), IDLE_PAUSE);
	k.sandbox = SANDBOX_PAUSED;
	CHECK_INT(after(&k, 31 * MIN - 1), IDLE_NOTHING); /* 30 min after it was busy */
	CHECK_INT(after(&k, 31 * MIN), IDLE_HIBERNATE);
}

/* An answer is acted upon at once or not at all. */
TEST(old_answers_do_not_count)
{
	struct idle_look k = look();
	after(&k, MIN);
	answer(&k, IDLE_QUIET);
	CHECK_INT(after(&k, MIN + IDLE_FRESH_MS), IDLE_PAUSE);
	CHECK_INT(after(&k, MIN + IDLE_FRESH_MS + 1), IDLE_ASK);
	k.quiet_ms = k.asked_ms + 1; /* it has worked since */
	k.now_ms = k.quiet_ms + MIN;
	CHECK_INT(idle_decide(&k), IDLE_ASK);
}

/* Paused by a person while something in it said busy, or before anybody asked: it stays in memory. */
TEST(the_last_answer_stands_while_paused)
{
	struct idle_look k = look();
	k.down_ms = 60 * MIN;
	k.sandbox = SANDBOX_PAUSED;
	for (enum idle_answer a = IDLE_UNASKED; a <= IDLE_BUSY; a++) {
		k.asked_ms = a ? T0 : 0;
		k.answer = a;
		CHECK_INT(after(&k, 1000 * MIN), a == IDLE_QUIET ? IDLE_DOWN : IDLE_NOTHING);
	}
}

TEST(never_what_is_off_or_cannot_be)
{
	struct idle_look k = look();
	k.pause_ms = k.hibernate_ms = 0;
	CHECK_INT(after(&k, 10000 * MIN), IDLE_NOTHING);
	k = look();
	k.can_pause = k.can_hibernate = false;
	CHECK_INT(after(&k, 10000 * MIN), IDLE_NOTHING);
	k.down_ms = 60 * MIN;
	CHECK_INT(after(&k, 60 * MIN), IDLE_ASK);
	answer(&k, IDLE_QUIET);
	CHECK_INT(after(&k, 60 * MIN), IDLE_DOWN);
	k.sandbox = SANDBOX_NONE;
	CHECK_INT(after(&k, 60 * MIN), IDLE_NOTHING);
}

/* Without a pause the whole window is looked at; work in it begins it anew. */
TEST(a_window_is_sampled)
{
	struct idle_look k = look();
	int asked = 0;
	k.pause_ms = 0;
	for (int64_t s = 0; s < 30 * 60; s++)
		if (after(&k, s * 1000) == IDLE_ASK) {
			answer(&k, IDLE_QUIET);
			asked++;
		}
	CHECK_INT(asked, 29);
	CHECK_INT(after(&k, 30 * MIN), IDLE_ASK);
	answer(&k, IDLE_QUIET);
	CHECK_INT(after(&k, 30 * MIN), IDLE_HIBERNATE);
	k.worked_ms = T0 + 20 * MIN;
	CHECK_INT(after(&k, 30 * MIN + 1), IDLE_NOTHING);
	after(&k, 50 * MIN);
	answer(&k, IDLE_QUIET);
	CHECK_INT(after(&k, 50 * MIN), IDLE_HIBERNATE);
	/* work alone does not hold up a pause */
	k.pause_ms = MIN;
	k.worked_ms = k.now_ms;
	CHECK_INT(idle_decide(&k), IDLE_PAUSE);
	/* a short window is looked at four times */
	k = look();
	k.pause_ms = 0;
	k.hibernate_ms = 2000;
	CHECK_INT(after(&k, 499), IDLE_NOTHING);
	CHECK_INT(after(&k, 500), IDLE_ASK);
}

TEST(a_clock_that_was_set_back)
{
	struct idle_look k = look();
	CHECK_INT(after(&k, -1), IDLE_RESET);
	k = look();
	k.busy_ms = k.asked_ms = T0 + MIN;
	CHECK_INT(after(&k, MIN - 1), IDLE_RESET);
	CHECK_INT(after(&k, MIN), IDLE_NOTHING);
}

TEST(work_is_more_than_a_little)
{
	CHECK(!idle_works(1000, 1000, 60000));
	CHECK(!idle_works(1000, 4000, 60000)); /* 5 % */
	CHECK(idle_works(1000, 4001, 60000));
	CHECK(!idle_works(-1, 100000, 60000) && !idle_works(100000, -1, 60000));
	CHECK(!idle_works(0, 1000, 0));
	CHECK(!idle_works(5000, 10, 60000)); /* it was started anew meanwhile */
}

CHECK_MAIN()
