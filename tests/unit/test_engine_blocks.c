/* Blocks through runs: the plan while its answer still streams, options of a question picked by their number. */
#include "face.h"

#define PLAN                                                                                                           \
	"one\\n\\n```plan\\n- [x] a step that is done\\n- [>] a step that is in work\\n- [ ] a step that is to "       \
	"do\\n```\\n"
#define WORDS " and many more words so that it streams on for a while, and on, and on, until it has ended"

static void same_size(int64_t id, enum text_kind kind, const char *text)
{
	CHECK_INT(face.view[id]->text[kind].size, strlen(text));
}

TEST(a_plan_shows_while_its_answer_streams)
{
	bool partial = false, whole_early = false;
	int64_t id = 0;
	/* a busy machine may look too seldom: then slower */
	for (int ms = 3000; ms < 100000 && !(partial && whole_early); ms *= 5) {
		CLEAN_FREE char *name = xasprintf("plan%d", ms);
		CLEAN_FREE char *script = xasprintf("{\"text\":\"" PLAN WORDS WORDS "\",\"delay_ms\":%d}\n", ms);
		partial = whole_early = false;
		id = face_session(name, script, "go");
		while (!face.view[id] || strncmp(face_value(id, VALUE_STATUS), "idle", 4)) {
			face_drain(50);
			const char *p = face_text(id, TEXT_PLAN);
			bool runs = face.view[id] && face.view[id]->live && face.view[id]->live->running;
			partial |= runs && *p && !strstr(p, "to do");
			whole_early |= runs && strstr(p, "- [ ] a step that is to do\n");
		}
	}
	CHECK(partial && whole_early);
	CHECK_STR(face_text(id, TEXT_PLAN),
		  "- [x] a step that is done\n- [>] a step that is in work\n- [ ] a step that is to do\n");
	same_size(id, TEXT_PLAN, face_text(id, TEXT_PLAN));
}

static void wait_plan(int64_t id, const char *has)
{
	while (!strstr(face_text(id, TEXT_PLAN), has))
		face_drain(50);
}

/* One that came to nothing (cut off, stopped, killed with the daemon) gives way to the last that holds. */
TEST(the_plan_of_a_lost_answer_does_not_count)
{
	int64_t id = face_session("lost",
				  SAY("x\\n```plan\\n- [x] kept\\n```") "{\"text\":\"" PLAN WORDS
									"\",\"delay_ms\":3000,\"cut\":true}\n"
									"{\"text\":\"" PLAN WORDS
									"\",\"delay_ms\":100000}\n" SAY("no plan"),
				  "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_MESSAGE, id, "more"), 0);
	wait_plan(id, "a step");
	CHECK(face_wait(id, "retrying"));
	CHECK_STR(face_text(id, TEXT_PLAN), "- [x] kept\n");
	same_size(id, TEXT_PLAN, "- [x] kept\n");
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	wait_plan(id, "a step");
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_PLAN), "- [x] kept\n");
	same_size(id, TEXT_PLAN, "- [x] kept\n");
	CHECK_INT(face_do(REQ_MESSAGE, id, "again"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_PLAN), "- [x] kept\n");
}

TEST(a_plan_over_a_restart)
{
	int64_t id = face_session("restart", "{\"text\":\"" PLAN WORDS "\",\"delay_ms\":2500}\n", "go");
	wait_plan(id, "a step");
	face_stop();
	CHECK_INT(face_start(), 0);
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_PLAN), "to do"));
	same_size(id, TEXT_PLAN, face_text(id, TEXT_PLAN));
}

#define ASKS SAY("Well.\\n```result\\nquestion: Which?\\n- sqlite: nothing to install\\n- postgres: many writers\\n```")

TEST(a_bare_number_picks_an_option)
{
	int64_t id = face_session("pick", ASKS ASKS ASKS ASKS SAY("fine") SAY("fine"), "go");
	CHECK(face_wait(id, "asking"));
	CHECK_STR(face_text(id, TEXT_QUESTION),
		  "question: Which?\n1. sqlite: nothing to install\n2. postgres: many writers\n");
	same_size(id, TEXT_QUESTION, face_text(id, TEXT_QUESTION));
	CHECK_INT(face_do(REQ_MESSAGE, id, " 2 \n"), 0);
	CHECK(face_wait(id, "asking"));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "\n2. postgres: many writers\n"));
	CHECK(strstr(face_text(id, TEXT_JSONL), "\"text\":\"postgres: many writers\",\"typed\":\"2\""));
	CHECK_INT(face_do(REQ_MESSAGE, id, "3"), 0); /* there is no third: then it is a number */
	CHECK(face_wait(id, "asking"));
	CHECK(strstr(face_text(id, TEXT_JSONL), "\"text\":\"3\"}"));
	CHECK_INT(face_do(REQ_MESSAGE, id, "1 of them"), 0);
	CHECK(face_wait(id, "asking"));
	CHECK(strstr(face_text(id, TEXT_JSONL), "\"text\":\"1 of them\"}"));
	CHECK_INT(face_do(REQ_MESSAGE, id, "1"), 0);
	CHECK(face_wait(id, "idle"));
	CHECK(strstr(face_text(id, TEXT_JSONL), "\"text\":\"sqlite: nothing to install\",\"typed\":\"1\""));
	CHECK_STR(face_text(id, TEXT_QUESTION), "");
	CHECK_INT(face_do(REQ_MESSAGE, id, "1"), 0); /* nothing is asked */
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_JSONL), "\"text\":\"1\"}"));
}

FACE_MAIN()
