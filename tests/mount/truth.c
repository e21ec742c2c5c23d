/* Compares what stat, read and listing say with the truth, while sessions change, are made, renamed and ended. What the
 * kernel has cached must never be older than the last change whose request was answered. Runs on a mount of
 * `berthfs-fake`, where `grow` written to ctl adds ten bytes to transcript and plan and one to the count in status.
 *
 * usage: truth SESSIONS-DIR SECONDS; prints `ok NAME` or `not ok NAME`. Threads of its own, nothing is shared but
 * atomics.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GROWING 4  /* sessions that change: s-1... */
#define COMING	3  /* names that come and go */
#define READERS 3  /* threads */
#define BEGIN	6  /* bytes of a transcript at first */
#define STEP	10 /* bytes of a change */

static const char *sessions;
static atomic_bool over;
static atomic_long begun[GROWING], done[GROWING]; /* changes asked for, and answered */
static atomic_ulong looks, wrong, torn;

/* A name that comes and goes: odd while it is being changed. */
static struct coming {
	atomic_ulong seq;
	atomic_long id; /* 0: there is none */
	atomic_bool renamed;
} coming[COMING];

__attribute__((format(printf, 1, 2))) static void say_wrong(const char *fmt, ...)
{
	va_list ap;
	if (atomic_fetch_add(&wrong, 1) >= 10)
		return;
	char text[300];
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	printf("# %s\n", text);
}

static char *path_of(char *out, const char *session, const char *file)
{
	snprintf(out, 300, "%s/%s%s%s", sessions, session, file ? "/" : "", file ? file : "");
	return out;
}

static int put(const char *session, const char *file, const char *text)
{
	char path[300];
	int fd = open(path_of(path, session, file), O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		return -errno;
	int rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	if (close(fd) && !rc)
		rc = -errno;
	return rc;
}

/* Bytes read, or -errno. */
static long get(const char *session, const char *file, char *text, size_t size)
{
	char path[300];
	size_t n = 0;
	ssize_t got = 0;
	int fd = open(path_of(path, session, file), O_RDONLY);
	if (fd < 0)
		return -errno;
	while (n < size - 1 && (got = read(fd, text + n, size - 1 - n)) > 0)
		n += (size_t)got;
	long rc = got < 0 ? -errno : (long)n;
	close(fd);
	text[n] = 0;
	return rc;
}

/* ---- those who change ---- */

static void pause_us(unsigned *seed, int most)
{
	struct timespec t = {.tv_nsec = (long)(rand_r(seed) % most) * 1000};
	nanosleep(&t, NULL);
}

static void *grow_all(void *arg)
{
	unsigned seed = 1;
	for (long i = 0; !over; i++) {
		char name[20];
		int k = (int)(i % GROWING);
		snprintf(name, sizeof name, "s-%d", k + 1);
		atomic_fetch_add(&begun[k], 1);
		int rc = put(name, "ctl", "grow\n");
		if (rc)
			say_wrong("grow: %s", strerror(-rc));
		atomic_fetch_add(&done[k], 1);
		pause_us(&seed, 300);
	}
	return NULL;
}

static void name_of(char *out, int k, bool renamed)
{
	snprintf(out, 20, "%s%d", renamed ? "renamed" : "comes", k);
}

static int end_it(const char *name, unsigned how)
{
	char path[300];
	return how % 2 ? (rmdir(path_of(path, name, NULL)) ? -errno : 0) : put(name, "ctl", "end\n");
}

static int make_it(const char *name, long *id)
{
	char new[40], text[40];
	snprintf(new, sizeof new, "new/%s", name);
	int rc = put(new, NULL, "hello\n");
	if (rc)
		return rc;
	long n = get(name, "id", text, sizeof text);
	*id = n > 0 ? atol(text) : 0;
	return n < 0 ? (int)n : 0;
}

static int rename_it(int k)
{
	char from[300], to[300], name[20], other[20];
	name_of(name, k, false);
	name_of(other, k, true);
	return rename(path_of(from, name, NULL), path_of(to, other, NULL)) ? -errno : 0;
}

static void *come_and_go(void *arg)
{
	unsigned seed = 2;
	for (unsigned i = 0; !over; i++) {
		int k = (int)(i % COMING);
		struct coming *c = &coming[k];
		char name[20];
		long id = c->id;
		bool rename_now = id && !c->renamed && rand_r(&seed) % 2;
		name_of(name, k, c->renamed);
		atomic_fetch_add(&c->seq, 1);
		int rc;
		if (rename_now) {
			rc = rename_it(k);
			c->renamed = true;
		} else if (id) {
			rc = end_it(name, rand_r(&seed));
			c->id = 0;
			c->renamed = false;
		} else {
			rc = make_it(name, &id);
			c->id = id;
		}
		if (rc)
			say_wrong("%s: %s", name, strerror(-rc));
		atomic_fetch_add(&c->seq, 1);
		pause_us(&seed, 2000);
	}
	return NULL;
}

/* ---- those who look ---- */

static void check_bounds(const char *what, int k, long lo, long n, long hi)
{
	atomic_fetch_add(&looks, 1);
	if (n < lo || n > hi)
		say_wrong("%s of s-%d: %ld is not in %ld..%ld", what, k + 1, n, lo, hi);
}

/* Changes that a size tells of. The kernel, while it takes over an answer to GETATTR, marks what it has as right before
 * it writes the size, and a stat on another CPU may then give the old one: what is wrong for good is wrong a moment
 * later. */
static long size_of(const char *path, int fd, long lo)
{
	struct stat st;
	for (int i = 0;; i++) {
		if (path ? stat(path, &st) : fstat(fd, &st))
			return -errno;
		long n = (st.st_size - BEGIN) / STEP;
		if (n >= lo || i)
			return n;
		atomic_fetch_add(&torn, 1);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

static void look_at_growing(int k, unsigned how, int held_fd)
{
	static const char *const names[] = {"transcript", "plan"};
	char name[20], path[300], text[1 << 17];
	snprintf(name, sizeof name, "s-%d", k + 1);
	const char *file = names[how / 4 % 2];
	long lo = done[k], n = 0;
	switch (how % 4) {
	case 0:
	case 1: n = size_of(how % 4 ? NULL : path_of(path, name, file), held_fd, lo); break;
	case 2: n = (get(name, file, text, sizeof text) - BEGIN) / STEP; break;
	case 3: n = get(name, "status", text, sizeof text) > 8 ? atol(text + 8) : 0; break;
	}
	check_bounds(how % 4 == 3 ? "status" : how % 4 == 2 ? "text" : "size", k, lo, n, begun[k]);
}

static long id_by_stat(const char *name)
{
	char path[300];
	struct stat st;
	return stat(path_of(path, name, NULL), &st) ? -errno : 1;
}

static void look_at_coming(int k, unsigned how)
{
	struct coming *c = &coming[k];
	char name[20], text[40];
	unsigned long seq = c->seq;
	long id = c->id;
	bool other = how / 2 % 2, here = id && c->renamed == other;
	name_of(name, k, other);
	long n = how % 2 ? get(name, "id", text, sizeof text) : id_by_stat(name);
	long got = n < 0 ? n : how % 2 ? atol(text) : id;
	if (seq % 2 || c->seq != seq)
		return;
	atomic_fetch_add(&looks, 1);
	if (got != (here ? id : -ENOENT))
		say_wrong("%s %s: %ld, not %ld", how % 2 ? "read" : "stat", name, got, here ? id : (long)-ENOENT);
}

static void *look(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;
	int fds[GROWING];
	char path[300], name[20];
	for (int k = 0; k < GROWING; k++) {
		snprintf(name, sizeof name, "s-%d", k + 1);
		fds[k] = open(path_of(path, name, "transcript"), O_RDONLY);
	}
	while (!over) {
		unsigned r = (unsigned)rand_r(&seed);
		if (r % 3)
			look_at_growing((int)(r / 3 % GROWING), r / 16, fds[r / 3 % GROWING]);
		else
			look_at_coming((int)(r / 3 % COMING), r / 16);
	}
	for (int k = 0; k < GROWING; k++)
		close(fds[k]);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[READERS + 2];
	if (argc != 3)
		return 64;
	sessions = argv[1];
	pthread_create(&t[0], NULL, grow_all, NULL);
	pthread_create(&t[1], NULL, come_and_go, NULL);
	for (size_t i = 0; i < READERS; i++)
		pthread_create(&t[2 + i], NULL, look, (void *)(i + 10));
	struct timespec s = {.tv_sec = atoi(argv[2])};
	nanosleep(&s, NULL);
	over = true;
	for (size_t i = 0; i < READERS + 2; i++)
		pthread_join(t[i], NULL);
	long changes = 0;
	for (int k = 0; k < GROWING; k++)
		changes += done[k];
	printf("# %lu looks, %ld changes, %lu births and ends, %lu sizes that the kernel was just writing\n", looks,
	       changes, (coming[0].seq + coming[1].seq + coming[2].seq) / 2, torn);
	printf("%s each stat and read tells the truth\n", wrong || !looks || torn > 3 + looks / 1000 ? "not ok" : "ok");
	return wrong != 0;
}
