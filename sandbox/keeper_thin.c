/* A paused VM costs as little memory as can be. What its memory has in common with the file that it began from, which
 * all clones of one template have, and what of it is zero, is given back once it has been paused for a while, and
 * fetched again before the guest goes on. Meanwhile QEMU is stopped by a signal: of itself it looks at the guest's
 * memory (the queues of the port) even when the guest's processors stand still, and whatever it is told waits until it
 * goes on. Runs on the keeper's only thread, which never blocks; a helper thread copies, and touches nothing else. Must
 * never let QEMU go on while a page of the guest is missing. */
#include "keeper_thin.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/log.h"
#include "backend/base/mem.h"
#include "keeper.h"
#include "keeper_vm.h"

#define STILL_MS      60000 /* a thread may be inside of a slow write to the disk */
#define STILL_LOOK_MS 2

int thin_after_ms = 30000;

void thin_init(struct keeper *k)
{
	k->thin = (struct thin){.ram = -1, .qemu = {.fd = -1}, .due = INT64_MAX, .lent = RAM_LENT_INIT};
	k->thin.ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void thin_from(struct keeper *k, const char *path)
{
	CLEAN_FREE char *note = xasprintf("%s/" KEEPER_BASE, k->folder);
	CLEAN_BUF struct buf b = BUF_INIT;
	if (path)
		buf_addf(&b, "%s\n", path);
	if (path ? file_write(note, b.p, b.n, 0600, NULL) : file_read(note, &b, 4096, NULL))
		return; /* it costs memory, and nothing else */
	k->thin.base = xstrndup(buf_str(&b), strcspn(buf_str(&b), "\n"));
}

/* ---- the helper ---- */

/* A thread that has stopped touches no memory any more. */
static bool is_still(pid_t pid)
{
	CLEAN_FREE char *dir = xasprintf("/proc/%d/task", (int)pid);
	DIR *d = opendir(dir);
	int threads = 0, still = 0;
	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		CLEAN_FREE char *path = xasprintf("%s/%s/stat", dir, e->d_name);
		CLEAN_BUF struct buf b = BUF_INIT;
		const char *name_end = file_read(path, &b, 4096, NULL) ? NULL : strrchr(buf_str(&b), ')');
		threads++;
		still += name_end && !strncmp(name_end, ") T ", 4);
	}
	if (d)
		closedir(d);
	return threads && still == threads;
}

static int await_still(struct thin *r, struct err *err)
{
	for (int64_t end = clock_mono_ms() + STILL_MS; !is_still(r->qemu.pid); clock_sleep_ms(STILL_LOOK_MS))
		if (atomic_load(&r->over) || clock_mono_ms() > end)
			return err_set(err, ECANCELED, "QEMU did not stop in time");
	return 0;
}

static void *lend(void *arg)
{
	struct thin *r = arg;
	uint64_t one = 1;
	r->rc = await_still(r, &r->result);
	if (!r->rc)
		r->rc = ram_lend(r->ram, r->base, &r->over, &r->lent, &r->result);
	(void)!write(r->ended, &one, sizeof one);
	return NULL;
}

static void *fetch(void *arg)
{
	struct thin *r = arg;
	uint64_t one = 1;
	r->rc = ram_back(r->ram, &r->lent, &r->result);
	(void)!write(r->ended, &one, sizeof one);
	return NULL;
}

static bool help(struct thin *r, void *(*with)(void *))
{
	r->result = ERR_INIT;
	r->rc = 0;
	int rc = pthread_create(&r->thread, NULL, with, r);
	r->helping = !rc;
	if (rc)
		err_sys(&r->result, rc, "cannot start a thread");
	return !rc;
}

/* ---- its owner ---- */

static bool signal_qemu(struct thin *r, int signal)
{
	return !pidfd_send_signal(r->qemu.fd, signal, NULL, 0);
}

void thin_begin(struct keeper *k)
{
	k->thin.due = clock_mono_ms() + thin_after_ms;
}

static void give(struct keeper *k)
{
	struct thin *r = &k->thin;
	struct err err = ERR_INIT;
	if (r->still || r->helping || r->ending || k->motion != VM_PAUSED || k->phase != VM_RUNNING || k->holds)
		return;
	if (r->ram < 0)
		r->ram = ram_find(k->qemu.pid, &r->qemu, &err);
	if (r->ram < 0 || !signal_qemu(r, SIGSTOP)) {
		log_warn("the VM keeps all its memory while it is paused: %s", err.text);
		return;
	}
	r->still = true;
	atomic_store(&r->over, false);
	if (!help(r, lend))
		log_warn("the VM keeps all its memory while it is paused: %s", r->result.text);
}

/* The guest's memory is whole, or it stays as it is. */
static void end(struct keeper *k, const struct err *why)
{
	struct thin *r = &k->thin;
	r->ending = r->fetching = false;
	if (!why) {
		ram_lent_release(&r->lent);
		if (r->still)
			signal_qemu(r, SIGCONT);
		r->still = false;
	}
	keeper_whole(k, why);
}

static void next(struct keeper *k)
{
	struct thin *r = &k->thin;
	if (!r->ending || r->helping)
		return;
	if (!ram_lent_bytes(&r->lent))
		end(k, NULL);
	else if (!(r->fetching = help(r, fetch)))
		end(k, &r->result);
}

void thin_end(struct keeper *k)
{
	k->thin.due = INT64_MAX;
	k->thin.ending = true;
	atomic_store(&k->thin.over, true);
	next(k);
}

int thin_fd(const struct keeper *k)
{
	return k->thin.helping ? k->thin.ended : -1;
}

int64_t thin_due(const struct keeper *k)
{
	return k->thin.due;
}

static void ended(struct keeper *k)
{
	struct thin *r = &k->thin;
	pthread_join(r->thread, NULL);
	r->helping = false;
	if (r->rc && (r->fetching || !r->ending))
		log_warn("%s", r->result.text);
	if (r->fetching)
		end(k, r->rc ? &r->result : NULL);
	else
		next(k);
}

void thin_work(struct keeper *k)
{
	uint64_t n;
	if (k->thin.helping && read(k->thin.ended, &n, sizeof n) == sizeof n)
		ended(k);
	if (clock_mono_ms() < k->thin.due)
		return;
	k->thin.due = INT64_MAX;
	give(k);
}

void thin_finish(struct keeper *k)
{
	struct thin *r = &k->thin;
	atomic_store(&r->over, true);
	if (r->helping)
		pthread_join(r->thread, NULL);
	ram_lent_release(&r->lent);
	fd_close(&r->ram);
	fd_close(&r->qemu.fd);
	fd_close(&r->ended);
	free(r->base);
}
