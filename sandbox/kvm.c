/* The probe of KVM, and the note of how it ended. Any thread; must never believe less than a guest that ran to its end,
 * and never hang: a KVM that does not work stops without a word. */
#include "kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "image.h"
#include "jail.h"
#include "qemu.h"
#include "tsc.h"

#define PROBE_MS   5000 /* a machine where it works needs 0.5 s */
#define SAID_MAX   65536
#define BROKEN	   "KVM internal error" /* QEMU says so and goes on for ever */
#define NOTE_BYTES 4096

struct probe {
	char nonce[17];
	atomic_bool broken; /* nothing more is waited for */
	bool right;
};

static void on_line(void *arg, const char *line)
{
	struct probe *p = arg;
	p->right |= strstr(line, p->nonce) != NULL;
	if (strstr(line, BROKEN))
		atomic_store(&p->broken, true);
}

/* How it went, in words. */
static void tell(struct probe *p, int rc, int64_t took, int ms, const char *said, struct buf *why)
{
	if (!rc && p->right)
		buf_addf(why, "a guest booted in %lld ms", (long long)took);
	else if (atomic_load(&p->broken))
		buf_adds(why, "the guest's kernel does not get through its start (\"" BROKEN "\")");
	else if (rc == -ETIMEDOUT)
		buf_addf(why, "the guest's kernel did not come up within %d s", ms / 1000);
	else
		buf_addf(why, "QEMU ended with code %d: %.*s", rc, (int)strcspn(said, "\n"), said);
}

bool kvm_probe(const char *accelerator, const char *dir, const char *initrd, int ms, struct buf *why)
{
	bool kvm = !strcmp(accelerator, "kvm");
	struct probe p = {.right = false};
	uint64_t random = 0;
	CLEAN_BUF struct buf said = BUF_INIT;
	CLEAN_FREE char *kernel = xasprintf("%s/vmlinux", dir);
	__attribute__((cleanup(jail_release))) struct jail_args jail = {.n = 0};
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return false;
	snprintf(p.nonce, sizeof p.nonce, "%016" PRIx64, random);
	CLEAN_FREE char *open = qemu_elsewhere();
	CLEAN_FREE char *kernel_words = qemu_kernel_words(kvm ? 0 : tsc_khz());
	CLEAN_FREE char *line = xasprintf("%s berthfs.probe=%s", kernel_words, p.nonce);
	const char *const words[] = {QEMU_PROGRAM,
				     "-M",
				     "microvm",
				     "-accel",
				     accelerator,
				     "-cpu",
				     kvm ? "host" : "max",
				     "-m",
				     "256",
				     "-nodefaults",
				     "-no-user-config",
				     "-nic",
				     "none",
				     "-display",
				     "none",
				     "-no-reboot",
				     "-sandbox",
				     "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
				     "-serial",
				     "stdio",
				     "-kernel",
				     kernel,
				     "-initrd",
				     initrd,
				     "-append",
				     line,
				     NULL};
	jail_begin(&(struct jail){.image = dir, .open = open, .device = kvm ? KVM_DEVICE : NULL}, &jail);
	for (const char *const *w = words; *w; w++)
		jail.v[jail.n++] = *w;
	jail.v[jail.n] = NULL;
	int64_t from = clock_mono_ms();
	struct err err = ERR_INIT;
	int rc = child_run(&(struct child){.argv = jail.v,
					   .out = &said,
					   .errout = &said,
					   .max = SAID_MAX,
					   .timeout_ms = ms,
					   .cancel = &p.broken,
					   .line = on_line,
					   .arg = &p},
			   &err);
	tell(&p, rc, clock_mono_ms() - from, ms, buf_str(&said), why);
	return !rc && p.right;
}

/* All that the answer holds for. */
static void state(const char *dir, const char *initrd, struct buf *key)
{
	struct stat st = {0};
	CLEAN_FREE char *qemu = qemu_path();
	CLEAN_BUF struct buf boot = BUF_INIT;
	file_read("/proc/sys/kernel/random/boot_id", &boot, 64, NULL);
	if (qemu)
		stat(qemu, &st);
	buf_addf(key, "%.*s uid %d %s %lld %lld.%09ld %s %s\n", (int)strcspn(buf_str(&boot), "\n"), buf_str(&boot),
		 (int)geteuid(), qemu ? qemu : "-", (long long)st.st_size, (long long)st.st_mtim.tv_sec,
		 st.st_mtim.tv_nsec, dir, initrd);
}

/* "yes WHY\n" or "no  WHY\n" after the state. */
static void keep(const struct paths *paths, struct buf *state, bool works, const char *why)
{
	CLEAN_FREE char *path = xasprintf("%s/kvm", paths->cache);
	buf_addf(state, "%s%.*s\n", works ? "yes " : "no  ", (int)strcspn(why, "\n"), why);
	file_write(path, state->p, state->n, 0600, NULL);
}

/* Whether there is an answer that still holds. */
static bool kept(const struct paths *paths, const struct buf *state, bool *works, struct buf *why)
{
	CLEAN_BUF struct buf old = BUF_INIT;
	CLEAN_FREE char *path = xasprintf("%s/kvm", paths->cache);
	if (file_read(path, &old, NOTE_BYTES, NULL) || old.n <= state->n + 4 || memcmp(old.p, state->p, state->n) != 0)
		return false;
	*works = !strncmp(old.p + state->n, "yes ", 4);
	buf_addf(why, "%.*s", (int)strcspn(old.p + state->n + 4, "\n"), old.p + state->n + 4);
	return true;
}

bool kvm_works(const struct paths *paths, const char *dir, struct buf *why)
{
	CLEAN_BUF struct buf now = BUF_INIT;
	CLEAN_FREE char *initrd = NULL;
	CLEAN_FREE char *path = xasprintf("%s/kvm.lock", paths->cache);
	struct err err = ERR_INIT;
	bool works = false;
	if (access(KVM_DEVICE, R_OK | W_OK)) {
		buf_addf(why, "there is no " KVM_DEVICE " for us: %s", strerror(errno));
		return false;
	}
	if (image_initrd(dir, &initrd, &err)) {
		buf_adds(why, err.text);
		return false;
	}
	state(dir, initrd, &now);
	if (kept(paths, &now, &works, why))
		return works;
	CLEAN_FD int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* one probe serves all that wait */
	if (lock >= 0 && !flock(lock, LOCK_EX) && kept(paths, &now, &works, why))
		return works;
	size_t at = why->n;
	works = kvm_probe("kvm", dir, initrd, PROBE_MS, why);
	keep(paths, &now, works, buf_str(why) + at);
	return works;
}

void kvm_deny(const struct paths *paths, const char *dir, const char *why)
{
	CLEAN_BUF struct buf now = BUF_INIT;
	CLEAN_FREE char *initrd = NULL;
	if (image_initrd(dir, &initrd, NULL))
		return;
	state(dir, initrd, &now);
	keep(paths, &now, false, why);
}
