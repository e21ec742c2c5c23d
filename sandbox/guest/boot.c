/* Bringing a guest up and down. Runs on PID 1's only thread, before and after the tool daemon. Must never return from a
 * failure into a half-made machine: it says why on the console and powers off, which its keeper sees at once. */
#include "boot.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "busy.h"
#include "proc.h"

#define DISK	     "/dev/vda"
#define DISK_WAIT_MS 15000 /* an emulated machine on a busy host takes seconds to find its disk */
#define TERM_WAIT_MS 2000  /* between SIGTERM and SIGKILL at power off */

static const struct {
	const char *what, *where, *type, *data;
	unsigned long flags;
} mounts[] = {
	{"proc", "/proc", "proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
	{"sysfs", "/sys", "sysfs", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
	{"devtmpfs", "/dev", "devtmpfs", "mode=0755", MS_NOSUID},
	{"devpts", "/dev/pts", "devpts", "mode=0620,ptmxmode=0666,gid=5", MS_NOSUID | MS_NOEXEC},
	{"shm", "/dev/shm", "tmpfs", "mode=1777", MS_NOSUID | MS_NODEV},
	{"run", "/run", "tmpfs", "mode=0755", MS_NOSUID | MS_NODEV},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC},
};
#define EARLY_MOUNTS 3 /* those that the initrd needs as well */

void boot_say(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(line, sizeof line - 1, fmt, ap);
	va_end(ap);
	n = n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
	line[n] = '\n';
	(void)!write(2, "berthfs-guest: ", 15);
	(void)!write(2, line, (size_t)n + 1);
}

void boot_power_off(void)
{
	sync();
	if (mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL)) {
		/* somebody has a file open for writing: the kernel can do it by force */
		CLEAN_FD int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);
		if (fd >= 0)
			(void)!write(fd, "u", 1);
		sync();
	}
	reboot(RB_AUTOBOOT);
	for (;;)
		pause();
}

void boot_fail(const char *fmt, ...)
{
	char line[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	boot_say("cannot go on: %s", line);
	boot_power_off();
}

static void mount_some(size_t n, bool must)
{
	for (size_t i = 0; i < n; i++) {
		mkdir(mounts[i].where, 0755);
		if (mount(mounts[i].what, mounts[i].where, mounts[i].type, mounts[i].flags, mounts[i].data) &&
		    errno != EBUSY && must)
			boot_say("cannot mount %s: %s", mounts[i].where, strerror(errno));
	}
}

/* The kernel gives PID 1 no descriptors where the initrd has no /dev/console. */
static void take_console(void)
{
	int fd = open("/dev/console", O_RDWR | O_NOCTTY);
	if (fd < 0)
		fd = open("/dev/null", O_RDWR);
	for (int i = 0; i < 3 && fd >= 0; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
}

bool boot_option(const char *key, char *out, size_t n)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	if (file_read("/proc/cmdline", &text, 65536, NULL))
		return false;
	char *save = NULL;
	size_t len = strlen(key);
	for (char *w = strtok_r(text.p, " \n", &save); w; w = strtok_r(NULL, " \n", &save))
		if (!strncmp(w, key, len) && w[len] == '=') {
			snprintf(out, n, "%s", w + len + 1);
			return true;
		}
	return false;
}

static void load_modules(void)
{
	CLEAN_BUF struct buf list = BUF_INIT;
	if (file_read("/modules/list", &list, 65536, NULL) || !list.n)
		return;
	char *save = NULL;
	for (char *name = strtok_r(list.p, "\n", &save); name; name = strtok_r(NULL, "\n", &save)) {
		CLEAN_FREE char *path = xasprintf("/modules/%s", name);
		CLEAN_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST))
			boot_say("cannot load the module %s: %s", name, strerror(errno));
		unlink(path); /* the initrd is memory */
	}
}

static void wait_for_disk(void)
{
	int64_t end = clock_mono_ms() + DISK_WAIT_MS;
	while (!file_exists(DISK)) {
		if (clock_mono_ms() > end)
			boot_fail("there is no %s after %d s", DISK, DISK_WAIT_MS / 1000);
		clock_sleep_ms(10);
	}
}

static void enter_root(void)
{
	mkdir("/root", 0755);
	if (mount(DISK, "/root", "ext4", MS_NOATIME, NULL))
		boot_fail("cannot mount %s: %s", DISK, strerror(errno));
	unlink("/modules/list");
	unlink("/init");
	for (size_t i = EARLY_MOUNTS; i-- > 0;)
		umount2(mounts[i].where, MNT_DETACH);
	if (chdir("/root") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		boot_fail("cannot enter the root: %s", strerror(errno));
}

static void dev_links(void)
{
	static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
					       {"/proc/self/fd/0", "/dev/stdin"},
					       {"/proc/self/fd/1", "/dev/stdout"},
					       {"/proc/self/fd/2", "/dev/stderr"}};
	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (symlink(links[i][0], links[i][1]) && errno != EEXIST)
			boot_say("cannot make %s: %s", links[i][1], strerror(errno));
}

static void loopback_up(void)
{
	CLEAN_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = {.ifr_name = "lo"};
	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r))
		return;
	r.ifr_flags |= IFF_UP | IFF_RUNNING;
	if (ioctl(fd, SIOCSIFFLAGS, &r))
		boot_say("cannot bring up the loopback: %s", strerror(errno));
}

/* Not forced to the disk, which takes an emulated machine long: the next boot makes up for a file that was lost. */
static void write_text(const char *path, const char *text, mode_t mode)
{
	CLEAN_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (fd >= 0)
		fd_write_full(fd, text, strlen(text));
}

/* Is name a word of text? It may be a part of one that stands there: "box" of "sandbox". */
static bool has_word(const char *text, const char *name)
{
	size_t n = strlen(name);
	for (const char *p = text; (p = strstr(p, name)); p++)
		if ((p == text || isspace((unsigned char)p[-1])) && (!p[n] || isspace((unsigned char)p[n])))
			return true;
	return false;
}

/* Leaves a file alone that has the name in it already: it may have been added to. */
static void write_name(const char *path, const char *name, const char *text)
{
	CLEAN_BUF struct buf old = BUF_INIT;
	if (file_read(path, &old, 65536, NULL) || !has_word(buf_str(&old), name))
		write_text(path, text, 0644);
}

/* machine-id(5): 32 hex digits, of this machine alone. */
static void set_machine_id(bool fresh)
{
	static const char path[] = "/etc/machine-id";
	CLEAN_BUF struct buf old = BUF_INIT;
	unsigned char id[16];
	if (!fresh && !file_read(path, &old, 256, NULL) && old.n >= 32 && strspn(old.p, "0123456789abcdef") >= 32)
		return;
	if (getrandom(id, sizeof id, GRND_NONBLOCK) != sizeof id)
		return;
	buf_reset(&old);
	for (size_t i = 0; i < sizeof id; i++)
		buf_addf(&old, "%02x", id[i]);
	buf_addc(&old, '\n');
	write_text(path, buf_str(&old), 0444);
}

/* The session's name. In hosts as well, since sudo looks itself up. */
void boot_identity(const char *name, bool fresh)
{
	CLEAN_BUF struct buf old = BUF_INIT;
	bool other = file_read("/etc/hostname", &old, 256, NULL) || strcspn(buf_str(&old), "\n") != strlen(name) ||
		     strncmp(buf_str(&old), name, strlen(name)) != 0;
	set_machine_id(fresh || other); /* a disk that began as another machine's has that one's */
	if (!*name)
		return;
	sethostname(name, strlen(name));
	CLEAN_FREE char *line = xasprintf("%s\n", name);
	CLEAN_FREE char *hosts = xasprintf("127.0.0.1\tlocalhost %s\n::1\tlocalhost\n", name);
	write_name("/etc/hostname", name, line);
	write_name("/etc/hosts", name, hosts);
}

void boot_set_clock(int64_t real_ms, int64_t off_ms)
{
	int64_t off = real_ms - clock_real_ms();
	if (real_ms <= 0 || (off < off_ms && off > -off_ms))
		return;
	struct timespec t = {.tv_sec = real_ms / 1000, .tv_nsec = real_ms % 1000 * 1000000};
	clock_settime(CLOCK_REALTIME, &t);
}

void boot_add_entropy(const void *p, size_t n)
{
	struct {
		struct rand_pool_info info;
		char room[256];
	} r = {0};
	n = n < sizeof r.room ? n : sizeof r.room;
	CLEAN_FD int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || !n)
		return;
	memcpy(r.info.buf, p, n);
	r.info.entropy_count = (int)n * 8;
	r.info.buf_size = (int)n;
	if (!ioctl(fd, RNDADDENTROPY, &r))
		ioctl(fd, RNDRESEEDCRNG); /* else what the generator gives next may still be the same as a clone's */
}

/* Where programs say that they work (busy.h), and what that is, for whoever looks around in here. */
static void make_busy(void)
{
	static const char words[] =
		"busy/  While nothing is asked of this machine, it is paused after a while, and later written to "
		"disk.\n"
		"       A file in here says that something works all the same:  echo $$ >/run/berthfs/busy/NAME\n"
		"       It counts while the process with that number lives; with anything else in it, for 10 minutes\n"
		"       after it was last written. Remove it when the work is done.\n";
	mkdir("/run/berthfs", 0755);
	mkdir(BUSY_FOLDER, 0755);
	if (chmod(BUSY_FOLDER, 01777) || file_write("/run/berthfs/README", words, sizeof words - 1, 0644, NULL))
		boot_say("cannot make %s: %s", BUSY_FOLDER, strerror(errno));
}

int64_t boot_cpu_ms(void)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	long long t[8] = {0}; /* user, nice, system, idle, iowait, irq, softirq, steal; ticks */
	if (file_read("/proc/stat", &b, 65536, NULL) ||
	    sscanf(buf_str(&b), "cpu %lld %lld %lld %lld %lld %lld %lld %lld", t, t + 1, t + 2, t + 3, t + 4, t + 5,
		   t + 6, t + 7) != 8)
		return -1;
	return (t[0] + t[1] + t[2] + t[5] + t[6]) * 1000 / sysconf(_SC_CLK_TCK);
}

void boot_up(void)
{
	char text[65];
	umask(022);
	mount_some(EARLY_MOUNTS, false);
	take_console();
	if (boot_option("berthfs.probe", text, sizeof text)) {
		boot_say("probe %s", text);
		boot_power_off();
	}
	load_modules();
	wait_for_disk();
	enter_root();
	mount_some(ARRAY_LEN(mounts), true);
	take_console();
	chmod("/tmp", 01777); /* on the disk: a build's temporary files are larger than a small machine's memory */
	dev_links();
	make_busy();
	loopback_up();
	if (!boot_option("berthfs.host", text, sizeof text))
		*text = 0;
	char fresh[8];
	boot_identity(text, boot_option("berthfs.fresh", fresh, sizeof fresh));
	if (boot_option("berthfs.time", text, sizeof text))
		boot_set_clock(strtoll(text, NULL, 10), CLOCK_OFF_MS);
}

void boot_terminate_all(void)
{
	int64_t end = clock_mono_ms() + TERM_WAIT_MS;
	if (kill(-1, SIGTERM))
		return;
	while (proc_count_below_self() && clock_mono_ms() < end)
		clock_sleep_ms(5);
}
