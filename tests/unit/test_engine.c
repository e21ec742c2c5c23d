/* The engine on a real database, real checkouts and a tool daemon of kind dir, without a mount. */
#include <signal.h>

#include "face.h"

TEST(a_run_with_tools_is_answered_and_synced)
{
	int64_t id = face_session("tools",
				  "{\"text\":\"looking\",\"tools\":[{\"name\":\"read\",\"input\":{\"path\":\"a.txt\"}},"
				  "{\"name\":\"edit\",\"input\":{\"path\":\"a.txt\",\"edits\":[{\"oldText\":\"hello\","
				  "\"newText\":\"bye\"}]}}]}\n"
				  "{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"cat a.txt && git commit "
				  "-qam changed && echo done\"}}]}\n"
				  "{\"text\":\"all done\\n\\n```plan\\n- [x] change\\n```\\n\\n```result\\nquestion: "
				  "ok?\\n- yes: it is\\n```\\n\"}\n",
				  "change it");
	CHECK(face_wait_idle(id));
	CHECK_STR(face_value(id, VALUE_STATUS), "asking");
	CHECK_STR(face_text(id, TEXT_PLAN), "- [x] change\n");
	CHECK_STR(face_text(id, TEXT_QUESTION), "question: ok?\n1. yes: it is\n");
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK(strstr(t, "change it") && strstr(t, "hello") && strstr(t, "bye\ndone"));
	CHECK_INT(strlen(t), face.view[id]->text[TEXT_TRANSCRIPT].size);
	CHECK_INT(strlen(face_text(id, TEXT_JSONL)), face.view[id]->text[TEXT_JSONL].size);
	CHECK_INT(strlen(face_text(id, TEXT_PLAN)), face.view[id]->text[TEXT_PLAN].size);
	CHECK_INT(strlen(face_text(id, TEXT_QUESTION)), face.view[id]->text[TEXT_QUESTION].size);
	CHECK_INT(strlen(face_text(id, TEXT_DIFF)), face.view[id]->text[TEXT_DIFF].size);
	CHECK(strstr(face_text(id, TEXT_DIFF), "+bye"));
	CHECK(strstr(face_text(id, TEXT_CHANGES), "a.txt"));
	CHECK(strstr(face_text(id, TEXT_COMMITS), "changed"));
	CHECK_STR(sh("cd project && git show sandbox/%d:a.txt", (int)id), "bye");
	CHECK_STR(sh("cd project && git status --porcelain && cat a.txt"), "hello");
}

TEST(messages_are_held_and_released_in_order)
{
	int64_t id = face_session("held", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n{\"text\":\"three\"}\n", "first");
	CHECK_INT(face_do(REQ_MESSAGE, id, "second\n"), 0);
	CHECK_INT(face_do(REQ_MESSAGE, id, "third\n"), 0);
	CHECK(face_wait_idle(id));
	const char *t = face_text(id, TEXT_TRANSCRIPT), *first = strstr(t, "first"), *one = strstr(t, "one"),
		   *second = strstr(t, "second"), *two = strstr(t, "two"), *third = strstr(t, "third"),
		   *three = strstr(t, "three");
	CHECK(first && first < one && one < second && second < two && two < third && third < three);
	CHECK_INT(face_do(REQ_MESSAGE, id, " \n\t"), -EINVAL);
}

TEST(stop_ends_a_command_and_leaves_a_clean_history)
{
	int64_t id = face_session(
		"stop",
		"{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"sleep 1000\"}}]}\n{\"text\":\"after\"}\n",
		"go");
	CHECK(face_wait(id, "running bash"));
	int64_t from = clock_mono_ms();
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK(clock_mono_ms() - from < FACE_WAIT_MS);
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "stopped by the user"));
	CHECK_INT(face_do(REQ_MESSAGE, id, "again"), 0);
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_ANSWER), "after"));
}

/* Until the command of a session has written the file `began` beside its project. */
static bool has_begun(int64_t id)
{
	CLEAN_FREE char *path = xasprintf("%s/sandboxes/%" PRId64 "/home/began", face.paths.state, id);
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end; face_drain(20))
		if (file_exists(path))
			return true;
	return false;
}

/* All that a command has started goes, whatever it stands behind; what it left behind before that, too. */
TEST(stop_ends_the_whole_tree_of_a_command)
{
	int64_t id =
		face_session("tree",
			     BASH("(sleep 301 & echo $! >>../pids); sh -c 'sleep 302 & echo $! $$ >>../pids; wait' & "
				  "setsid sh -c 'echo $$ >>../pids; sleep 303; :' & while [ $(cat ../pids | wc -w) "
				  "-lt 4 ]; do sleep 0.05; done; touch ../began; wait") SAY("after"),
			     "go");
	CHECK(has_begun(id));
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(sh("cd state/sandboxes/%" PRId64
		     "/home && wc -w <pids; for i in $(seq 600); do left=; for p in $(cat "
		     "pids); do grep -q '^State:.[^ZX]' /proc/$p/status 2>/dev/null && left=\"$left $p\"; done; [ -n "
		     "\"$left\" ] || break; sleep 0.1; done; echo left:$left",
		     id),
		  "4\nleft:");
}

/* Neither joined nor collected: the sandbox's tools died with the command. It is not run again, and what it has said
 * is not lost; reading is repeated. */
TEST(a_command_that_died_with_its_sandbox_is_interrupted)
{
	for (int restart = 0; restart < 2; restart++) {
		CLEAN_FREE char *name = xasprintf("died%d", restart);
		int64_t id =
			face_session(name,
				     BASH("echo so far; echo ran >>../count; touch ../began; sleep 300; echo to the "
					  "end") SHOW,
				     "go");
		CHECK(has_begun(id));
		CHECK_STR(sh("for i in $(seq 600); do grep -rqsx 'so far' state/sandboxes/%" PRId64
			     "/jobs && echo kept && break; sleep 0.1; done",
			     id),
			  "kept");
		if (restart)
			face_stop();
		sh("kill -9 $(cut -d' ' -f1 state/sandboxes/%" PRId64 "/tools.pid)", id);
		if (restart)
			CHECK_INT(face_start(), 0);
		CHECK(face_wait_idle(id));
		const char *sent = face_text(id, TEXT_ANSWER);
		CHECK(strstr(sent,
			     "[result] bashso far\n[interrupted: the sandbox was restarted while the command ran]") !=
		      NULL);
		CHECK_STR(sh("cat state/sandboxes/%" PRId64 "/home/count", id), "ran");
		if (check_failed)
			printf("# %s\n", sent);
	}
}

TEST(an_overloaded_model_is_tried_again)
{
	int64_t id = face_session("busy", "{\"error\":529}\n{\"text\":\"cut of\",\"cut\":true}\n{\"text\":\"fine\"}\n",
				  "go");
	CHECK(face_wait(id, "retrying in"));
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_ANSWER), "fine\n");
}

TEST(bad_scripts_fail_in_words_and_can_be_retried)
{
	int64_t id = face_session("broken", "{\"text\":\"no end\n", "go");
	CHECK(face_wait(id, "failed: script line 1"));
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_ANSWER), "(script ended)\n");
}

TEST(bad_drafts_are_refused_in_words)
{
	static const struct {
		const char *text, *words;
	} bad[] = {{"---\ncolour: red\n---\nx", "unknown key"},
		   {"---\nmodel: script:/no/such\n---\nx", "No such file"},
		   {"---\nsandbox: moon\n---\nx", "sandbox cannot"},
		   {"---\nproject: /\n---\nx", "project"},
		   {"---\nmodel: script:a.txt\n---\n \n", "no message"},
		   {"---\nmodel: script:a.txt\nx", "---"},
		   {"just a message", "no model"}};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK_INT(face_create("bad", bad[i].text), 0);
		if (!strstr(face.last_error.text, bad[i].words)) {
			printf("# %s: %s\n", bad[i].text, face.last_error.text);
			CHECK(false);
		}
	}
}

TEST(checks_run_on_the_commit_and_grow_stale)
{
	int64_t id =
		face_session("checks",
			     "{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"mkdir -p .agents && echo "
			     "'{\\\"checks\\\":[{\\\"name\\\":\\\"t\\\","
			     "\\\"command\\\":\\\"grep -q hello "
			     "a.txt\\\"},{\\\"name\\\":\\\"bad\\\",\\\"command\\\":\\\"echo no; false\\\"}]}' > "
			     ".agents/project.json && git add . && git commit -qm checks\"}}]}\n{\"text\":\"ok\"}\n"
			     "{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"rm .agents/project.json && git "
			     "commit -qam gone\"}}]}\n"
			     "{\"text\":\"ok\"}\n",
			     "go");
	CHECK(face_wait_idle(id));
	const char *c = face_text(id, TEXT_CHECKS);
	CHECK(!strncmp(c, "pass\t", 5) && strstr(c, "\nfail\t") && strstr(c, "no\n"));
	CHECK_INT(face_do(REQ_MESSAGE, id, "more"), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(strlen(face_text(id, TEXT_CHECKS)), face.view[id]->text[TEXT_CHECKS].size);
}

#define WORK                                                                                                           \
	"{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"echo %s > %s && git add . && git commit -qm "         \
	"%s\"}}]}\n{\"text\":\"made\"}\n"

#define WORK_LINES                                                                                                     \
	"{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"echo 1 > w && git add . && git commit -qm "           \
	"w1\"}}]}\n{\"text\":\"1\"}\n"                                                                                 \
	"{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"echo 2 > w && git add . && git commit -qm "           \
	"w2\"}}]}\n{\"text\":\"2\"}\n"

TEST(ship_lands_one_commit_on_the_remote)
{
	CLEAN_FREE char *script =
		xasprintf(WORK "{\"text\":\"rebased\\nSHIP-READY\\n\"}\n", "x", "ship.txt", "shipped");
	int64_t id = face_session("ship", script, "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_SHIP, id, "main"), 0);
	CHECK_INT(face_do(REQ_SHIP, id, "main"), -EBUSY);
	CHECK(face_wait_idle(id));
	CLEAN_FREE char *want = xasprintf("landed main %s", sh("cd project && git rev-parse sandbox/%d", (int)id));
	CHECK_STR(face_value(id, VALUE_SHIP), want);
	CHECK_STR(sh("cd remote.git && git show main:ship.txt"), "x");
	CHECK_STR(face_text(id, TEXT_DIFF), "");
	CHECK_INT(face_do(REQ_SHIP, id, ""), 0);
	CHECK(face_wait_idle(id));
}

TEST(ship_is_blocked_by_uncommitted_work_and_by_words)
{
	int64_t id =
		face_session("dirty",
			     "{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"echo x > "
			     "dirty.txt\"}}]}\n{\"text\":\"made\"}\n"
			     "{\"text\":\"SHIP-READY\"}\n{\"text\":\"SHIP-BLOCKED: no time\"}\n{\"text\":\"hm\"}\n",
			     "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_SHIP, id, ""), 0);
	CHECK(face_wait_idle(id));
	CHECK(!strcmp(face_value(id, VALUE_SHIP), "check failed: uncommitted changes"));
	CHECK_INT(face_do(REQ_SHIP, id, "main\n"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(face_value(id, VALUE_SHIP), "blocked: no time");
	CHECK_INT(face_do(REQ_SHIP, id, "moon"), -EINVAL);
}

TEST(destroy_frees_the_sandbox_and_keeps_the_transcript)
{
	int64_t id = face_session("gone", "{\"text\":\"bye\"}\n", "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(sandbox_state(&face.paths, "dir", id), SANDBOX_RUNNING);
	CHECK_INT(face_do(REQ_DESTROY, id, ""), 0);
	CHECK(face.view[id]->destroyed);
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS;
	     sandbox_state(&face.paths, "dir", id) != SANDBOX_NONE && clock_mono_ms() < end;)
		face_drain(100);
	CHECK_INT(sandbox_state(&face.paths, "dir", id), SANDBOX_NONE);
	CHECK_INT(face_do(REQ_MESSAGE, id, "x"), -ESHUTDOWN);
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "bye"));
}

TEST(a_restart_finds_everything_again)
{
	int64_t id = face_session("again",
				  "{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"sleep 2; echo finished >> "
				  "count; cat count\"}}]}\n"
				  "{\"text\":\"end\"}\n",
				  "go");
	CHECK(face_wait(id, "running bash"));
	face_stop();
	CHECK_INT(face_start(), 0);
	CHECK(face_wait_idle(id));
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK(strstr(t, "\nfinished\n") && !strstr(t, "finished\nfinished") && strstr(t, "end"));
}

/* Waits until the run with that number has sent its request; before, a stop would not use up a line of the script. */
static bool has_asked(int64_t id, int64_t run)
{
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end; face_drain(20)) {
		const struct live *l = face.view[id]->live;
		if (l && l->run == run && l->running)
			return true;
	}
	return false;
}

TEST(stop_in_every_state_leaves_a_session_that_goes_on)
{
	CLEAN_FREE char *script = xasprintf("{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"mkdir -p .agents "
					    "&& echo '{\\\"checks\\\":[{\\\"name\\\":\\\"slow\\\","
					    "\\\"command\\\":\\\"sleep 1000\\\"}]}' > .agents/project.json && git add "
					    ". && git commit -qm c\"}}]}\n{\"text\":\"ok\"}\n"
					    "{\"text\":\"slow\",\"delay_ms\":100000}\n{\"text\":\"fine\"}\n");
	int64_t id = face_session("stopall", script, "go");
	CHECK(face_wait(id, "checking"));
	CHECK_INT(face_do(REQ_MESSAGE, id, "next"), 0); /* waits behind the check */
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(has_asked(id, 2));
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK_INT(face_do(REQ_MESSAGE, id, "third"), 0);
	CHECK(face_wait(id, "checking"));
	CHECK_STR(face_text(id, TEXT_ANSWER), "fine\n");
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "dance"), -EINVAL);
	CHECK_INT(face_do(REQ_CTL, id, "hibernate"), -EOPNOTSUPP);
	CHECK_INT(face_do(REQ_CTL, id, "withdraw 99"), -ENOENT);
	CHECK_INT(face_do(REQ_CTL, id, "retry"), -EINVAL);
}

/* Its sandbox does not answer when a check is stopped. When it does again, the check ends. */
TEST(stop_ends_a_check_of_a_sandbox_that_answers_late)
{
	int64_t id = face_session(
		"late",
		BASH("mkdir -p .agents && echo '{\\\"checks\\\":[{\\\"name\\\":\\\"frozen\\\","
		     "\\\"command\\\":\\\"echo $$ >~/check.pid; kill -STOP $(cat ~/../tools.pid); sleep 1000\\\"}]}' "
		     "> .agents/project.json && git add . && git commit -qm c") SAY("ok"),
		"go");
	const char *dir = face.paths.state;
	CHECK(face_wait(id, "checking"));
	int64_t end = clock_mono_ms() + FACE_WAIT_MS;
	while (clock_mono_ms() < end &&
	       !*sh("ps -o stat= -p $(cat %s/sandboxes/%d/tools.pid) | grep '^T' || true", dir, (int)id))
		face_drain(20);
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	for (end = clock_mono_ms() + 1300; clock_mono_ms() < end;) /* an answer is waited for a second */
		face_drain(50);
	sh("kill -CONT $(cat %s/sandboxes/%d/tools.pid)", dir, (int)id);
	CHECK(face_wait_idle(id));
	for (end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end; clock_sleep_ms(20))
		if (!*sh("ps -o stat= -p $(cat %s/sandboxes/%d/home/check.pid) | grep -v '^Z' || true", dir, (int)id))
			break;
	CHECK(clock_mono_ms() < end);
	CHECK(strstr(face.last_error.text, "stopped") != NULL);
}

/* As early as can be: a run that has not taken its message yet must not go on, nor begin again. */
TEST(stop_right_after_the_start_of_a_run)
{
	CLEAN_BUF struct buf script = BUF_INIT;
	for (int i = 0; i < 20; i++)
		buf_adds(&script, "{\"text\":\"slow\",\"delay_ms\":100000}\n");
	int64_t id = face_session("early", buf_str(&script), "go");
	CHECK(has_asked(id, 1));
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	for (int i = 0; i < 15; i++) {
		CHECK_INT(face_do(REQ_MESSAGE, id, "again"), 0);
		CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
		CHECK(face_wait_idle(id));
	}
	CHECK_INT(face.view[id]->unanswered, 0);
}

/* The disk of a sandbox is gone, and the clone cannot be made anew at once, or its maker is killed: the next one does.
 */
TEST(a_lost_disk_comes_back_when_it_can)
{
	int64_t id = face_session("disk",
				  BASH("echo kept > kept.txt; git add .; git commit -qm one") SAY("one")
					  BASH("cat kept.txt") SAY("two"),
				  "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "down"), 0);
	CHECK(face_wait(id, "down"));
	sh("rm -r %s/sandboxes/%d; mv project/.git project/away", face.paths.state, (int)id);
	CHECK_INT(face_do(REQ_MESSAGE, id, "more"), 0);
	CHECK(face_wait(id, "failed"));
	sh("mv project/away project/.git");
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "\nkept\n") != NULL);
	CHECK_STR(face_text(id, TEXT_ANSWER), "two\n");
}

/* Sessions that wait for a worker all begin when config allows more, not one for each that ends. */
TEST(more_workers_take_all_that_wait)
{
	int64_t id[4];
	sh("rm -f let-go let-go0");
	face_config("workers = 1\n");
	id[0] = face_session("first", BASH("while [ ! -e ../../../../../let-go0 ]; do sleep 0.05; done") SAY("a"),
			     "go");
	CHECK(face_wait(id[0], "running bash"));
	for (int i = 1; i < 4; i++) {
		CLEAN_FREE char *name = xasprintf("later%d", i);
		id[i] = face_session(name, BASH("while [ ! -e ../../../../../let-go ]; do sleep 0.05; done") SAY("b"),
				     "go");
		CHECK(face_wait(id[i], "preparing"));
	}
	face_config("workers = 8\n");
	sh("touch let-go0");
	CHECK(face_wait_idle(id[0]));
	for (int i = 1; i < 4; i++)
		CHECK(face_wait(id[i], "running bash"));
	sh("touch let-go");
	for (int i = 1; i < 4; i++)
		CHECK(face_wait_idle(id[i]));
	face_config("");
}

TEST(work_that_is_not_on_its_branch_keeps_the_session)
{
	int64_t id = face_session("kept", WORK_LINES, "go");
	CHECK(face_wait_idle(id));
	sh("cd project && git commit-tree -p sandbox/%d -m other 'sandbox/%d^{tree}' > other && git update-ref "
	   "refs/heads/sandbox/%d $(cat other)",
	   (int)id, (int)id, (int)id);
	CHECK_INT(face_do(REQ_MESSAGE, id, "more"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(sh("cd project && git rev-parse sandbox/%d", (int)id), sh("cd project && cat other"));
	CHECK(strstr(face.last_error.text, "sandbox/"));
	CHECK_INT(face_do(REQ_DESTROY, id, ""), -EBUSY);
	CHECK_INT(face_do(REQ_CTL, id, "destroy force"), 0);
}

FACE_MAIN()
