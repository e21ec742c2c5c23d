/* Kills the engine, at named points and at random times, and looks whether anything was lost or done twice.
 *
 * Each round starts a child process with a whole backend (no mount: see face.h) on the same database and lets it die by
 * SIGKILL. A last start without a kill has to bring everything to its end. The oracle: every acknowledged message
 * stands once in the transcript and is answered, no other more than once; every tool call's effect (a line in a file
 * of the sandbox) was made once; the transcript has neither gap nor repeat; what was shipped is on the remote.
 *
 * crash [ROUNDS [SEED]]: named points first, then random times. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "backend/base/json.h"
#include "tests/unit/face.h"

#define SESSIONS 4
#define MESSAGES 6 /* to each session, over all rounds */

/* What parent and children know of each other: acknowledged messages. In shared memory, since a child is killed. */
static struct shared {
	int64_t id[SESSIONS];
	bool sent[SESSIONS][MESSAGES], acked[SESSIONS][MESSAGES];
	bool shipped[SESSIONS];
} * shared;

static const char *const points[] = {"message.commit", "prepare.clone", "turn.pinned",	"turn.done",  "call.intent",
				     "call.result",    "sync.fetched",	"ship.pushing", "ship.pushed"};

/* ---- the child ---- */

static void script_for(int s, struct buf *out)
{
	for (int i = 0; i < 8 * MESSAGES; i++)
		buf_addf(out,
			 "{\"text\":\"step "
			 "%d\",\"tools\":[{\"name\":\"edit\",\"input\":{\"path\":\"edited%d.txt\",\"edits\":"
			 "[{\"oldText\":\"mark\",\"newText\":\"%d "
			 "mark\"}]}},{\"name\":\"bash\",\"input\":{\"command\":\"echo line-%d >> "
			 "../count && git add . && git commit -qm w%d && git rebase -q refs/berthfs/base && sleep "
			 "0.05\"}}]}\n"
			 "{\"text\":\"answer %d\\nSHIP-READY\\n\",\"delay_ms\":20}\n",
			 i, s, i, i, i, i);
}

static void create_or_find(int s)
{
	CLEAN_FREE char *name = xasprintf("crash%d", s);
	CLEAN_FREE char *file = xasprintf("%s.script", name);
	for (int i = 1; i < FACE_SESSIONS; i++)
		if (face.view[i] && !strcmp(face.view[i]->name, name))
			shared->id[s] = i;
	if (shared->id[s])
		return;
	CLEAN_BUF struct buf script = BUF_INIT;
	script_for(s, &script);
	CLEAN_FREE char *path = face_script(file, buf_str(&script));
	CLEAN_FREE char *text = xasprintf("---\nmodel: script:%s\n---\nbegin %d\n", path, s);
	shared->id[s] = face_create(name, text);
	if (!shared->id[s]) {
		printf("# %s is refused: %s\n", name, face.last_error.text);
		_exit(9);
	}
}

static void send(int s, int m)
{
	CLEAN_FREE char *text = xasprintf("message-%d-%d", s, m);
	shared->sent[s][m] = true;
	if (!face_do(REQ_MESSAGE, shared->id[s], text))
		shared->acked[s][m] = true;
}

/* Lives until it is killed or everything is done. */
static void child_main(const char *kill_at, int messages, bool ship)
{
	if (kill_at)
		setenv("BERTHFS_KILL_AT", kill_at, 1);
	if (face_start())
		_exit(9);
	face_drain(0);
	for (int s = 0; s < SESSIONS; s++)
		create_or_find(s);
	for (int m = 0; m < messages; m++)
		for (int s = 0; s < SESSIONS; s++)
			if (!shared->sent[s][m])
				send(s, m);
	for (int s = 0; s < SESSIONS; s++)
		if (!face_wait_idle(shared->id[s]))
			_exit(8);
	for (int s = 0; s < SESSIONS && ship; s++)
		if (!face_do(REQ_SHIP, shared->id[s], ""))
			shared->shipped[s] = true;
	for (int s = 0; s < SESSIONS; s++)
		if (!face_wait_idle(shared->id[s]))
			_exit(8);
	face_stop();
	_exit(0);
}

/* ---- the parent ---- */

static bool round_of(const char *kill_at, int kill_ms, int messages, bool ship)
{
	int status;
	fflush(stdout);
	pid_t pid = fork();
	if (!pid)
		child_main(kill_at, messages, ship);
	for (int ms = 0; waitpid(pid, &status, WNOHANG) == 0; ms++) {
		if (kill_ms && ms == kill_ms)
			kill(pid, SIGKILL);
		clock_sleep_ms(1);
	}
	bool good = WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0;
	if (!good)
		printf("# the child ended with %s %d\n", WIFSIGNALED(status) ? "signal" : "exit code",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return good;
}

/* ---- the oracle ---- */

static int count(const char *hay, const char *needle)
{
	int n = 0;
	for (const char *p = hay; (p = strstr(p, needle)); p += strlen(needle))
		n++;
	return n;
}

static void check_transcript(int s, const char *jsonl)
{
	int64_t want = 1, seq;
	CLEAN_FREE char *copy = xstrdup(jsonl);
	char *rest = copy;
	for (char *line; (line = strsep(&rest, "\n"));) {
		if (!*line)
			continue;
		CLEAN_JSON cJSON *o = json_parse(line, strlen(line), NULL);
		CHECK(o != NULL);
		CHECK(json_int(o, "seq", &seq));
		CHECK_INT(seq, want);
		want++;
	}
	for (int m = 0; m < MESSAGES; m++) {
		CLEAN_FREE char *text = xasprintf("\"text\":\"message-%d-%d\"", s, m);
		int n = count(jsonl, text);
		if (shared->acked[s][m])
			CHECK_INT(n, 1);
		else
			CHECK(n <= 1);
	}
}

/* Effects: line-0, line-1... each once, in order, and as many as the transcript has calls. */
static void check_effects(int s, const char *jsonl)
{
	int64_t id = shared->id[s];
	CLEAN_FREE char *path = xasprintf("%s/sandboxes/%" PRId64 "/home/count", face.paths.state, id);
	CLEAN_BUF struct buf got = BUF_INIT;
	CLEAN_BUF struct buf want = BUF_INIT;
	file_read(path, &got, 1 << 20, NULL);
	int calls = count(jsonl, "\"kind\":\"tool_call\",\"id\"") / 2;
	for (int i = 0; i < calls; i++)
		buf_addf(&want, "line-%d\n", i);
	CHECK_STR(buf_str(&got), buf_str(&want));
	CHECK_INT(count(jsonl, "\"kind\":\"tool_result\""), 2 * calls);
	CHECK_INT(count(jsonl, "interrupted"), 0);
	CLEAN_FREE char *edited =
		xasprintf("%s/sandboxes/%" PRId64 "/home/project/edited%d.txt", face.paths.state, id, s);
	buf_reset(&got);
	buf_reset(&want);
	file_read(edited, &got, 1 << 20, NULL);
	for (int i = 0; i < calls; i++)
		buf_addf(&want, "%d ", i);
	buf_adds(&want, "mark\n");
	CHECK_STR(buf_str(&got), buf_str(&want));
}

static void oracle(void)
{
	CHECK(round_of(NULL, 0, MESSAGES, true));
	CHECK_INT(face_start(), 0);
	face_drain(0);
	for (int s = 0; s < SESSIONS; s++) {
		int64_t id = shared->id[s];
		const char *jsonl = face_text(id, TEXT_JSONL);
		CHECK(face_wait_idle(id));
		CHECK_INT(face.view[id]->unanswered, 0);
		check_transcript(s, jsonl);
		check_effects(s, jsonl);
		const char *ship = face_value(id, VALUE_SHIP);
		printf("# session %d: %s, %d calls, run %s\n", s, ship,
		       count(jsonl, "\"kind\":\"tool_call\",\"id\"") / 2, face_value(id, VALUE_STATUS));
		CHECK(!strncmp(ship, "landed main", 11) || !strncmp(ship, "already on main", 15) ||
		      !strncmp(ship, "check failed: not rebased", 25) || !strncmp(ship, "moved", 5));
		if (!strncmp(ship, "landed", 6))
			CHECK_INT(strcmp(sh("cd remote.git && git merge-base --is-ancestor %s main && echo yes",
					    ship + 12),
					 "yes"),
				  0);
	}
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "tool-daemon"))
		return sandbox_tools_main(argc - 1, argv + 1);
	int rounds = argc > 1 ? atoi(argv[1]) : 50;
	unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)time(NULL);
	signal(SIGPIPE, SIG_IGN);
	fixture_begin();
	face_project();
	sh("cd project && for i in 0 1 2 3; do echo mark > edited$i.txt; done && git add . && git commit -qm mark && "
	   "git push -q");
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	printf("# %d rounds, seed %u\n", rounds, seed);
	bool good = true;
	for (int i = 0; i < rounds && good; i++) {
		int messages = 1 + i * MESSAGES / rounds;
		bool named = i < (int)ARRAY_LEN(points) * 2;
		CLEAN_FREE char *at =
			xasprintf("%s:%d", points[i % (int)ARRAY_LEN(points)], 1 + (int)(rand_r(&seed) % 3));
		good = round_of(named ? at : NULL, named ? 30000 : 20 + (int)(rand_r(&seed) % 900), messages,
				i % 3 == 2);
	}
	check_failed = !good;
	oracle();
	printf("%s nothing_is_lost_or_done_twice_in_%d_kills\n", check_failed ? "not ok" : "ok", rounds);
	face_end();
	return check_failed;
}
