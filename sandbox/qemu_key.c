/* What the saved memory of a VM is valid for. Memory that goes on in another machine than it was saved in is a guest
 * that crashes or, worse, does not: so all that the guest could notice is in the key. Any thread; keeps no state. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/base/fd.h"
#include "backend/base/hash.h"
#include "backend/base/mem.h"
#include "qemu.h"
#include "tsc.h"

#define TSC_NAME      "host's clock rate"
#define TSC_TOLERANCE 2000 /* parts: two measurements of one machine differ by a few in a million */

/* A file that is neither written nor replaced keeps these. */
static void add_file(struct buf *key, const char *name, const char *path)
{
	struct stat st = {0};
	if (path && !stat(path, &st))
		buf_addf(key, "%s = %s %lld %lld.%09ld\n", name, path, (long long)st.st_size,
			 (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	else
		buf_addf(key, "%s = none\n", name);
}

/* The rate cannot change while the host runs. */
static void add_rate(struct buf *key, long khz)
{
	CLEAN_BUF struct buf boot = BUF_INIT;
	file_read("/proc/sys/kernel/random/boot_id", &boot, 64, NULL);
	buf_addf(key, TSC_NAME " = %ld %.*s\n", khz, (int)strcspn(buf_str(&boot), "\n"), buf_str(&boot));
}

/* Under KVM the guest sees the host's processor as it is. */
static void add_processor(struct buf *key, bool kvm)
{
	static const char *const names[] = {"\nmodel name", "\nmicrocode", "\nflags"};
	CLEAN_BUF struct buf b = BUF_INIT;
	uint64_t hash = HASH_BEGIN;
	if (kvm)
		file_read("/proc/cpuinfo", &b, 1 << 20, NULL);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *at = strstr(buf_str(&b), names[i]);
		hash = at ? hash_add(hash, at, strcspn(at + 1, "\n") + 1) : hash;
	}
	if (kvm)
		buf_addf(key, "processor = %016" PRIx64 "\n", hash);
	else
		buf_adds(key, "processor = emulated\n");
}

static void add_machine(struct buf *key, const struct qemu_spec *spec)
{
	CLEAN_BUF struct buf devices = BUF_INIT;
	CLEAN_FREE char *program = qemu_path();
	const char *guest = strrchr(spec->initrd, '/'); /* its name tells the guest program's hash */
	qemu_devices(spec, &devices);
	add_file(key, "QEMU", program);
	add_file(key, "kernel", spec->vmlinux);
	buf_addf(key, "guest program = %s\n", guest ? guest + 1 : spec->initrd);
	buf_addf(key, "memory = %d MiB\n", spec->memory_mib);
	buf_addf(key, "number of processors = %d\n", spec->cpus);
	buf_addf(key, "set of devices = %016" PRIx64 "\n", hash_add(HASH_BEGIN, devices.p, devices.n));
	add_processor(key, spec->kvm);
}

void qemu_key(const struct qemu_spec *spec, struct buf *key)
{
	add_machine(key, spec);
	add_rate(key, spec->khz);
}

void qemu_key_name(const struct qemu_spec *spec, char out[QEMU_KEY_NAME])
{
	CLEAN_BUF struct buf key = BUF_INIT;
	add_machine(&key, spec);
	snprintf(out, QEMU_KEY_NAME, "%016" PRIx64, hash_add(HASH_BEGIN, key.p, key.n));
}

static bool same_value(const char *name, size_t n, const char *a, size_t a_n, const char *b, size_t b_n)
{
	if (n == sizeof TSC_NAME - 1 && !strncmp(name, TSC_NAME, n)) {
		const char *boot_a = memchr(a, ' ', a_n), *boot_b = memchr(b, ' ', b_n);
		long khz = atol(a); /* 0: the guest is not told, and has KVM's clock */
		if (boot_a && boot_b && a + a_n - boot_a > 30 && a + a_n - boot_a == b + b_n - boot_b &&
		    !memcmp(boot_a, boot_b, (size_t)(a + a_n - boot_a)))
			return true;
		return khz == 0 || labs(khz - tsc_khz()) <= khz / TSC_TOLERANCE;
	}
	return a_n == b_n && !memcmp(a, b, a_n);
}

bool qemu_key_fits(const char *saved, const char *now, struct err *err)
{
	while (*saved && *now) {
		size_t a = strcspn(saved, "\n"), b = strcspn(now, "\n");
		const char *x = strstr(saved, " = "), *y = strstr(now, " = ");
		if (!x || !y || x > saved + a || y > now + b || x - saved != y - now ||
		    strncmp(saved, now, (size_t)(x - saved)) != 0)
			break;
		size_t n = (size_t)(x - saved);
		if (!same_value(saved, n, x + 3, a - n - 3, y + 3, b - n - 3)) {
			err_set(err, EINVAL, "the %.*s is another than when it was saved", (int)n, saved);
			return false;
		}
		saved += a + (saved[a] != 0);
		now += b + (now[b] != 0);
	}
	if (!*saved && !*now)
		return true;
	err_set(err, EINVAL, "it was saved by another version of this program");
	return false;
}

long qemu_key_khz(const char *saved)
{
	const char *at = strstr(saved, TSC_NAME " = ");
	return at ? atol(at + sizeof TSC_NAME + 2) : 0;
}
