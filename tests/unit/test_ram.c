/* Files of memory: what goes in comes out, whatever is damaged is noticed; and what memory is valid for. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/qemu.h"
#include "sandbox/ram.h"

#define SIZE (64L << 20)
#define PAGE 4096L

static char folder[] = "/tmp/berthfs-ram-XXXXXX";
static char path[64];

static int memory(off_t size)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	CHECK(fd >= 0 && !ftruncate(fd, size));
	return fd;
}

/* Pages with a pattern here and there: first, last, a long run over several blocks, and one that is there but zero. */
static void fill(int fd)
{
	char page[PAGE];
	const long runs[][2] = {{0, 1}, {3, 300}, {1000, 1}, {1002, 1}, {SIZE / PAGE - 1, 1}};
	for (size_t r = 0; r < ARRAY_LEN(runs); r++)
		for (long i = runs[r][0]; i < runs[r][0] + runs[r][1]; i++) {
			for (size_t b = 0; b < PAGE; b++)
				page[b] = (char)(i * 7 + (long)b);
			CHECK_INT(pwrite(fd, page, PAGE, i * PAGE), PAGE);
		}
	memset(page, 0, sizeof page);
	CHECK_INT(pwrite(fd, page, PAGE, 5000 * PAGE), PAGE);
}

static bool same(int a, int b)
{
	const char *x = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, a, 0),
		   *y = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, b, 0);
	bool is = !memcmp(x, y, SIZE);
	munmap((void *)(uintptr_t)x, SIZE);
	munmap((void *)(uintptr_t)y, SIZE);
	return is;
}

static bool begin(void)
{
	strcpy(folder, "/tmp/berthfs-ram-XXXXXX");
	if (!mkdtemp(folder))
		return false;
	snprintf(path, sizeof path, "%s/memory", folder);
	return true;
}

/* Saves a filled memory and returns it. */
static int saved(void)
{
	struct err err = ERR_INIT;
	int ram = memory(SIZE);
	CLEAN_FD int state = memory(0);
	fill(ram);
	CHECK_INT(fd_write_full(state, "state of the devices", 20), 0);
	CHECK_INT(ram_save(ram, state, "a = b\n", path, &err), 0);
	return ram;
}

TEST(what_goes_in_comes_out)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	struct err err = ERR_INIT;
	struct stat st;
	CHECK(begin());
	CLEAN_FD int from = saved();
	CLEAN_FD int to = memory(SIZE);
	CLEAN_FD int state = memory(0);
	CHECK(!stat(path, &st) && st.st_size < 310 * PAGE);
	CHECK_INT(fstat(from, &st), 0);
	CHECK(st.st_blocks * 512 < 310 * PAGE); /* reading has filled no hole */
	CHECK_INT(ram_key(path, &text, &err), 0);
	CHECK_STR(buf_str(&text), "a = b\n");
	CHECK_INT(ram_load(path, to, state, &err), 0);
	CHECK_INT(fstat(to, &st), 0);
	CHECK(st.st_blocks * 512 < 310 * PAGE);
	CHECK(same(from, to)); /* fills holes */
	buf_reset(&text);
	CHECK_INT(fd_read_all(state, &text, 100), 0);
	CHECK_STR(buf_str(&text), "state of the devices");
	CLEAN_FD int small = memory(SIZE / 2);
	CHECK_INT(ram_load(path, small, state, &err), -EINVAL);
	dir_remove(folder, NULL);
}

/* Whichever byte is another, and wherever it was cut. */
TEST(damage_is_noticed)
{
	struct err err = ERR_INIT;
	struct stat st;
	CHECK(begin());
	CLEAN_FD int from = saved();
	CHECK_INT(stat(path, &st), 0);
	CLEAN_FD int file = open(path, O_RDWR | O_CLOEXEC);
	for (off_t at = 0; at < st.st_size; at += at < 200 || at > st.st_size - 200 ? 1 : 99991) {
		CLEAN_FD int to = memory(SIZE);
		CLEAN_FD int state = memory(0);
		char was, is;
		CHECK_INT(pread(file, &was, 1, at), 1);
		is = (char)(was ^ 0x10);
		CHECK_INT(pwrite(file, &is, 1, at), 1);
		CHECK_INT(ram_load(path, to, state, &err), -EBADMSG);
		CHECK_INT(pwrite(file, &was, 1, at), 1);
		if (check_failed)
			return;
	}
	for (off_t n = st.st_size; n > 0; n -= 100003) {
		CLEAN_FD int to = memory(SIZE);
		CHECK_INT(ftruncate(file, n - 1), 0);
		CHECK_INT(ram_load(path, to, to, &err), -EBADMSG);
	}
	unlink(path);
	CHECK_INT(ram_load(path, from, from, &err), -ENOENT);
	dir_remove(folder, NULL);
}

TEST(no_half_file_is_left)
{
	struct err err = ERR_INIT;
	struct rlimit was, small;
	CHECK(begin());
	CLEAN_FD int from = memory(SIZE);
	CLEAN_FD int state = memory(0);
	fill(from);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &was);
	small = (struct rlimit){.rlim_cur = 100 * PAGE, .rlim_max = was.rlim_max};
	setrlimit(RLIMIT_FSIZE, &small);
	CHECK_INT(ram_save(from, state, "", path, &err), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &was);
	CHECK(!file_exists(path));
	dir_remove(folder, NULL);
}

/* ---- a memory that stands still ---- */

static long blocks(int fd)
{
	struct stat st;
	CHECK_INT(fstat(fd, &st), 0);
	return (long)(st.st_blocks * 512 / PAGE);
}

static void set_page(int fd, long page, char with)
{
	char bytes[PAGE];
	memset(bytes, with, sizeof bytes);
	CHECK_INT(pwrite(fd, bytes, PAGE, page * PAGE), PAGE);
}

/* A memory that began from a file and has changed here and there since, and how it is to be again. */
static int changed(int *like)
{
	struct err err = ERR_INIT;
	CLEAN_FD int from = saved();
	CLEAN_FD int state = memory(0);
	int ram = memory(SIZE);
	*like = memory(SIZE);
	/* whoever writes to it from now on leaves another time */
	CHECK_INT(utimensat(AT_FDCWD, path, (struct timespec[2]){{.tv_sec = 1000}, {.tv_sec = 1000}}, 0), 0);
	CHECK_INT(ram_load(path, ram, state, &err), 0);
	CHECK_INT(ftruncate(state, 0), 0);
	CHECK_INT(ram_load(path, *like, state, &err), 0);
	for (int i = 0; i < 2; i++) {
		int fd = i ? *like : ram;
		set_page(fd, 0, 'x'); /* others than in the file */
		set_page(fd, 100, 'x');
		set_page(fd, 2000, 'x'); /* where the file has none */
		set_page(fd, 3000, 0);	 /* there, and zero */
		set_page(fd, 302, 0);	 /* in the file, and zero by now */
	}
	return ram;
}

TEST(what_a_file_holds_is_lent_and_comes_back)
{
	struct err err = ERR_INIT;
	struct ram_lent lent = RAM_LENT_INIT;
	atomic_bool over = false;
	int like;
	CHECK(begin());
	CLEAN_FD int ram = changed(&like);
	CHECK_INT(blocks(ram), 306);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(ram_lend(ram, path, &over, &lent, &err), 0);
		CHECK_INT(blocks(ram), 3); /* those of its own */
		CHECK_INT((long)ram_lent_bytes(&lent) / PAGE, 301);
		if (i)
			unlink(path); /* it is open */
		CHECK_INT(ram_back(ram, &lent, &err), 0);
		CHECK_INT(blocks(ram), 304);
		CHECK_INT(ram_back(ram, &lent, &err), 0); /* again: nothing changes */
		ram_lent_release(&lent);
	}
	CHECK(same(ram, like));
	close(like);
	dir_remove(folder, NULL);
}

TEST(without_a_file_what_is_zero_goes)
{
	static const char *const none[] = {NULL, "/no/such/file", "/etc/passwd"};
	struct err err = ERR_INIT;
	atomic_bool over = false;
	int like;
	CHECK(begin());
	CLEAN_FD int ram = changed(&like);
	for (size_t i = 0; i < ARRAY_LEN(none); i++) {
		struct ram_lent lent = RAM_LENT_INIT;
		CHECK_INT(ram_lend(ram, none[i], &over, &lent, &err), 0);
		CHECK_INT(blocks(ram), 304);
		CHECK_INT((long)ram_lent_bytes(&lent), 0);
		CHECK_INT(ram_back(ram, &lent, &err), 0);
		ram_lent_release(&lent);
	}
	CHECK(same(ram, like));
	close(like);
	dir_remove(folder, NULL);
}

TEST(lending_ends_early)
{
	struct err err = ERR_INIT;
	struct ram_lent lent = RAM_LENT_INIT;
	atomic_bool over = true;
	int like;
	CHECK(begin());
	CLEAN_FD int ram = changed(&like);
	CHECK_INT(ram_lend(ram, path, &over, &lent, &err), 0);
	CHECK(blocks(ram) > 3);
	CHECK_INT(ram_back(ram, &lent, &err), 0);
	ram_lent_release(&lent);
	CHECK(same(ram, like));
	close(like);
	dir_remove(folder, NULL);
}

/* A file that changes while pages are lent to it is noticed; once it is as it was, so is the memory. */
TEST(a_file_that_has_changed_meanwhile)
{
	struct err err = ERR_INIT;
	struct ram_lent lent = RAM_LENT_INIT;
	atomic_bool over = false;
	struct stat st;
	int like;
	char was, is;
	CHECK(begin());
	CLEAN_FD int ram = changed(&like);
	CLEAN_FD int file = open(path, O_RDWR | O_CLOEXEC);
	CHECK_INT(ram_lend(ram, path, &over, &lent, &err), 0);
	for (off_t at = 3 * PAGE; at < 300 * PAGE; at += 50021) {
		CHECK_INT(pread(file, &was, 1, at), 1);
		is = (char)(was ^ 0x10);
		CHECK_INT(pwrite(file, &is, 1, at), 1);
		CHECK_INT(ram_back(ram, &lent, &err), at / PAGE == 99 ? 0 : -EBADMSG);
		CHECK_INT(pwrite(file, &was, 1, at), 1);
	}
	CHECK_INT(fstat(file, &st), 0);
	CLEAN_FREE char *all = xmalloc((size_t)st.st_size);
	CHECK_INT(pread(file, all, (size_t)st.st_size, 0), st.st_size);
	CHECK_INT(ftruncate(file, 100 * PAGE + 7), 0);
	CHECK_INT(ram_back(ram, &lent, &err), -EBADMSG);
	CHECK_INT(pwrite(file, all, (size_t)st.st_size, 0), st.st_size);
	CHECK_INT(ram_back(ram, &lent, &err), 0);
	ram_lent_release(&lent);
	CHECK(same(ram, like));
	close(like);
	dir_remove(folder, NULL);
}

TEST(keys)
{
	CLEAN_BUF struct buf a = BUF_INIT;
	CLEAN_BUF struct buf b = BUF_INIT;
	struct err err = ERR_INIT;
	struct qemu_spec spec = {.vmlinux = "/bin/sh", .initrd = "/x/initrd-1", .cpus = 1, .memory_mib = 512};
	spec.khz = 2300000;
	qemu_key(&spec, &a);
	spec.khz = 0;
	qemu_key(&spec, &b);
	CHECK_INT(qemu_key_khz(buf_str(&a)), 2300000);
	CHECK(qemu_key_fits(buf_str(&a), buf_str(&b), &err));
	static const struct {
		struct qemu_spec spec;
		const char *words;
	} others[] = {
		{{.vmlinux = "/bin/cat", .initrd = "/x/initrd-1", .cpus = 1, .memory_mib = 512},
		 "the kernel is another"},
		{{.vmlinux = "/bin/sh", .initrd = "/x/initrd-2", .cpus = 1, .memory_mib = 512}, "the guest program"},
		{{.vmlinux = "/bin/sh", .initrd = "/x/initrd-1", .cpus = 2, .memory_mib = 512}, "number of processors"},
		{{.vmlinux = "/bin/sh", .initrd = "/x/initrd-1", .cpus = 1, .memory_mib = 513},
		 "the memory is another"},
	};
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		buf_reset(&b);
		qemu_key(&others[i].spec, &b);
		CHECK(!qemu_key_fits(buf_str(&a), buf_str(&b), &err));
		CHECK(strstr(err.text, others[i].words) != NULL);
	}
	/* another boot of the host: measured, and the rate is another */
	buf_reset(&b);
	qemu_key(&spec, &b);
	CLEAN_FREE char *moved = xstrdup(buf_str(&a));
	char *rate = strstr(moved, "clock rate = 2300000 ");
	CHECK(rate != NULL);
	rate[13] = '1';
	rate[25] = rate[25] == 'a' ? 'b' : 'a';
	CHECK(!qemu_key_fits(moved, buf_str(&b), &err));
	CHECK(strstr(err.text, "host's clock rate") != NULL);
	CHECK(!qemu_key_fits("", buf_str(&b), &err));
	CHECK(!qemu_key_fits(buf_str(&a), "QEMU = 1\n", &err));
}

CHECK_MAIN()
