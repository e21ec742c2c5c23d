/* Kills the engine, at named points and at random times, and looks whether anything was lost or done twice.
 *
 * Each round starts a child process with a whole backend (no mount: see face.h) on the same database and lets it die by
 * SIGKILL. A last start without a kill has to bring everything to its end. The oracle: every acknowledged message
 * stands once in the transcript and is answered, no other more than once; every tool call's effect (a line in a file
 * of the sandbox) was made once; the transcript has neither gap nor repeat; what was shipped is on the remote.
 *
 * crash [KILLS [SEED]]: each named point once, then random times and now and then a point. No seed: that of the time.
 * CRASH_VMS=N: so many of the sessions have a VM, of the base image in the user's cache. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "backend/base/json.h"
#include "backend/db.h"
#include "tests/unit/face.h"

#define SESSIONS   20
#define ASKING	   12 /* from here to TALKING each command waits for a word */
#define KEPT_FILES 64 /* newest outputs that a sandbox keeps */
#define SHIPPING   4  /* of them ship now and then */
#define TALKING	   16 /* from here on they only talk, and compact */
#define MESSAGES   60 /* to each session at most, over all rounds; fewer if there are few rounds */

/* What parent and children know of each other: acknowledged messages. In shared memory, since a child is killed. */
static struct shared {
	int64_t id[SESSIONS];
	bool sent[SESSIONS][MESSAGES], acked[SESSIONS][MESSAGES];
	bool put[SESSIONS][MESSAGES], kept[SESSIONS][MESSAGES]; /* files in attach/ */
	bool shipped[SESSIONS];
} * shared;

static int rounds;	  /* kills that are wanted */
static int messages_max;  /* to each session */
static int vms;		  /* sessions from SHIPPING on that have a VM */
static int lost, doubled; /* found by the oracle */

/* Named points, and how often each is passed before it kills, at most. */
static const struct point {
	const char *name;
	unsigned passes;
} points[] = {{"store.begin", 200},  {"store.commit", 200}, {"message.commit", 5}, {"prepare.clone", 10},
	      {"turn.pinned", 20},   {"model.request", 20}, {"model.reply", 20},   {"turn.done", 20},
	      {"call.intent", 20},   {"tool.start", 10},    {"tool.end", 20},	   {"call.result", 20},
	      {"sync.fetched", 10},  {"ship.pushing", 2},   {"ship.pushed", 2},	   {"compact.pinned", 5},
	      {"compact.reply", 5},  {"compact.done", 5},   {"approval.asked", 5}, {"approval.answered", 5},
	      {"attach.written", 5}, {"attach.commit", 5},  {"attach.there", 5}};

static const char *kind_of(int s)
{
	return s >= SHIPPING && s < SHIPPING + vms ? "vm" : "dir";
}

/* ---- the child ---- */

/* Each step edits a file, adds a line to another outside of git, and commits; each third one has more output than a
 * result shows, so that it is kept in the sandbox. */
static void script_for(int s, struct buf *out)
{
	for (int i = 0; i < 10 * (messages_max + rounds) && s >= TALKING; i++) /* an answer or a summary, as it comes */
		buf_addf(out, "{\"text\":\"words %d %0*d\",\"delay_ms\":%d}\n", i, 500, 0, i % 4 * 10);
	if (s >= TALKING)
		return;
	int steps = 2 * messages_max + 40 + (s < SHIPPING ? 2 * rounds : 0); /* a ship takes one too */
	for (int i = 0; i < steps; i++)
		buf_addf(out,
			 "{\"text\":\"step "
			 "%d\",\"tools\":[{\"name\":\"edit\",\"input\":{\"path\":\"edited%d.txt\",\"edits\":"
			 "[{\"oldText\":\"mark\",\"newText\":\"%d "
			 "mark\"}]}},{\"name\":\"bash\",\"input\":{\"command\":\"echo line-%d >> "
			 "../count; seq %d; git commit -qam w%d%s\"}}]}\n"
			 "{\"text\":\"answer %d\\nSHIP-READY\\n\",\"delay_ms\":20}\n",
			 i, s, i, i, i % 3 ? 10 : 3000, i, s < SHIPPING ? " && git rebase -q refs/berthfs/base" : "",
			 i);
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
	CLEAN_FREE char *text =
		xasprintf("---\nmodel: script:%s\napprovals: %s\nsandbox: %s\nsize: mini\n---\nbegin %d\n", path,
			  s >= ASKING && s < TALKING ? "on" : "off", kind_of(s), s);
	shared->id[s] = face_create(name, text);
	if (!shared->id[s]) {
		printf("# %s is refused: %s\n", name, face.last_error.text);
		_exit(9);
	}
}

/* A file that goes with message m, or with a later one. */
static void attach(int s, int m)
{
	if (shared->put[s][m])
		return;
	struct request *r = request_new(REQ_ATTACH, NULL, NULL);
	r->session = shared->id[s];
	r->name = xasprintf("file-%d-%d", s, m);
	buf_adds(&r->text, r->name);
	shared->put[s][m] = true;
	if (!face_ask(r))
		shared->kept[s][m] = true;
	request_free(r);
}

static void send(int s, int m)
{
	if (s >= TALKING)
		attach(s, m);
	CLEAN_FREE char *text = xasprintf("message-%d-%d", s, m);
	shared->sent[s][m] = true;
	if (!face_do(REQ_MESSAGE, shared->id[s], text))
		shared->acked[s][m] = true;
}

/* Until nothing runs, with a word for whatever waits for one. */
static void settle(void)
{
	int64_t end = clock_mono_ms() + (vms ? 20 : 4) * FACE_WAIT_MS;
	for (int busy = 1; busy; face_drain(busy ? 20 : 0)) {
		busy = 0;
		for (int s = 0; s < SESSIONS; s++) {
			const struct view *v = face.view[shared->id[s]];
			busy += !v || !v->idle;
			if (!v || !v->approval)
				continue;
			struct request *r = face_request(REQ_APPROVE, shared->id[s], "once");
			r->number = v->approval;
			face_ask(r);
			request_free(r);
		}
		if (clock_mono_ms() > end)
			_exit(8);
	}
}

/* Lives until it is killed or everything is done. */
static void child_main(const char *kill_at, int messages, bool ship)
{
	if (kill_at)
		setenv("BERTHFS_KILL_AT", kill_at, 1);
	if (face_start())
		_exit(9);
	CLEAN_BUF struct buf windows = BUF_INIT;
	for (int s = TALKING; s < SESSIONS; s++)
		buf_addf(&windows, "model.script:%s/crash%d.script.window = 8000\n", fixture_root, s);
	buf_adds(&windows, "approvals.ask = bash\n");
	if (vms)
		buf_adds(&windows, "sandbox.boot-timeout = 600 s\n"); /* emulated, with twenty sessions beside them */
	face_config(buf_str(&windows));
	face_drain(0);
	for (int s = 0; s < SESSIONS; s++)
		create_or_find(s);
	for (int m = 0; m < messages; m++)
		for (int s = 0; s < SESSIONS; s++)
			if (!shared->sent[s][m])
				send(s, m);
	settle();
	for (int s = TALKING; s < SESSIONS; s++)
		face_do(REQ_CTL, shared->id[s], "compact");
	for (int s = 0; s < SHIPPING && ship; s++)
		if (!face_do(REQ_SHIP, shared->id[s], ""))
			shared->shipped[s] = true;
	settle();
	face_stop();
	_exit(0);
}

/* ---- the parent ---- */

static bool round_of(const char *kill_at, int kill_ms, int messages, bool ship, int *killed)
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
	*killed += WIFSIGNALED(status);
	bool good = WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0;
	if (!good)
		printf("# the child ended with %s %d\n", WIFSIGNALED(status) ? "signal" : "exit code",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return good;
}

/* ---- the oracle ---- */

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
	const char *last = jsonl;
	for (int m = 0; m < messages_max; m++) {
		CLEAN_FREE char *text = xasprintf("\"text\":\"message-%d-%d\"", s, m);
		int n = face_count(jsonl, text);
		lost += shared->acked[s][m] && !n;
		doubled += n > 1;
		const char *here = strstr(jsonl, text);
		CHECK(!here || here >= last); /* in the order in which they were sent */
		last = here ? here : last;
	}
}

/* Files: each acknowledged one has gone with one message, and is in the sandbox. */
static void check_attached(int s, const char *jsonl)
{
	const struct view *v = face.view[shared->id[s]];
	for (int m = 0; m < messages_max; m++) {
		CLEAN_FREE char *name = xasprintf("file-%d-%d", s, m);
		CLEAN_FREE char *field = xasprintf("{\"name\":\"%s\"", name);
		int n = face_count(jsonl, field);
		for (size_t i = 0; i < v->n_attach; i++) /* acknowledged by nobody, and after the last message */
			n += !strcmp(v->attach[i].name, name);
		lost += shared->kept[s][m] && !n;
		doubled += n > 1;
		if (face_count(jsonl, field) &&
		    strcmp(sh("cat state/sandboxes/%" PRId64 "/home/attach/*/%s", v->id, name), name)) {
			printf("# %s is not in the sandbox\n", name);
			lost++;
		}
	}
}

static void same_effects(const char *what, const struct buf *got, const struct buf *want)
{
	if (got->n < want->n)
		lost++;
	else if (got->n > want->n)
		doubled++;
	if (strcmp(buf_str(got), buf_str(want)))
		printf("# %s\n# is   %s\n# not  %s\n", what, buf_str(got), buf_str(want));
	check_failed |= strcmp(buf_str(got), buf_str(want)) != 0;
}

/* A file of the session's sandbox, below its home. */
static void read_home(int s, const char *name, struct buf *out)
{
	struct env *env = NULL;
	struct err err = ERR_INIT;
	if (env_open(&face.paths, kind_of(s), shared->id[s], NULL, &env, &err)) {
		printf("# sandbox %" PRId64 ": %s\n", shared->id[s], err.text);
		check_failed = 1;
		return;
	}
	CLEAN_FREE char *path = xasprintf("%s/%s", env_home(env), name);
	env_read(env, path, 0, 1 << 20, out, NULL);
	env_close(env);
}

/* Effects: line-0, line-1... each once, in order, and as many as the transcript has calls. */
static void check_effects(int s, const char *jsonl)
{
	CLEAN_BUF struct buf got = BUF_INIT;
	CLEAN_BUF struct buf want = BUF_INIT;
	CLEAN_FREE char *edited = xasprintf("project/edited%d.txt", s);
	if (s >= TALKING)
		return;
	read_home(s, "count", &got);
	int calls = face_count(jsonl, "\"kind\":\"tool_call\",\"id\"") / 2;
	for (int i = 0; i < calls; i++)
		buf_addf(&want, "line-%d\n", i);
	same_effects("count", &got, &want);
	CHECK_INT(face_count(jsonl, "\"kind\":\"tool_result\""), 2 * calls);
	CHECK_INT(face_count(jsonl, "interrupted"), 0);
	buf_reset(&got);
	buf_reset(&want);
	read_home(s, edited, &got);
	for (int i = 0; i < calls; i++)
		buf_addf(&want, "%d ", i);
	buf_adds(&want, "mark\n");
	same_effects(edited, &got, &want);
}

/* What the database must hold once everything has ended: the ledgers of steps without gaps, nothing left open. */
static void check_tables(void)
{
	static const struct {
		const char *sql, *what;
	} zero[] = {
		{"SELECT count(*) FROM (SELECT count(*) c, max(n) m FROM requests GROUP BY session) WHERE c<>m",
		 "requests with gaps"},
		{"SELECT count(*) FROM requests WHERE state NOT IN ('done','failed')", "requests without an end"},
		{"SELECT count(*) FROM calls WHERE state<>'done'", "calls without a result"},
		{"SELECT count(*) FROM messages WHERE state<>'answered'", "messages without an answer"},
		{"SELECT count(*) FROM (SELECT count(*) c, max(k) m FROM messages GROUP BY session) WHERE c<>m",
		 "messages with gaps"},
		{"SELECT count(*)<>max(seq) FROM events", "events with gaps"},
		{"SELECT count(*) FROM (SELECT e.off + length(CAST(e.line AS BLOB)) o, (SELECT off FROM events n WHERE "
		 "n.seq=e.seq+1) f "
		 "FROM events e) WHERE o<>f",
		 "events that do not join"},
		{"SELECT count(*) FROM (SELECT seq, md_off + length(CAST(md AS BLOB)) o, lead(md_off) OVER (PARTITION "
		 "BY session ORDER BY seq) f "
		 "FROM entries) WHERE f IS NOT NULL AND o<>f",
		 "transcripts that do not join"},
		{"SELECT count(*) FROM ships WHERE step<>''", "ships without an end"},
		{"SELECT count(*)=0 FROM summaries", "compactions too few"},
		{"SELECT count(*)-(SELECT count(*) FROM requests WHERE kind='summary' AND state='done') FROM summaries",
		 "summaries made twice or lost"},
		{"SELECT count(*) FROM summaries s WHERE NOT EXISTS (SELECT 1 FROM entries e WHERE e.session=s.session "
		 "AND "
		 "e.seq=s.made AND e.kind='notice')",
		 "summaries that nobody was told of"},
	};
	struct db *db = NULL;
	CLEAN_FREE char *path = at("state/berthfs.db");
	CHECK_INT(db_open(path, false, &db, NULL), 0);
	for (size_t i = 0; db && i < ARRAY_LEN(zero); i++) {
		int64_t n = db_int(db, -1, zero[i].sql, "");
		if (n) {
			printf("# %" PRId64 " %s\n", n, zero[i].what);
			check_failed = 1;
		}
	}
	db_close(db);
}

/* What was told to the model to be kept in the sandbox is there, and the tool daemon remembers no job of a call any
 * more. */
static void check_kept(int s)
{
	int64_t id = shared->id[s];
	struct env *env = NULL;
	CHECK_INT(env_open(&face.paths, kind_of(s), id, NULL, &env, NULL), 0);
	if (!strcmp(kind_of(s), "dir"))
		CHECK_STR(sh("ls state/sandboxes/%" PRId64 "/jobs/run | grep '[.][0-9]*[.][0-9]*$' || true", id), "");
	const char *all = face_text(id, TEXT_TRANSCRIPT);
	int older = face_count(all, "all of it is in ") - KEPT_FILES; /* newer ones have pushed them out */
	for (const char *p = all; (p = strstr(p, "all of it is in ")); p++) {
		if (older-- > 0)
			continue;
		struct env_stat st = {0};
		const char *from = p + strlen("all of it is in ");
		CLEAN_FREE char *path = xstrndup(from, strcspn(from, " "));
		if (env_stat(env, path, &st, NULL)) {
			printf("# %s is not there\n", path);
			lost++;
		}
		free(st.real);
	}
	env_close(env);
}

static void check_ship(int s)
{
	const char *ship = face_value(shared->id[s], VALUE_SHIP);
	printf("# session %d: %s\n", s, ship);
	CHECK(!strncmp(ship, "landed main", 11) || !strncmp(ship, "already on main", 15) ||
	      !strncmp(ship, "check failed: not rebased", 25) || !strncmp(ship, "moved", 5));
	if (!strncmp(ship, "landed", 6))
		CHECK_STR(sh("cd remote.git && git merge-base --is-ancestor %s main && echo yes", ship + 12), "yes");
}

static void oracle(void)
{
	CHECK(round_of(NULL, 0, messages_max, true, &(int){0}));
	CHECK_INT(face_start(), 0);
	face_drain(0);
	for (int s = 0; s < SESSIONS; s++) {
		int64_t id = shared->id[s];
		const char *jsonl = face_text(id, TEXT_JSONL);
		CHECK(face_wait_idle(id));
		CHECK_INT(face.view[id]->unanswered, 0);
		check_transcript(s, jsonl);
		check_effects(s, jsonl);
		if (s >= TALKING)
			check_attached(s, jsonl);
		check_kept(s);
		if (s < SHIPPING)
			check_ship(s);
	}
	check_tables();
	CHECK_INT(lost, 0);
	CHECK_INT(doubled, 0);
}

/* The user's cache, which has the image, in the place of one of our own. */
static void use_cache(void)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char exe[4096];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	const char *text = "sandbox = dir\nsandbox.allow-dir = yes\n";
	face.paths = (struct paths){.state = at("state"),
				    .cache = xdg ? xasprintf("%s/berthfs", xdg) : xasprintf("%s/.cache/berthfs", home),
				    .runtime = at("run"),
				    .config = at("config"),
				    .self = xstrndup(exe, (size_t)n)};
	dir_make(face.paths.state, 0700, NULL);
	dir_make(face.paths.runtime, 0700, NULL);
	file_write(face.paths.config, text, strlen(text), 0600, NULL);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "vm-keeper"))
		return sandbox_keeper_main(argc - 1, argv + 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "tool-daemon"))
		return sandbox_tools_main(argc - 1, argv + 1);
	rounds = argc > 1 ? atoi(argv[1]) : 50;
	unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)time(NULL);
	signal(SIGPIPE, SIG_IGN);
	fixture_begin();
	face_project();
	sh("cd project && for i in $(seq 0 %d); do echo mark > edited$i.txt; done && git add . && git commit -qm mark "
	   "&& "
	   "git push -q",
	   SESSIONS - 1);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	messages_max = rounds / 8 < 6 ? 6 : rounds / 8 > MESSAGES ? MESSAGES : rounds / 8;
	vms = getenv("CRASH_VMS") ? atoi(getenv("CRASH_VMS")) : 0;
	if (vms)
		use_cache();
	printf("# %d kills, seed %u, %d of %d sessions in VMs\n", rounds, seed, vms, SESSIONS);
	bool good = true;
	int killed = 0;
	for (int i = 0; killed < rounds && i < 3 * rounds && good; i++) {
		const struct point *p = &points[i % (int)ARRAY_LEN(points)];
		bool named = i < (int)ARRAY_LEN(points) || i % 4 == 0;
		CLEAN_FREE char *place = xasprintf("%s:%d", p->name, 1 + (int)((unsigned)rand_r(&seed) % p->passes));
		int ms = 20 + (int)(rand_r(&seed) % 1000);
		good = round_of(named ? place : NULL, named ? 5000 : ms, 1 + killed * messages_max / rounds, i % 3 == 2,
				&killed);
	}
	check_failed = !good;
	oracle();
	printf("# %d kills, %d lost, %d doubled\n", killed, lost, doubled);
	printf("%s nothing_is_lost_or_done_twice\n", check_failed ? "not ok" : "ok");
	face_end();
	for (int s = 0; s < SESSIONS && vms; s++)
		sandbox_destroy(&face.paths, kind_of(s), shared->id[s], NULL);
	return check_failed;
}
