/* Compaction: by hand, before the window is full, after an overflow; what makes no room fails in words; a restart or a
 * stop in it loses nothing. */
#include "backend/db.h"
#include "face.h"

/* Waits until the model is asked for a summary. */
static void asked(int64_t id)
{
	struct db *db = NULL;
	CLEAN_FREE char *path = at("state/berthfs.db");
	CHECK_INT(db_open(path, false, &db, NULL), 0);
	bool pinned = false;
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; !pinned && clock_mono_ms() < end; face_drain(10))
		pinned = db_int(db, 0, "SELECT 1 FROM requests WHERE session=? AND state='pinned' AND kind='summary'",
				"i", id);
	CHECK(pinned);
	db_close(db);
}

/* A message of n kilobytes that begins with a word. */
static char *long_text(const char *word, int n)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	buf_addf(&b, "%s ", word);
	for (int i = 0; i < n * 16; i++)
		buf_adds(&b, "filler filler filler filler filler filler filler filler filler\n");
	return buf_take(&b);
}

TEST(by_hand_at_rest)
{
	CLEAN_FREE char *big = long_text("ALPHA", 90);
	int64_t id = face_session("hand", BASH("echo BRAVO") SAY("CHARLIE") SAY("DELTA") SAY("the SUMMARY") SHOW, big);
	CHECK(face_wait_idle(id));
	face_say(id, "echo foxtrot");
	CHECK_INT(face_do(REQ_CTL, id, "compact"), 0);
	CHECK(face_wait_idle(id));
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK(strstr(t, "compacted: from here on the model is told entries 1 to ") && strstr(t, "the SUMMARY"));
	CHECK(strstr(t, "ALPHA") && strstr(t, "BRAVO"));	     /* the original is kept */
	CHECK(strstr(face_text(id, TEXT_USAGE), "4\t0\t0") != NULL); /* the summary counts */
	face_say(id, "golf");
	const char *sent = face_text(id, TEXT_ANSWER);
	CHECK(strstr(sent, "request 5, tools\n[user] The conversation had grown too long.") == sent);
	CHECK(strstr(sent, "the SUMMARY") && strstr(sent, "[user] golf"));
	CHECK(!strstr(sent, "ALPHA"));
	CHECK(strstr(face_text(0, TEXT_EVENTS), "compacted\t1 to") != NULL);
}

TEST(nothing_to_compact_is_said)
{
	int64_t id = face_session("none", SAY("ok") SAY("no summary is asked for"), "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "compact"), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "compact"), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "compact now"), -EINVAL);
	CHECK(face_count(face_text(id, TEXT_JSONL), "\"kind\":\"notice\"") >= 1);
}

/* Row 13 of what users suffer from: by the outcome, never in a loop. */
TEST(before_the_window_is_full)
{
	face_config("model.window = 8000\n");
	CLEAN_FREE char *big = long_text("ALPHA", 30);
	int64_t id = face_session("full", SAY("BRAVO") SAY("SUMMARY") SHOW SAY("x"), big);
	CHECK(face_wait_idle(id));
	face_say(id, "go on"); /* 7,500 tokens and more: a summary comes first */
	const char *sent = face_text(id, TEXT_ANSWER);
	CHECK(strstr(sent, "SUMMARY") && strstr(sent, "[user] go on") && !strstr(sent, "ALPHA"));
	CHECK_INT(face_count(face_text(id, TEXT_TRANSCRIPT), "compacted: "), 1);
	face_config("");
}

TEST(the_provider_s_own_count_decides)
{
	face_config("model.window = 100000\n");
	int64_t id = face_session(
		"usage", "{\"text\":\"one\",\"usage\":{\"in\":90000,\"out\":10}}\n" SAY("SUMMARY") SAY("two"), "go");
	CHECK(face_wait_idle(id));
	face_say(id, "more");
	CHECK_INT(face_count(face_text(id, TEXT_TRANSCRIPT), "compacted: "), 1);
	CHECK_STR(face_text(id, TEXT_ANSWER), "two\n");
	face_config("");
}

TEST(recent_groups_stay_whole)
{
	face_config("model.window = 4000\n");
	CLEAN_BUF struct buf script = BUF_INIT;
	for (int i = 0; i < 12; i++) /* no line is a summary by intent: any text will do */
		buf_addf(&script,
			 "{\"text\":\"turn %d\",\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"echo "
			 "mark%d; head -c 3000 /dev/zero | tr '\\\\0' x\"}},{\"name\":\"bash\",\"input\":{\"command\":"
			 "\"echo second%d\"}}]}\n",
			 i, i, i);
	for (int i = 0; i < 6; i++)
		buf_adds(&script, SHOW);
	int64_t id = face_session("groups", buf_str(&script), "go");
	CHECK(face_wait_idle(id));
	const char *sent = face_text(id, TEXT_ANSWER);
	CHECK(face_count(face_text(id, TEXT_TRANSCRIPT), "compacted: ") >= 2);
	CHECK_INT(face_count(sent, "[call] "), face_count(sent, "[result] "));
	CHECK(!strstr(sent, "has no result"));
	face_config("");
}

TEST(an_overflow_is_compacted_and_sent_again_once)
{
	CLEAN_FREE char *big = long_text("ALPHA", 90);
	int64_t id = face_session(
		"over", SAY("BRAVO") "{\"error\":400,\"code\":\"context_length_exceeded\"}\n" SAY("SUMMARY") SHOW, big);
	CHECK(face_wait_idle(id));
	face_say(id, "go on");
	const char *sent = face_text(id, TEXT_ANSWER);
	CHECK(strstr(sent, "SUMMARY") && strstr(sent, "[user] go on") && !strstr(sent, "ALPHA"));
	CHECK(!strstr(face_value(id, VALUE_STATUS), "retrying"));
}

TEST(a_second_overflow_fails_in_words)
{
	CLEAN_FREE char *big = long_text("ALPHA", 90);
	int64_t id = face_session(
		"twice", SAY("BRAVO") "{\"error\":413}\n" SAY("SUMMARY") "{\"error\":413}\n" SAY("fits now"), big);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_MESSAGE, id, "go on"), 0);
	CHECK(face_wait(id, "failed: the conversation is longer than the model takes, and compaction makes no room"));
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0); /* with a larger model, say */
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_ANSWER), "fits now\n");
}

TEST(a_single_message_that_is_too_long_fails_in_words)
{
	CLEAN_FREE char *big = long_text("ALPHA", 90);
	int64_t id = face_session("single", "{\"error\":413}\n" SAY("fits now"), big);
	CHECK(face_wait(id, "failed: compaction makes no room"));
	CHECK(strstr(face_value(id, VALUE_STATUS), "settings/model") != NULL);
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id));
}

/* Each turn fills the window anew. */
TEST(a_loop_of_compactions_is_broken)
{
	face_config("model.window = 2000\n");
	CLEAN_BUF struct buf script = BUF_INIT;
	for (int i = 0; i < 40; i++)
		buf_adds(&script,
			 "{\"text\":\"again\",\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"head -c 9000 "
			 "/dev/zero | tr '\\\\0' y\"}}]}\n");
	int64_t id = face_session("loop", buf_str(&script), "go");
	CHECK(face_wait(id, "failed: compaction makes no room: it was due 4 times in a row"));
	CHECK_INT(face_count(face_text(id, TEXT_TRANSCRIPT), "compacted: "), 4);
	face_config("");
}

TEST(a_model_that_gives_no_summary_fails_in_words)
{
	CLEAN_FREE char *big = long_text("ALPHA", 90);
	int64_t id =
		face_session("blank",
			     SAY("one") SAY("two") SAY(" ") SAY("") "{\"tools\":[{\"name\":\"bash\",\"input\":"
								    "{\"command\":\"touch ../run\"}}]}\n" SAY("three"),
			     big);
	CHECK(face_wait_idle(id));
	face_say(id, "more");
	CHECK_INT(face_do(REQ_CTL, id, "compact"), 0);
	CHECK(face_wait(id, "failed: compaction: the model gave no summary, 3 times"));
	CHECK_STR(sh("ls state/sandboxes/%" PRId64 "/home | grep -c run || true", id), "0");
	face_say(id, "go on"); /* a message goes on without */
	CHECK_STR(face_text(id, TEXT_ANSWER), "three\n");
}

TEST(errors_in_a_summary_are_tried_again)
{
	CLEAN_FREE char *big = long_text("ALPHA", 90);
	int64_t id = face_session(
		"busy", SAY("one") SAY("two") "{\"error\":529,\"retry_after\":100}\n{\"error\":413}\n" SAY("SUMMARY"),
		big);
	CHECK(face_wait_idle(id));
	face_say(id, "more");
	CHECK_INT(face_do(REQ_CTL, id, "compact"), 0);
	CHECK(face_wait(id, "retrying in"));
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id)); /* one that is too long itself is asked for with less */
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "SUMMARY") != NULL);
}

TEST(a_restart_goes_on_with_it_and_a_stop_ends_it)
{
	CLEAN_FREE char *big = long_text("ALPHA", 90);
	int64_t id = face_session("restart",
				  SAY("one") SAY("two") "{\"text\":\"SUMMARY one\",\"delay_ms\":6000}\n"
							"{\"text\":\"SUMMARY two\",\"delay_ms\":20000}\n" SAY("three"),
				  big);
	CHECK(face_wait_idle(id));
	face_say(id, "more");
	CHECK_INT(face_do(REQ_CTL, id, "compact"), 0);
	CHECK(face_wait(id, "running compact"));
	asked(id);
	CHECK_INT(face_do(REQ_MESSAGE, id, "held meanwhile"), 0);
	CHECK(face.view[id]->text[TEXT_QUEUE].size > 0);
	CHECK_INT(face_do(REQ_CTL, id, "withdraw 3"), 0);
	face_stop();
	CHECK_INT(face_start(), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_count(face_text(id, TEXT_TRANSCRIPT), "SUMMARY one"), 1);
	CLEAN_FREE char *more = long_text("ECHO", 90);
	CHECK_INT(face_do(REQ_CTL, id, "compact"), 0);
	CHECK(face_wait(id, "running compact"));
	asked(id);
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK(!strstr(face_text(id, TEXT_TRANSCRIPT), "SUMMARY two"));
	face_say(id, more);
	CHECK_STR(face_text(id, TEXT_ANSWER), "three\n");
}

FACE_MAIN()
