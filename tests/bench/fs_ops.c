/* Measures one thing about a file system and prints it as one number; tests/bench/fs.sh puts the numbers side by side.
 *
 * usage: fs_ops stat FILE...            calls a second, in random order
 *        fs_ops open FILE...            open, read, close a second, in random order
 *        fs_ops readdir DIR             entries a second
 *          A second is one of CPU time, this program's and that of the process DAEMON (environment, may be empty):
 *          where both share a CPU and nobody else runs it is a second by the clock, and it stays one when others do.
 *        fs_ops answers SECONDS FILE... from a question for attributes that no cache answers to its answer, us: p50
 *                                       and p99; one each millisecond
 *        fs_ops latency SESSIONS N      from a change to its event, us: p50 and p99; N sessions s-1... of the fake
 *        fs_ops block FILE N            N threads in a read of FILE; says "blocked", goes on when standard input ends
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 0.7 /* of one round */
#define ROUNDS	3   /* the best counts: others use the machine too */

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* CPU time of the daemon, all threads. */
static double daemon_cpu(void)
{
	const char *pid = getenv("DAEMON");
	char path[64];
	double sum = 0;
	if (!pid || !pid[0])
		return 0;
	snprintf(path, sizeof path, "/proc/%s/task", pid);
	DIR *dir = opendir(path);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		char stat_path[400];
		unsigned long long ns = 0;
		snprintf(stat_path, sizeof stat_path, "%s/%s/schedstat", path, e->d_name);
		FILE *f = fopen(stat_path, "re");
		if (f && fscanf(f, "%llu", &ns) == 1)
			sum += (double)ns / 1e9;
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return sum;
}

static double cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9 + daemon_cpu();
}

static int fail(const char *what)
{
	fprintf(stderr, "fs_ops: %s: %s\n", what, strerror(errno));
	return 1;
}

static int stat_one(const char *path)
{
	struct stat st;
	return stat(path, &st);
}

static int open_one(const char *path)
{
	char text[4096];
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return -1;
	ssize_t n;
	while ((n = read(fd, text, sizeof text)) > 0)
		;
	close(fd);
	return n < 0 ? -1 : 0;
}

static int run_files(int (*one)(const char *), int n, char **files)
{
	double best = 0;
	unsigned seed = 1;
	for (int i = 0; i < n; i++) /* so that all of them are warm or none can be */
		if (one(files[i]))
			return fail(files[i]);
	for (int round = 0; round < ROUNDS; round++) {
		double from = now(), end = from, used = cpu();
		long calls = 0;
		while (end - from < SECONDS) {
			for (int i = 0; i < 200; i++, calls++)
				if (one(files[n == 1 ? 0 : rand_r(&seed) % n]))
					return fail("a file");
			end = now();
		}
		double rate = (double)calls / (cpu() - used);
		best = rate > best ? rate : best;
	}
	printf("%.0f\n", best);
	return 0;
}

static int run_readdir(const char *path)
{
	double best = 0;
	for (int round = 0; round < ROUNDS; round++) {
		double from = now(), end = from, used = cpu();
		long entries = 0;
		while (end - from < SECONDS) {
			DIR *dir = opendir(path);
			if (!dir)
				return fail(path);
			while (readdir(dir))
				entries++;
			closedir(dir);
			end = now();
		}
		double rate = (double)entries / (cpu() - used);
		best = rate > best ? rate : best;
	}
	printf("%.0f\n", best);
	return 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* ---- answers, one by one ---- */

static int run_answers(int seconds, int n, char **files)
{
	size_t most = (size_t)seconds * 1000, count = 0;
	double *took = calloc(most + 1, sizeof *took), end = now() + seconds;
	unsigned seed = 1;
	while (count < most && now() < end) {
		struct statx st;
		double from = now();
		if (statx(AT_FDCWD, files[rand_r(&seed) % n], AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st))
			return fail("statx");
		took[count++] = now() - from;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	qsort(took, count, sizeof *took, compare);
	if (count)
		printf("%.0f %.0f\n", took[count / 2] * 1e6, took[count * 99 / 100] * 1e6);
	free(took);
	return count ? 0 : 1;
}

/* ---- from a change to its event ---- */

static int change(const char *sessions, int k)
{
	char path[300];
	snprintf(path, sizeof path, "%s/s-%d/ctl", sessions, k);
	int fd = open(path, O_WRONLY);
	if (fd < 0)
		return -1;
	int rc = write(fd, "grow\n", 5) == 5 ? 0 : -1;
	close(fd);
	return rc;
}

/* Milliseconds from the write that makes the change to the event in hand, < 0: none came. Only one is under way. */
static double measure(int fd, int wd, const char *sessions, int k)
{
	char events[4096] __attribute__((aligned(8)));
	struct pollfd p = {.fd = fd, .events = POLLIN};
	double from = now();
	if (change(sessions, k))
		return -1;
	while (poll(&p, 1, 1000) == 1) {
		double at = now();
		ssize_t n = read(fd, events, sizeof events);
		for (ssize_t i = 0; i < n;) {
			const struct inotify_event *e = (const struct inotify_event *)(events + i);
			if (e->wd == wd)
				return at - from;
			i += (ssize_t)(sizeof *e + e->len);
		}
	}
	return -1;
}

static int run_latency(const char *sessions, int n)
{
	int fd = inotify_init1(0), rounds = 20;
	int *wd = calloc((size_t)n + 1, sizeof *wd);
	double *took = calloc((size_t)(n * rounds), sizeof *took);
	size_t count = 0;
	for (int k = 1; k <= n; k++) {
		char path[300];
		snprintf(path, sizeof path, "%s/s-%d/transcript", sessions, k);
		wd[k] = inotify_add_watch(fd, path, IN_MODIFY);
	}
	for (int round = 0; round < rounds; round++) {
		double next = now() + 0.12; /* past the rest that a file has between two events */
		for (int k = 1; k <= n; k++) {
			took[count] = measure(fd, wd[k], sessions, k);
			if (took[count++] < 0) {
				fprintf(stderr, "fs_ops: no event for s-%d\n", k);
				return 1;
			}
		}
		double left = next - now();
		struct timespec t = {.tv_nsec = left > 0 ? (long)(left * 1e9) : 0};
		nanosleep(&t, NULL);
	}
	qsort(took, count, sizeof *took, compare);
	printf("%.0f %.0f\n", took[count / 2] * 1e6, took[count * 99 / 100] * 1e6);
	free(took);
	free(wd);
	close(fd);
	return 0;
}

/* ---- many that wait ---- */

static void *block(void *arg)
{
	open_one(arg);
	return NULL;
}

static int run_block(char *path, int n)
{
	pthread_t *t = calloc((size_t)n, sizeof *t);
	pthread_attr_t attr;
	char c;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	for (int i = 0; i < n; i++)
		if (pthread_create(&t[i], &attr, block, path))
			return fail("pthread_create");
	struct timespec settle = {.tv_sec = 1};
	nanosleep(&settle, NULL);
	printf("blocked\n");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	free(t);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	if (!strcmp(what, "stat"))
		return run_files(stat_one, argc - 2, argv + 2);
	if (!strcmp(what, "open"))
		return run_files(open_one, argc - 2, argv + 2);
	if (!strcmp(what, "readdir"))
		return run_readdir(argv[2]);
	if (!strcmp(what, "answers") && argc > 3)
		return run_answers(atoi(argv[2]), argc - 3, argv + 3);
	if (!strcmp(what, "latency") && argc == 4)
		return run_latency(argv[2], atoi(argv[3]));
	if (!strcmp(what, "block") && argc == 4)
		return run_block(argv[2], atoi(argv[3]));
	fprintf(stderr, "fs_ops: usage: see the head of fs_ops.c\n");
	return 64;
}
