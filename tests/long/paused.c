/* Twenty VMs that are paused: no processor time, the memory that they add, and the time that each needs to its first
 * answer. Prints figures; fails if one uses processor time or does not come back. PAUSED_VMS: another number. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/keeper.h"
#include "sandbox/ram.h"
#include "tests/vm/vm.h"

#define MOST   64
#define REST_S 10

static int bad(const char *what, int id, const struct err *err)
{
	printf("not ok %s (VM %d): %s\n", what, id, err->text);
	return 1;
}

/* The number behind a word in a file of /proc, 0 if there is none. */
static long long number_in(const char *path, const char *word)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	if (file_read(path, &b, 1 << 20, NULL))
		return 0;
	const char *p = strstr(buf_str(&b), word);
	return p ? atoll(p + strlen(word)) : 0;
}

static long long rollup_kib(int pid, const char *word)
{
	CLEAN_FREE char *path = xasprintf("/proc/%d/smaps_rollup", pid);
	return number_in(path, word);
}

static long long ticks(int pid)
{
	CLEAN_FREE char *path = xasprintf("/proc/%d/stat", pid);
	CLEAN_BUF struct buf b = BUF_INIT;
	unsigned long long user = 0, system = 0;
	const char *p = file_read(path, &b, 4096, NULL) ? NULL : strrchr(buf_str(&b), ')');
	if (!p || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
		return -1;
	return (long long)(user + system);
}

static long long all_ticks(int n)
{
	long long all = 0;
	for (int id = 1; id <= n; id++)
		for (int qemu = 0; qemu < 2; qemu++) {
			int pid = 0;
			if (count(qemu, id, &pid) > 0)
				all += ticks(pid);
		}
	return all;
}

/* Of the guest, whoever has it mapped. */
static long long memory_kib(int qemu)
{
	struct stat st = {0};
	CLEAN_FD int ram = ram_find(qemu, NULL, NULL);
	return ram < 0 || fstat(ram, &st) ? 0 : st.st_blocks / 2;
}

/* MiB of their own, all together. */
static double parts(int n)
{
	enum { GUEST, QEMU, FILES, KEEPER, PARTS };
	double mib[PARTS] = {0};
	for (int id = 1; id <= n; id++) {
		int qemu = 0, keeper = 0;
		if (count(true, id, &qemu) < 1 || count(false, id, &keeper) < 1)
			continue;
		mib[GUEST] += (double)memory_kib(qemu) / 1024;
		mib[QEMU] += (double)rollup_kib(qemu, "\nPss_Anon:") / 1024;
		mib[FILES] += (double)rollup_kib(qemu, "\nPss_File:") / 1024;
		mib[KEEPER] += (double)rollup_kib(keeper, "\nPss:") / 1024;
	}
	printf("# each, MiB: guest %.1f, QEMU %.1f, its files %.1f, keeper %.1f\n", mib[GUEST] / n, mib[QEMU] / n,
	       mib[FILES] / n, mib[KEEPER] / n);
	return mib[GUEST] + mib[QEMU] + mib[FILES] + mib[KEEPER];
}

static int make(int n)
{
	for (int id = 1; id <= n; id++) {
		struct err err = ERR_INIT;
		CLEAN_BUF struct buf out = BUF_INIT;
		if (up(id, 300000, &err))
			return bad("it does not start", id, &err);
		if (shell(id, "git --version; python3 -c 'print(1)'", &out))
			return bad("it does not answer", id, &err);
		if (sandbox_pause(&here.paths, "vm", id, &err))
			return bad("it cannot be paused", id, &err);
	}
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* And pauses them again. */
static int wake(int n, const char *when)
{
	int64_t us[MOST];
	long long used = all_ticks(n);
	for (int id = 1; id <= n; id++) {
		struct env *env = NULL;
		struct env_stat st = {0};
		struct err err = ERR_INIT;
		int64_t start = clock_mono_us();
		if (env_open(&here.paths, "vm", id, NULL, &env, &err) || env_stat(env, "/etc/passwd", &st, &err))
			return bad("it does not go on", id, &err);
		us[id - 1] = clock_mono_us() - start;
		free(st.real);
		env_close(env);
		if (sandbox_pause(&here.paths, "vm", id, &err))
			return bad("it cannot be paused again", id, &err);
	}
	used = all_ticks(n) - used;
	qsort(us, (size_t)n, sizeof *us, by_value);
	printf("# wake to first answer after a %s pause: median %.1f ms, worst %.1f ms (bar: 100), processor time %.1f "
	       "ms each\n",
	       when, (double)us[n / 2] / 1000, (double)us[n - 1] / 1000,
	       (double)used * 1000 / (double)sysconf(_SC_CLK_TCK) / n);
	return 0;
}

static int measure(int n)
{
	long long before = number_in("/proc/meminfo", "MemAvailable:");
	if (make(n))
		return 1;
	for (int id = 1; id <= n; id++)
		if (!gave_back(id))
			return bad("it keeps all its memory", id, &(struct err){.text = ""});
	long long used = all_ticks(n);
	clock_sleep_ms(REST_S * 1000);
	used = all_ticks(n) - used;
	printf("# %d paused VMs: %lld ticks of processor time in %d s, %.2f GiB of memory of their own, %.2f GiB less "
	       "available (bar of 20: 0 ticks, 1.2 GiB)\n",
	       n, used, REST_S, parts(n) / 1024,
	       (double)(before - number_in("/proc/meminfo", "MemAvailable:")) / (1 << 20));
	printf("%s paused VMs use no processor time\n", used ? "not ok" : "ok");
	int rc = wake(n, "long") || wake(n, "short");
	printf("%s paused VMs come back\n", rc ? "not ok" : "ok");
	return rc || used;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], KEEPER_VERB))
		return sandbox_keeper_main(argc - 1, argv + 1);
	const char *text = getenv("PAUSED_VMS");
	int n = text ? atoi(text) : 20;
	setvbuf(stdout, NULL, _IOLBF, 0);
	int rc = instance_begin();
	if (!rc)
		rc = measure(n > 0 && n <= MOST ? n : 20);
	instance_end();
	return rc;
}
