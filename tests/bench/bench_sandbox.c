/* Figures of VMs beside their bars: a warm start against a boot in the same run, hibernation and back, and what many
 * paused ones cost. Medians of RUNS. Size mini. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "sandbox/keeper.h"
#include "tests/vm/vm.h"

#define BOOT_MS 300000
#define RUNS	10
#define MANY	20
#define REST_MS 5000

struct row {
	double ms[RUNS];
	int n;
};

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static double median(struct row *r)
{
	qsort(r->ms, (size_t)r->n, sizeof *r->ms, by_size);
	return r->n ? r->ms[r->n / 2] : 0;
}

static void say(const char *what, double value, const char *unit, double bar)
{
	printf("%-44s %8.2f %s   bar %.2f   %s\n", what, value, unit, bar, value <= bar ? "ok" : "MISSED");
	fflush(stdout);
}

static bool used(int64_t id)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	return shell(id, "echo here", &out) == 0 && !strcmp(buf_str(&out), "here\n");
}

/* Milliseconds until its first tool result, or -1. */
static double start(int64_t id)
{
	struct err err = ERR_INIT;
	int64_t from = clock_mono_us();
	if (up(id, BOOT_MS, &err) || !used(id)) {
		printf("# %s\n", err.text);
		return -1;
	}
	return (double)(clock_mono_us() - from) / 1000;
}

static void add(struct row *r, double ms)
{
	if (ms >= 0 && r->n < RUNS)
		r->ms[r->n++] = ms;
}

/* The first start may be a boot, beside which the one to copy is made. */
static bool warm_up(void)
{
	for (int64_t id = 1; id < 1000; id++) {
		if (start(id) < 0)
			return false;
		if (strstr(buf_str(&here.progress), "a copy") && !strstr(buf_str(&here.progress), "boots")) {
			sandbox_destroy(&here.paths, "vm", id, NULL);
			sandbox_destroy(&here.paths, "vm", 1, NULL);
			return true;
		}
		if (id > 1)
			sandbox_destroy(&here.paths, "vm", id, NULL);
		clock_sleep_ms(1000);
	}
	return false;
}

static void starts(void)
{
	struct row warm = {.n = 0}, cold = {.n = 0};
	for (int64_t i = 0; i < RUNS; i++) {
		add(&warm, start(2000 + i));
		sandbox_down(&here.paths, "vm", 2000 + i, NULL);
		add(&cold, start(2000 + i));
		sandbox_destroy(&here.paths, "vm", 2000 + i, NULL);
	}
	double w = median(&warm), c = median(&cold);
	printf("%-44s %8.2f ms\n", "boot to first tool result", c);
	say("warm start to first tool result", w, "ms", 500);
	say("  of a boot", c > 0 ? w / c : 9, "  ", 0.25);
}

static void hibernation(void)
{
	struct row sleep = {.n = 0}, back = {.n = 0};
	if (start(3000) < 0)
		return;
	for (int i = 0; i < RUNS; i++) {
		struct err err = ERR_INIT;
		int64_t from = clock_mono_us();
		if (sandbox_hibernate(&here.paths, "vm", 3000, &err)) {
			printf("# %s\n", err.text);
			break;
		}
		add(&sleep, (double)(clock_mono_us() - from) / 1000);
		add(&back, start(3000));
	}
	sandbox_destroy(&here.paths, "vm", 3000, NULL);
	say("hibernate", median(&sleep), "ms", 1000);
	say("back from it to first tool result", median(&back), "ms", 1000);
}

static double available_mib(void)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	file_read("/proc/meminfo", &b, 65536, NULL);
	const char *at = strstr(buf_str(&b), "MemAvailable:");
	return at ? atof(at + 13) / 1024 : 0;
}

/* Ticks of the processor that the VMs' processes have used. */
static long long ticks(int64_t first)
{
	long long sum = 0;
	for (int64_t id = first; id < first + MANY; id++) {
		for (int qemu = 0; qemu < 2; qemu++) {
			int pid = 0;
			long long user = 0, system = 0;
			CLEAN_BUF struct buf b = BUF_INIT;
			count(qemu, id, &pid);
			CLEAN_FREE char *path = xasprintf("/proc/%d/stat", pid);
			const char *end = file_read(path, &b, 4096, NULL) ? NULL : strrchr(buf_str(&b), ')');
			if (end && sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld", &user,
					  &system) == 2)
				sum += user + system;
		}
	}
	return sum;
}

static void many_paused(void)
{
	double before = available_mib();
	for (int64_t i = 0; i < MANY; i++) {
		struct err err = ERR_INIT;
		if (start(4000 + i) < 0 || sandbox_pause(&here.paths, "vm", 4000 + i, &err))
			printf("# %s\n", err.text);
	}
	for (int64_t i = 0; i < MANY; i++)
		if (!gave_back(4000 + i))
			printf("# VM %lld keeps all its memory\n", (long long)i);
	double cost = before - available_mib();
	long long from = ticks(4000);
	clock_sleep_ms(REST_MS); /* what is measured is a time in which nothing happens */
	say("20 paused VMs", cost / 1024, "GiB", 1.2);
	say("  their processor time in 5 s", (double)(ticks(4000) - from), "ticks", 0);
	for (int64_t i = 0; i < MANY; i++)
		sandbox_destroy(&here.paths, "vm", 4000 + i, NULL);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], KEEPER_VERB))
		return sandbox_keeper_main(argc - 1, argv + 1);
	int rc = instance_begin();
	if (!rc && !warm_up())
		rc = 1;
	if (!rc) {
		starts();
		hibernation();
		many_paused();
	}
	instance_end();
	return rc;
}
