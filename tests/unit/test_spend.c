/* What was used: the tables follow from the chain, whenever the process is killed. Never less than what the chain has,
 * and nothing twice. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/base/json.h"
#include "gateway/spend.h"
#include "ledger_box.h"

enum point { NOWHERE, GATHER, WRITE, WROTE, WRITTEN, POINTS };

struct till {
	struct box b;
	struct spend s;
	struct meter m;
	enum point die; /* the process is killed there */
	int after;	/* at the so manieth time */
	size_t full;	/* rows that are gathered */
};

static void reach(struct till *t, enum point here)
{
	if (t->die == here && !t->after--)
		kill(getpid(), SIGKILL);
}

static int gather(void *arg, const char *text, size_t n)
{
	struct till *t = arg;
	reach(t, GATHER);
	return spend_gather(&t->s, text, n);
}

static bool full(void *arg)
{
	struct till *t = arg;
	return spend_full(&t->s) || t->s.n >= t->full;
}

static int write_all(sqlite3 *db, void *arg, struct err *err)
{
	struct till *t = arg;
	reach(t, WRITE);
	int rc = spend_write(db, &t->s, err);
	reach(t, WROTE);
	return rc;
}

static void written(void *arg)
{
	struct till *t = arg;
	reach(t, WRITTEN);
	spend_forget(&t->s);
}

static const struct ledger_tables tables = {gather, full, write_all, written};

static int open_till(struct till *t, const char *dir, enum point die, int after, size_t rows)
{
	*t = (struct till){.die = die, .after = after, .full = rows};
	struct ledger_config c = {.dir = dir, .checkpoint = 100, .schema = spend_schema, .tables = &tables, .arg = t};
	queue_init(&t->b.done);
	int rc = ledger_open(&c, &t->b.done, &t->b.l, &t->b.unknown, &t->b.err);
	if (rc)
		queue_release(&t->b.done);
	else
		meter_init(&t->m, ledger_reader(t->b.l));
	return rc;
}

static void close_till(struct till *t)
{
	meter_release(&t->m);
	close_box(&t->b);
	spend_release(&t->s);
}

/* A record with a change: into the ledger by the caller if it may be, else by the thread. */
static uint64_t record(struct till *t, uint64_t of, bool open, const struct meter_change *c)
{
	struct ledger_record *r = ledger_record_new(of ? "outcome" : "decision");
	r->of = of;
	r->open = open;
	ledger_text(r, "verdict", "allowed");
	ledger_int(r, "of", (int64_t)of);
	ledger_text(r, "session", c->keys[SCOPE_SESSION]);
	ledger_int(r, "tokens", c->tokens);
	ledger_int(r, "nano", c->nano);
	spend_text(c, &r->aside);
	struct err err = ERR_INIT;
	CHECK_INT(ledger_write(t->b.l, r) ? 0 : ledger_append_wait(t->b.l, r, &err), 0);
	uint64_t seq = r->seq;
	ledger_record_free(r);
	return seq;
}

static const struct price three = {.input = 3000000, .output = 15000000, .cache_read = 300000, .cache_write = 3750000};

/* Requests of three sessions, until it is killed; the number of each record goes to `to` once it is written. */
static void trade(struct till *t, int to, unsigned seed, int steps)
{
	struct policy *p = NULL;
	struct {
		struct hold h;
		uint64_t seq;
	} open[8] = {0};
	static const char text[] = "limit session requests-per-minute 100000\n";
	struct err err = ERR_INIT;
	if (policy_parse(text, sizeof text - 1, &p, &err))
		_exit((printf("# %s\n", err.text), fflush(stdout), 3));
	for (int i = 0; i < steps; i++) {
		unsigned which = (seed = seed * 1103515245 + 12345) >> 16 & 7, how = seed >> 20 & 15;
		struct meter_change c;
		struct denial d;
		uint64_t seq;
		char session[] = {'a', (char)('0' + how % 3), 0};
		struct ask q = {.api = API_MESSAGES, .price = &three, .input = 100 + how, .answer = 50};
		struct usage u = {.input = 10 + how, .output = how};
		if (!open[which].seq) {
			if (meter_reserve(&t->m, p, session, "p", &q, &open[which].h, &c, &d))
				_exit(4);
			seq = open[which].seq = record(t, 0, true, &c);
		} else {
			meter_settle(&t->m, &open[which].h, &three, how ? &u : NULL, &c);
			seq = record(t, open[which].seq, false, &c);
			open[which].seq = 0;
		}
		if (to >= 0 && write(to, &seq, sizeof seq) != sizeof seq)
			_exit(5);
	}
	policy_put(p);
}

/* What the chain says of a session, by its lines. */
static void sum_chain(struct till *t, const char *key, int64_t *tokens, int64_t *nano)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	struct ledger_head h;
	*tokens = *nano = 0;
	ledger_head(t->b.l, &h);
	CHECK_INT(ledger_read(t->b.l, 0, h.bytes, &text, NULL), 0);
	for (char *rest = text.p, *line; (line = strsep(&rest, "\n"));) {
		CLEAN_JSON cJSON *o = json_parse(line, strlen(line), NULL);
		const char *session = json_str(o, "session");
		int64_t n = 0, m = 0;
		if (!session || strcmp(session, key) || !json_int(o, "tokens", &n) || !json_int(o, "nano", &m))
			continue;
		*tokens += n;
		*nano += m;
	}
}

static void same_as_chain(struct till *t, const char *what)
{
	for (int i = 0; i < 3; i++) {
		char key[] = {'s', ':', 'a', (char)('0' + i), 0};
		int64_t tokens, nano, want_tokens, want_nano;
		sum_chain(t, key, &want_tokens, &want_nano);
		meter_spend(&t->m, key + 2, &tokens, &nano);
		if (tokens != want_tokens || nano != want_nano)
			printf("# %s, %s: %lld tokens and %lld, the chain says %lld and %lld\n", what, key,
			       (long long)tokens, (long long)nano, (long long)want_tokens, (long long)want_nano);
		CHECK(tokens == want_tokens && nano == want_nano);
	}
}

/* In the tables the project and the days have as much as the sessions together. */
static void scopes_agree(const char *dir)
{
	static const char text[] = "SELECT sum(tokens), sum(nano), sum(requests) FROM spend WHERE key GLOB ?";
	static const char *const keys[] = {"s:*", "p:p", "d:*"};
	int64_t got[3][3];
	sqlite3 *db;
	sqlite3_stmt *st;
	CLEAN_FREE char *path = xasprintf("%s/ledger.db", dir);
	CHECK_INT(sqlite3_open(path, &db), 0);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(sqlite3_prepare_v2(db, text, -1, &st, NULL), 0);
		sqlite3_bind_text(st, 1, keys[i], -1, SQLITE_STATIC);
		CHECK_INT(sqlite3_step(st), SQLITE_ROW);
		for (int j = 0; j < 3; j++)
			got[i][j] = sqlite3_column_int64(st, j);
		sqlite3_finalize(st);
		CHECK(got[i][0] > 0 && !memcmp(got[i], got[0], sizeof got[0]));
	}
	sqlite3_close(db);
}

/* A child that trades until it is killed, at a point or by us after so many records; the last number that it told of.
 */
static uint64_t run(const char *dir, enum point die, int after, unsigned seed, int records)
{
	int pipes[2], status;
	uint64_t last = 0, seq;
	CHECK_INT(pipe(pipes), 0);
	pid_t pid = fork();
	if (!pid) {
		struct till t;
		close(pipes[0]);
		if (open_till(&t, dir, die, after, 4 + seed % 5))
			_exit(2);
		trade(&t, pipes[1], seed, 100000);
		_exit(6);
	}
	close(pipes[1]);
	for (int i = 0; read(pipes[0], &seq, sizeof seq) == sizeof seq; i++) {
		last = seq;
		if (i == records)
			kill(pid, SIGKILL);
	}
	close(pipes[0]);
	waitpid(pid, &status, 0);
	CHECK_INT(WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status), SIGKILL);
	return last;
}

TEST(spend_killed)
{
	static const char *const names[] = {"anywhere", "before it is gathered", "before the tables are written",
					    "before they are committed", "before they are forgotten"};
	char *dir = fresh();
	CLEAN_BUF struct buf out = BUF_INIT;
	for (unsigned i = 0; i < 3 * POINTS && !check_failed; i++) {
		enum point die = i % POINTS;
		/* each second time at the start after it, while what is missing is put into the tables */
		uint64_t last = run(dir, die, die == NOWHERE ? 0 : (int)(i / POINTS * 7), i + 1, 30 + (int)i * 11);
		if (i & 1)
			run(dir, GATHER + i / 2 % (POINTS - 1), 0, i + 100, 40);
		struct till t;
		struct ledger_head h;
		CHECK_INT(open_till(&t, dir, NOWHERE, 0, 1000), 0);
		ledger_head(t.b.l, &h);
		CHECK(h.seq >= last);
		same_as_chain(&t, names[die]);
		trade(&t, -1, i, 20);
		same_as_chain(&t, "and further");
		close_till(&t);
		scopes_agree(dir);
	}
	CHECK_INT(check_dir(dir, NULL, &out), 0);
	gone(dir);
}

/* The tables cannot be written: what depends on it is refused, and nothing is lost or counted twice. */
TEST(spend_on_a_full_disk)
{
	char *dir = fresh();
	pid_t pid = fork();
	if (!pid) {
		struct till t;
		struct err err = ERR_INIT;
		signal(SIGXFSZ, SIG_IGN);
		if (open_till(&t, dir, NOWHERE, 0, 1))
			_exit(2);
		trade(&t, -1, 1, 20);
		struct rlimit r = {4096, RLIM_INFINITY};
		setrlimit(RLIMIT_FSIZE, &r);
		struct ledger_record *d = ledger_record_new("decision");
		struct meter_change c = {.keys = {"s:a0", "p:p", "d:x"}, .tokens = 7, .nano = 9};
		spend_text(&c, &d->aside);
		for (int i = 0; i < 3; i++)
			if (ledger_write(t.b.l, d) || !ledger_append_wait(t.b.l, d, &err))
				_exit(3);
		r.rlim_cur = RLIM_INFINITY;
		setrlimit(RLIMIT_FSIZE, &r);
		trade(&t, -1, 2, 20);
		ledger_record_free(d);
		same_as_chain(&t, "after a full disk");
		kill(getpid(), check_failed ? SIGTERM : SIGKILL);
	}
	int status;
	waitpid(pid, &status, 0);
	CHECK_INT(WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status), SIGKILL);
	struct till t;
	CHECK_INT(open_till(&t, dir, NOWHERE, 0, 1000), 0);
	same_as_chain(&t, "and killed");
	close_till(&t);
	gone(dir);
}

/* A database of an earlier version, whose tables say all; and one whose change cannot be read, which is not taken. */
TEST(spend_of_other_databases)
{
	char *dir = fresh();
	struct till t;
	CHECK_INT(open_till(&t, dir, NOWHERE, 0, 1000), 0);
	trade(&t, -1, 3, 50);
	close_till(&t);
	run_sql(dir, "ALTER TABLE records DROP COLUMN aside; DELETE FROM upto");
	CHECK_INT(open_till(&t, dir, NOWHERE, 0, 1000), 0);
	same_as_chain(&t, "of an earlier version");
	trade(&t, -1, 4, 50);
	same_as_chain(&t, "and gone on");
	close_till(&t);
	CHECK_INT(open_till(&t, dir, NOWHERE, 0, 1000), 0);
	same_as_chain(&t, "and opened again");
	close_till(&t);
	run(dir, NOWHERE, 0, 5, 3);
	run_sql(dir, "UPDATE records SET aside=x'31203220' WHERE seq=(SELECT max(seq) FROM records WHERE aside NOT "
		     "NULL AND seq > (SELECT seq FROM upto))");
	CHECK_INT(open_till(&t, dir, NOWHERE, 0, 1000), -EBADMSG);
	gone(dir);
}

TEST(spend_text_and_back)
{
	struct meter_change c = {
		.keys = {"s:one", "p:", "d:2026-11-29"}, .tokens = -7, .nano = INT64_MIN / 4096, .bytes = 3};
	CLEAN_BUF struct buf text = BUF_INIT;
	struct spend s = {0};
	spend_text(&c, &text);
	CHECK_INT(spend_gather(&s, text.p, text.n), 0);
	CHECK_INT(s.n, 3);
	c.second = 1764450000;
	c.rate[SCOPE_DAY] = true;
	buf_reset(&text);
	spend_text(&c, &text);
	CHECK_INT(spend_gather(&s, text.p, text.n), 0);
	CHECK_INT(s.n, 4);
	for (size_t i = 0; i < text.n; i++) /* whatever is missing */
		CHECK_INT(spend_gather(&s, text.p, i), -EBADMSG);
	buf_add(&text, "x", 2);
	CHECK_INT(spend_gather(&s, text.p, text.n), -EBADMSG);
	c.keys[SCOPE_SESSION][0] = 0;
	buf_reset(&text);
	spend_text(&c, &text);
	CHECK_INT(text.n, 0);
	spend_release(&s);
}

CHECK_MAIN()
