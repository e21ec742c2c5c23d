/* Sandboxes at rest, in the engine: what keeps one awake, what wakes it, restarts. Of kind dir, which can only be down:
 * the steps are the same for all. */
#include "backend/base/fd.h"
#include "backend/db.h"
#include "face.h"

static bool wait_sandbox(int64_t id, const char *want)
{
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end;) {
		if (!strcmp(face_value(id, VALUE_SANDBOX), want))
			return true;
		face_drain(50);
	}
	printf("# its sandbox is \"%s\", not \"%s\"\n%s\n", face_value(id, VALUE_SANDBOX), want,
	       face_text(id, TEXT_LOG));
	return false;
}

static bool wait_log(int64_t id, const char *words)
{
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end; face_drain(50))
		if (strstr(face_text(id, TEXT_LOG), words))
			return true;
	printf("# not in the log: %s\n%s\n", words, face_text(id, TEXT_LOG));
	return false;
}

/* For what must not happen: some rounds of the thread that looks at sandboxes, which is told to look often. */
static void let_pass(int ms)
{
	for (int64_t end = clock_mono_ms() + ms; clock_mono_ms() < end;)
		face_drain(50);
}

/* Commits .agents/resume to the project. */
static void resume_script(const char *text)
{
	CLEAN_FREE char *folder = at("project/.agents");
	CLEAN_FREE char *script = at("project/.agents/resume");
	CHECK_INT(dir_make(folder, 0755, NULL), 0);
	file_write(script, text, strlen(text), 0644, NULL);
	sh("cd project && git add -A && git commit -qm resume");
}

static int64_t number(const char *sql, int64_t id)
{
	CLEAN_FREE char *path = at("state/berthfs.db");
	struct db *db = NULL;
	int64_t n = -1;
	if (!db_open(path, false, &db, NULL))
		n = !strcmp(sql, "wakes") ? db_int(db, -1, "SELECT wakes FROM idle WHERE session = ?", "i", id)
					  : db_int(db, -1, "SELECT quiet_ms FROM idle WHERE session = ?", "i", id);
	db_close(db);
	return n;
}

TEST(down_by_itself_and_woken_by_a_call)
{
	resume_script("echo resumed >>~/order; echo words of the script; exit 3\n");
	int64_t id = face_session("rest",
				  BASH("echo one >>~/order") SAY("first") BASH("echo call >>~/order; cat ~/order")
					  SAY("second") SAY("no tools"),
				  "go");
	CHECK(face_wait_idle(id));
	CHECK_STR(face_value(id, VALUE_SANDBOX), "dir running");
	face_config("idle.down = 1 s\nidle.pause = 1 s\nidle.hibernate = 1 s\n");
	CHECK(wait_sandbox(id, "dir down"));
	CHECK_STR(face_value(id, VALUE_STATUS), "down");
	CHECK(wait_log(id, "sandbox down: nothing was asked of it for the time of idle.down"));
	CHECK_STR(face_say(id, "again"), "second\n");
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "one\nresumed\ncall\n") != NULL);
	const char *log = face_text(id, TEXT_LOG);
	CHECK(strstr(log, ".agents/resume: words of the script") != NULL);
	CHECK(strstr(log, ".agents/resume ended with exit code 3") != NULL);
	CHECK_INT(number("wakes", id), 1);
	face_config("");
}

TEST(who_says_busy_is_kept_awake)
{
	int64_t id = face_session("busy",
				  BASH("mkdir -p ~/../busy && echo x >~/../busy/work") SAY("first")
					  BASH("rm ~/../busy/work") SAY("second"),
				  "go");
	CHECK(face_wait_idle(id));
	face_config("idle.down = 1 s\n");
	CHECK(wait_log(id, "kept awake"));
	CHECK(strstr(face_text(id, TEXT_LOG), "busy/work") != NULL);
	let_pass(2200);
	CHECK_STR(face_value(id, VALUE_SANDBOX), "dir running");
	CHECK_INT(face_count(face_text(id, TEXT_LOG), "kept awake"), 1); /* said once */
	CHECK_STR(face_say(id, "stop that"), "second\n");
	CHECK(wait_sandbox(id, "dir down"));
	face_config("");
}

/* A person who has not answered yet, and a command that runs, keep it awake. */
TEST(what_waits_or_runs_keeps_it_awake)
{
	face_config("approvals = on\napprovals.ask = bash\nidle.down = 1 s\n");
	int64_t asks = face_session("asks", BASH("echo allowed") SAY("done"), "go");
	CHECK(face_wait(asks, "waiting approval"));
	face_config("idle.down = 1 s\n");
	int64_t runs = face_session("runs",
				    BASH("while [ ! -e ../go-on ]; do sleep 0.05; done; echo slept") SAY("done"), "go");
	CLEAN_FREE char *go = xasprintf("%s/sandboxes/%d/home/go-on", face.paths.state, (int)runs);
	CHECK(face_wait(runs, "running bash"));
	let_pass(2200);
	CHECK_STR(face_value(asks, VALUE_SANDBOX), "dir running");
	CHECK_STR(face_value(runs, VALUE_SANDBOX), "dir running");
	CHECK_INT(file_write(go, "", 0, 0644, NULL), 0);
	CHECK(face_wait_idle(runs));
	CHECK(strstr(face_text(runs, TEXT_TRANSCRIPT), "slept") != NULL);
	struct request *r = face_request(REQ_APPROVE, asks, "once");
	r->number = 1;
	CHECK_INT(face_ask(r), 0);
	request_free(r);
	CHECK(face_wait_idle(asks));
	CHECK(strstr(face_text(asks, TEXT_TRANSCRIPT), "allowed") != NULL);
	CHECK(wait_sandbox(asks, "dir down"));
	CHECK(wait_sandbox(runs, "dir down"));
	face_config("");
}

/* Messages that come at any moment of going down: each is answered, with its tool's result. */
TEST(messages_against_going_down)
{
	CLEAN_BUF struct buf script = BUF_INIT;
	enum { ROUNDS = 5 };
	for (int i = 0; i <= ROUNDS; i++)
		buf_addf(&script, BASH("echo result %d") SAY("answer %d"), i, i);
	int64_t id = face_session("races", buf_str(&script), "go");
	CHECK(face_wait_idle(id));
	face_config("idle.down = 1 s\n");
	for (int i = 1; i <= ROUNDS; i++) {
		char want[32], result[32];
		let_pass(900 + i * 80);
		snprintf(want, sizeof want, "answer %d\n", i);
		snprintf(result, sizeof result, "\nresult %d\n", i);
		CHECK_STR(face_say(id, "more"), want);
		CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), result) != NULL);
	}
	CHECK_INT(face_count(face_text(id, TEXT_TRANSCRIPT), "interrupted"), 0);
	face_config("");
}

TEST(times_go_on_over_a_restart)
{
	CLEAN_FREE char *path = at("state/berthfs.db");
	struct db *db = NULL;
	int64_t id = face_session("times", BASH("echo x") SAY("first"), "go");
	CHECK(face_wait_idle(id));
	face_config("idle.down = 2 h\n");
	int64_t quiet = number("quiet", id);
	face_stop();
	CHECK_INT(face_start(), 0);
	let_pass(500);
	CHECK_INT(number("quiet", id), quiet);
	CHECK_STR(face_value(id, VALUE_SANDBOX), "dir running");
	face_stop();
	CHECK_INT(db_open(path, true, &db, NULL), 0);
	CHECK_INT(db_run(db, NULL, "UPDATE idle SET quiet_ms = quiet_ms - 7200000 WHERE session = ?", "i", id), 0);
	db_close(db);
	CHECK_INT(face_start(), 0);
	CHECK(wait_sandbox(id, "dir down"));
	/* a clock that was set back: they begin anew, and are not stuck */
	CHECK_INT(face_do(REQ_CTL, id, "resume"), 0);
	CHECK(wait_sandbox(id, "dir running"));
	CHECK(face_wait_idle(id));
	face_stop();
	CHECK_INT(db_open(path, true, &db, NULL), 0);
	CHECK_INT(db_run(db, NULL, "UPDATE idle SET quiet_ms = quiet_ms + 86400000 WHERE session = ?", "i", id), 0);
	db_close(db);
	CHECK_INT(face_start(), 0);
	face_config("idle.down = 1 s\n");
	CHECK(wait_sandbox(id, "dir down"));
	face_config("");
}

/* A daemon that ends while .agents/resume runs: the next one waits for the same run of it. */
TEST(resume_over_a_restart)
{
	resume_script("echo begun >>~/runs; while [ ! -e ~/go ]; do sleep 0.05; done; echo ended >>~/runs\n");
	int64_t id = face_session("again", BASH("echo x") SAY("first") BASH("cat ~/runs") SAY("second"), "go");
	CLEAN_FREE char *home = xasprintf("%s/sandboxes/%d/home", face.paths.state, (int)id);
	CLEAN_FREE char *runs = xasprintf("%s/runs", home);
	CLEAN_FREE char *go = xasprintf("%s/go", home);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "down"), 0);
	CHECK(wait_sandbox(id, "dir down"));
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_MESSAGE, id, "more"), 0);
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; !file_exists(runs) && clock_mono_ms() < end;)
		face_drain(20);
	CHECK(file_exists(runs));
	face_stop();
	CHECK_INT(face_start(), 0);
	let_pass(300);
	CHECK_INT(file_write(go, "", 0, 0644, NULL), 0);
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "\nbegun\nended\n") != NULL);
	CHECK_INT(face_count(face_text(id, TEXT_TRANSCRIPT), "begun"), 1);
}

/* Its sandbox dies under it: it is started again, and so is the script. */
TEST(resume_in_a_sandbox_that_dies)
{
	resume_script("echo begun >>~/runs; [ -e ~/again ] || { touch ~/again; sleep 1000; }\n");
	int64_t id = face_session("dies", BASH("echo x") SAY("first") BASH("cat ~/runs") SAY("second"), "go");
	CLEAN_FREE char *again = xasprintf("%s/sandboxes/%d/home/again", face.paths.state, (int)id);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "down"), 0);
	CHECK(wait_sandbox(id, "dir down"));
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_MESSAGE, id, "more"), 0);
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; !file_exists(again) && clock_mono_ms() < end;)
		face_drain(20);
	sh("kill -9 $(cat %s/sandboxes/%d/tools.pid)", face.paths.state, (int)id);
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_ANSWER), "second\n");
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "\nbegun\nbegun\n") != NULL);
	CHECK_INT(number("wakes", id), 2);
}

/* One that never ends is ended by `stop`, and the call that waited for it does not run. */
TEST(stop_ends_resume)
{
	resume_script("echo $$ >~/pid; sleep 1000\n");
	int64_t id =
		face_session("halt", BASH("echo x") SAY("first") BASH("touch ~/ran") SAY("second") SAY("third"), "go");
	CLEAN_FREE char *pid = xasprintf("%s/sandboxes/%d/home/pid", face.paths.state, (int)id);
	CLEAN_FREE char *ran = xasprintf("%s/sandboxes/%d/home/ran", face.paths.state, (int)id);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "down"), 0);
	CHECK(wait_sandbox(id, "dir down"));
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_MESSAGE, id, "more"), 0);
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; !file_exists(pid) && clock_mono_ms() < end;)
		face_drain(20);
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK(face_wait_idle(id));
	CHECK(!file_exists(ran));
	CHECK(wait_log(id, ".agents/resume: stopped"));
	bool gone = false;
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; !gone && clock_mono_ms() < end; clock_sleep_ms(20))
		gone = strstr(sh("kill -0 $(cat %s) 2>/dev/null && echo lives || echo gone", pid), "gone") != NULL;
	CHECK(gone);
	sh("cd project && git rm -q --cached .agents/resume && rm .agents/resume && git commit -qm gone");
}

TEST(verbs_of_a_kind_that_always_runs)
{
	int64_t id = face_session("verbs", BASH("echo x") SAY("first"), "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "pause"), -EOPNOTSUPP);
	CHECK(strstr(face.last_error.text, "kind dir") != NULL);
	CHECK_INT(face_do(REQ_CTL, id, "hibernate"), -EOPNOTSUPP);
	CHECK_INT(face_do(REQ_CTL, id, "pause now"), -EINVAL);
	CHECK_INT(face_do(REQ_CTL, id, "resume"), 0); /* it runs: nothing to do */
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "down"), 0);
	CHECK(wait_sandbox(id, "dir down"));
	CHECK(face_wait_idle(id));
	CHECK_INT(face_do(REQ_CTL, id, "resume"), 0);
	CHECK(wait_sandbox(id, "dir running"));
	CHECK(face_wait_idle(id));
	CHECK_STR(face_value(id, VALUE_STATUS), "idle");
}

TEST(settings)
{
	CHECK_INT(face_do(REQ_CONFIG_LINE, 0, "idle.pause = 5 m"), 0);
	CHECK_INT(face_do(REQ_CONFIG_LINE, 0, "idle.hibernate = off"), 0);
	CHECK_INT(face_do(REQ_CONFIG_LINE, 0, "idle.down = 0"), -EINVAL);
	CHECK_INT(face_do(REQ_CONFIG_LINE, 0, "idle.pause = soon"), -EINVAL);
	CHECK(strstr(face.last_error.text, "off, or a time") != NULL);
}

FACE_MAIN()
