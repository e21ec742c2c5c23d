/* What users of coding agents suffer from most, each as a test. Others have their own place:
 *	a call without its result, a result without its call    test_context
 *	a command whose child holds the pipe, trees of processes test_env
 *	crashes lose or repeat work                              tests/crash
 *	overload ends a run for hours                            test_engine_retry
 *	compaction that makes no room                            test_engine_compact
 *	an image poisons the session                             test_engine_attach, test_image
 *	disks filled by logs, full disks                         test_engine_limits, test_engine_full
 *	permissions that are not remembered, or too widely       test_engine_approve
 *	secrets read around the gate                             test_engine_gate, test_env_guard
 *	messages lost, doubled, out of order                     test_engine_steer
 *	"tests pass" without evidence                            test_engine: checks_run_on_the_commit_and_grow_stale
 *	money without a limit                                    test_meter, tests/gateway */
#include "backend/base/utf8.h"
#include "face.h"

static const char *home(int64_t id, const char *command)
{
	return sh("cd state/sandboxes/%" PRId64 "/home && %s", id, command);
}

TEST(a_stopped_call_does_not_poison_what_follows)
{
	int64_t id = face_session("stopped", BASH("touch ../began; sleep 100") SHOW, "go");
	CHECK(face_wait(id, "running bash"));
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	const char *sent = face_say(id, "go on");
	CHECK_INT(face_count(sent, "[call] "), 1);
	CHECK_INT(face_count(sent, "[result] "), 1);
	CHECK(strstr(sent, "[call] bash{") < strstr(sent, "[result] bash"));
}

TEST(a_stream_that_is_cut_runs_no_tool)
{
	int64_t id = face_session(
		"cut",
		"{\"text\":\"half\",\"cut\":true,\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"touch "
		"../ran\"}}]}\n" SHOW SHOW,
		"go");
	CHECK(face_wait_idle(id));
	CHECK_STR(home(id, "ls | grep -c ran || true"), "0");
	CHECK(!strstr(face_text(id, TEXT_ANSWER), "[call]") && !strstr(face_text(id, TEXT_ANSWER), "half"));
}

TEST(arguments_that_are_no_object_are_not_run)
{
	int64_t id = face_session(
		"args",
		"{\"tools\":[{\"name\":\"bash\",\"input\":\"touch ../ran; {\"},{\"name\":\"bash\",\"input\":"
		"[1]},{\"name\":\"bash\",\"input\":{\"command\":7}}]}\n" SHOW,
		"go");
	CHECK(face_wait_idle(id));
	const char *sent = face_text(id, TEXT_ANSWER);
	CHECK_INT(face_count(sent, "[call] bash{"), 3);
	CHECK_INT(face_count(sent, "[result] bash"), 3);
	CHECK_INT(face_count(sent, "not run: the arguments cannot be read"), 2);
	CHECK_STR(home(id, "ls | grep -c ran || true"), "0");
}

TEST(an_empty_answer_wedges_nothing)
{
	int64_t id = face_session("empty", "{\"text\":\"\",\"cut\":true}\n{\"text\":\"\"}\n{\"text\":\" \\n\"}\n" SHOW,
				  "one");
	CHECK(face_wait_idle(id));
	face_say(id, "two");
	const char *sent = face_say(id, "three");
	CHECK(!strstr(sent, "[assistant]"));
	CHECK(strstr(sent, "[user] one") && strstr(sent, "[user] two") && strstr(sent, "[user] three"));
}

/* The shell ends, a child holds its output: quietly, loudly, and away from its group. */
TEST(a_background_child_does_not_hold_the_answer)
{
	int64_t id =
		face_session("holders",
			     BASH("sleep 300 & echo quiet") BASH("(while sleep 0.05; do echo loud; done) & echo begun")
				     BASH("setsid sleep 300 & echo away") SAY("done"),
			     "go");
	int64_t from = clock_mono_ms();
	CHECK(face_wait_idle(id));
	CHECK(clock_mono_ms() - from < 30000);
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK(strstr(t, "quiet\n") && strstr(t, "begun\n") && strstr(t, "away\n"));
}

TEST(a_command_that_reads_its_input_ends)
{
	int64_t id =
		face_session("stdin", BASH("cat; echo ended $?; read x || echo nothing to read") SAY("done"), "go");
	int64_t from = clock_mono_ms();
	CHECK(face_wait_idle(id));
	CHECK(clock_mono_ms() - from < 20000);
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "ended 0\nnothing to read") != NULL);
}

/* Bytes that are no text, halves of surrogates, controls: in output, in file names, in what the model says. */
TEST(bytes_that_are_no_text_poison_nothing)
{
	int64_t id =
		face_session("bytes",
			     BASH("printf 'a\\\\377b \\\\355\\\\240\\\\200 c\\\\000d \\\\033[31m e'; touch $(printf "
				  "'n\\\\377'); ls") "{\"text\":\"half \\ud83d of a "
						     "pair\",\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":"
						     "\"echo \\udc00 tail\"}}]}\n" SHOW,
			     "go");
	bool idle = face_wait_idle(id);
	CHECK(idle || strstr(face_value(id, VALUE_STATUS), "script line 2")); /* or refused as a whole, in words */
	const char *jsonl = face_text(id, TEXT_JSONL), *md = face_text(id, TEXT_TRANSCRIPT);
	CHECK(utf8_valid(jsonl, strlen(jsonl)) && utf8_valid(md, strlen(md)));
	CHECK(!strchr(md, 27) && !strstr(jsonl, "\\ud8") && !strstr(jsonl, "\\udc"));
	CHECK(strstr(md, "a\xEF\xBF\xBD"
			 "b") != NULL);
}

/* Worktrees and branches pile up elsewhere; here a session leaves its one branch. */
TEST(nothing_piles_up_in_the_checkout)
{
	const char *before = sh("cd project && git worktree list && git status --porcelain --ignored && ls -A");
	CLEAN_FREE char *was = xstrdup(before);
	int64_t id = face_session(
		"tidy", BASH("echo x > x.txt; git add .; git commit -qm x; git branch other; git tag t") SAY("done"),
		"go");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "destroy"), 0);
	for (int i = 0; i < 200 && file_exists(sh("echo $PWD/state/sandboxes/%" PRId64, id)); i++)
		face_drain(50);
	CHECK_STR(sh("cd project && git worktree list && git status --porcelain --ignored && ls -A"), was);
	CHECK_STR(sh("cd project && git show sandbox/%" PRId64 ":x.txt; git branch --list other; git tag -l t", id),
		  "x");
}

TEST(work_that_is_not_committed_is_said)
{
	int64_t id = face_session("uncommitted", BASH("echo x > new.txt; echo y >> a.txt") SAY("all done"), "go");
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_LOG), "uncommitted") || strstr(face_text(id, TEXT_LOG), "not committed"));
}

FACE_MAIN()
