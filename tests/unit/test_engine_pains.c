/* What users of coding agents suffer from most, row by row: here, or where each has its test.
 *	 1 a call without its result                    here; test_context
 *	 2 a result without its call                    test_context, test_engine_approve
 *	 3 a stream cut in a call                       here; test_formats: how_an_answer_ends
 *	 4 an empty answer                              here; test_context
 *	 5 a command whose child holds the pipe         here; test_env
 *	 6 work goes on after a stop                    test_engine: stop_ends_the_whole_tree_of_a_command
 *	 7 crashes lose or repeat work                  tests/crash
 *	 8 another sandbox after a restart              tests/mount/43-upgrade, tests/crash/20-daemon
 *	 9 a pause loses files or processes             tests/vm: test_pause, test_hibernate
 *	10 an idle timer ends what nobody watches       test_idle, test_engine_idle
 *	11 overload ends a run for hours                test_engine_retry
 *	12 money without a limit                        test_meter, tests/gateway
 *	13 compaction that makes no room                test_engine_compact
 *	14 an image poisons the session                 test_engine_attach, test_image
 *	15 half a surrogate, bytes that are no text     here; test_formats
 *	16 disks filled by logs                         test_engine_limits
 *	17 a full disk                                  test_engine_full, tests/e2e/40-full-disk
 *	18 processes without a parent                   test_env: kill_takes_the_whole_tree; tests/mount/67-leftovers
 *	19 permissions not remembered, or too widely    test_engine_approve
 *	20 secrets read around the gate                 test_engine_gate, test_env_guard
 *	21 worktrees and branches pile up               here
 *	22 work that nobody sees                        here; tests/mount/55-files
 *	23 messages lost, doubled, out of order         test_engine_steer
 *	24 "tests pass" without evidence                test_engine: checks_run_on_the_commit_and_grow_stale
 *	25 checks read out of what the model says       the same; test_sync
 *	27 traps of FUSE and SQLite                     tests/mount: 47-truth, 65-complaints
 *	29 a command that waits for its input           here
 * There are no streams to browsers (26) and no agents below agents (28). */
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
	CHECK(clock_mono_ms() - from < FACE_WAIT_MS);
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK(strstr(t, "quiet\n") && strstr(t, "begun\n") && strstr(t, "away\n"));
}

TEST(a_command_that_reads_its_input_ends)
{
	int64_t id =
		face_session("stdin", BASH("cat; echo ended $?; read x || echo nothing to read") SAY("done"), "go");
	int64_t from = clock_mono_ms();
	CHECK(face_wait_idle(id));
	CHECK(clock_mono_ms() - from < FACE_WAIT_MS);
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
