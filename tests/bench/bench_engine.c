/* Figures of the engine beside their bars (spec, "Numbers to reach"). Prints `bench NAME: FIGURE (bar BAR) RATIO`; it
 * judges nothing. The peer of the commit rate is plain SQLite in the same run: one connection, one step a transaction.
 */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>

#define FACE_SESSIONS 10100 /* all views are kept, as by a face with a mount */
#include "backend/core.h"
#include "backend/session.h"
#include "backend/store.h"
#include "backend/transcript.h"
#include "tests/unit/face.h"

#define THREADS 64
#define STEPS	400   /* of each thread */
#define CROWD	10000 /* idle sessions */

static double seconds(int64_t from_us)
{
	return (double)(clock_mono_us() - from_us) / 1e6;
}

/* What this process alone has used: it tells more than the clock where others are at work too. */
static double cpu_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- committed steps ---- */

static char payload[2000]; /* a step of 2 KB, as in the measurements of the design */

static int step_fn(struct tx *tx, void *arg, struct err *err)
{
	struct session *s = tx_session(tx, *(int64_t *)arg);
	return s ? transcript_notice(tx, s, payload, err) : -ESHUTDOWN;
}

static void *step_main(void *arg)
{
	for (int i = 0; i < STEPS; i++)
		store_do(face.b->store, step_fn, arg, NULL);
	return NULL;
}

static double plain_sqlite(void)
{
	sqlite3 *db;
	CLEAN_FREE char *path = at("plain.db");
	sqlite3_open(path, &db);
	sqlite3_exec(db,
		     "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, b TEXT)",
		     0, 0, 0);
	sqlite3_stmt *st;
	sqlite3_prepare_v2(db, "INSERT INTO t(b) VALUES(?)", -1, &st, NULL);
	int64_t from = clock_mono_us();
	int n = 0;
	for (; n < 3000; n++) {
		sqlite3_bind_text(st, 1, payload, -1, SQLITE_STATIC);
		sqlite3_step(st);
		sqlite3_reset(st);
	}
	double rate = n / seconds(from);
	sqlite3_finalize(st);
	sqlite3_close(db);
	return rate;
}

static void bench_steps(void)
{
	int64_t ids[THREADS];
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		ids[i] = 1 + i;
	double cpu = cpu_seconds();
	int64_t from = clock_mono_us();
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, step_main, &ids[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	double rate = THREADS * STEPS / seconds(from), us = (cpu_seconds() - cpu) * 1e6 / (THREADS * STEPS);
	double peer = plain_sqlite();
	printf("bench steps committed, %d sessions, FULL: %.0f/s (bar 10000/s), %.2f of plain SQLite's %.0f/s; %.0f us "
	       "of "
	       "CPU each\n",
	       THREADS, rate, rate / peer, peer, us);
}

/* ---- a crowd of idle sessions ---- */

static long rss_kib(void)
{
	malloc_trim(0);
	CLEAN_BUF struct buf b = BUF_INIT;
	file_read("/proc/self/smaps_rollup", &b, 1 << 16, NULL);
	const char *p = strstr(buf_str(&b), "Private_Dirty:");
	return p ? atol(p + 14) : 0;
}

static sqlite3 *raw_db(void)
{
	sqlite3 *db;
	CLEAN_FREE char *path = at("state/berthfs.db");
	sqlite3_open(path, &db);
	return db;
}

static void raw(sqlite3 *db, const char *sql)
{
	char *words = NULL;
	if (sqlite3_exec(db, sql, 0, 0, &words) != SQLITE_OK)
		printf("# %s: %s\n", sql, words);
	sqlite3_free(words);
}

/* Copies of session 1 up to id n, straight into the database while no backend runs. */
static void crowd(int n)
{
	sqlite3 *db = raw_db();
	raw(db, "BEGIN; CREATE TEMP TABLE x AS SELECT * FROM sessions WHERE id=1;"
		"UPDATE x SET state='idle',detail='',sandbox_state='dir "
		"down',accepted=0,run=0,request=0,entries=0,md_size=0,"
		"json_size=0,log_size=0,plan_seq=0,plan_size=0,answer_seq=0,answer_size=0,usage_size=0");
	for (int i = 2; i <= n; i++) {
		CLEAN_FREE char *sql =
			xasprintf("UPDATE x SET id=%d, name='crowd%d'; INSERT INTO sessions SELECT * FROM x", i, i);
		raw(db, sql);
	}
	CLEAN_FREE char *last = xasprintf("INSERT OR REPLACE INTO counters VALUES('session',%d); COMMIT", n);
	raw(db, last);
	sqlite3_close(db);
}

static void bench_crowd(int64_t first)
{
	face_stop();
	crowd(THREADS + 1);
	face_start();
	face_drain(0);
	bench_steps();
	face_stop();
	sqlite3 *db = raw_db();
	raw(db, "DELETE FROM sessions WHERE id>1");
	sqlite3_close(db);
	face_start();
	face_drain(0);
	long before = rss_kib();
	face_stop();
	crowd(CROWD);
	double cpu = cpu_seconds();
	int64_t from = clock_mono_us();
	face_start();
	printf("bench start with %d sessions: %.2f s (bar 1 s), %.2f s of CPU\n", CROWD, seconds(from),
	       cpu_seconds() - cpu);
	face_drain(0);
	printf("bench memory of an idle session of %d, with its view: %.2f KiB (bar 4 KiB)\n", CROWD,
	       (double)(rss_kib() - before) / CROWD);
	double worst = 0, sum = 0;
	for (int i = 0; i < 20; i++) {
		CLEAN_FREE char *name = xasprintf("late%d", i);
		CLEAN_FREE char *script = at("s");
		CLEAN_FREE char *text = xasprintf("---\nmodel: script:%s\n---\ngo\n", script);
		from = clock_mono_us();
		face_create(name, text);
		double ms = seconds(from) * 1000;
		sum += ms;
		worst = ms > worst ? ms : worst;
	}
	printf("bench create a session at %d: mean %.1f ms, worst %.1f ms (bar 50 ms)\n", CROWD, sum / 20, worst);
}

/* ---- a long transcript ---- */

#define LONG_MIB   100
#define LONG_ENTRY 25000 /* bytes of text in each entry */

static int long_fn(struct tx *tx, void *arg, struct err *err)
{
	static char text[LONG_ENTRY];
	struct session *s = tx_session(tx, *(int64_t *)arg);
	memset(text, 'w', sizeof text - 1);
	int rc = 0;
	for (int i = 0; i < 20 && s && !rc; i++) {
		rc = transcript_user(tx, s, 1, text, "", err);
		rc = rc ? rc : transcript_assistant(tx, s, "m", text, "", NULL, "end_turn", 0, false, err);
	}
	return rc;
}

/* Bytes that this process has read from files, cached or not. */
static double read_mib(void)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	file_read("/proc/self/io", &b, 4096, NULL);
	return strtod(buf_str(&b) + strlen("rchar: "), NULL) / (1 << 20);
}

static void bench_long(int64_t id)
{
	while (face.view[id]->text[TEXT_JSONL].size < (uint64_t)LONG_MIB << 20) {
		store_do(face.b->store, long_fn, &id, NULL);
		face_drain(0);
	}
	face_stop();
	double before = read_mib();
	int64_t from = clock_mono_us();
	face_start();
	face_drain(0);
	printf("bench start with a transcript of %d MiB: %.1f ms, %.2f MiB read\n", LONG_MIB, seconds(from) * 1000,
	       read_mib() - before);
	struct request *r = request_new(REQ_READ, NULL, NULL);
	r->session = id;
	r->text_kind = TEXT_TRANSCRIPT;
	r->size = 65536;
	r->offset = face.view[id]->text[TEXT_TRANSCRIPT].size - r->size;
	before = read_mib();
	from = clock_mono_us();
	face_ask(r);
	printf("bench its last 64 KiB: %.1f ms, %.2f MiB read\n", seconds(from) * 1000, read_mib() - before);
	request_free(r);
	before = read_mib();
	from = clock_mono_us();
	face_do(REQ_CTL, id, "compact");
	face_wait_idle(id);
	bool done = strstr(face_text(0, TEXT_EVENTS), "compacted") != NULL;
	printf("bench it is compacted%s: %.1f ms, %.2f MiB read\n", done ? "" : " NOT", seconds(from) * 1000,
	       read_mib() - before);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "tool-daemon"))
		return sandbox_tools_main(argc - 1, argv + 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	memset(payload, 'x', sizeof payload - 1);
	fixture_begin();
	face_project();
	free(face_script("s", "{\"text\":\"ok\"}\n{\"text\":\"a summary\"}\n"));
	if (face_start())
		return 1;
	CLEAN_FREE char *script = at("s");
	CLEAN_FREE char *text = xasprintf("---\nmodel: script:%s\n---\ngo\n", script);
	int64_t id = face_create("one", text);
	face_wait_idle(id);
	bench_long(id);
	bench_crowd(id);
	face_stop();
	for (int i = 0; i < 64; i++)
		sandbox_destroy(&face.paths, "dir", CROWD + i, NULL);
	sandbox_destroy(&face.paths, "dir", 1, NULL);
	return 0;
}
