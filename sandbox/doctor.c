/* What sandboxes of kind vm need of this machine, in words. Only looks; starts nothing but programs that say their
 * version. Any thread; blocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "image.h"
#include "image_job.h"
#include "jail.h"
#include "kvm.h"
#include "qemu.h"
#include "sandbox.h"

#define STALE_MS  (30LL * 24 * 3600 * 1000) /* an image without security updates for longer is worth a word */
#define SPACE_LOW (4ULL << 30)

struct out {
	void (*line)(void *arg, bool ok, const char *name, const char *words);
	void *arg;
	const struct paths *paths;
};

__attribute__((format(printf, 4, 5))) static void say(const struct out *o, bool ok, const char *name, const char *fmt,
						      ...)
{
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *words = xvasprintf(fmt, ap);
	va_end(ap);
	o->line(o->arg, ok, name, words);
}

/* The first line that the program prints about its version. */
static void program(const struct out *o, const char *name, const char *package, const char *what)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	const char *argv[] = {name, "--version", NULL};
	if (!child_found(name))
		say(o, false, name, "not found: install the package %s (%s)", package, what);
	else if (child_run(&(struct child){.argv = argv, .out = &b, .timeout_ms = 10000}, NULL))
		say(o, false, name, "%s --version fails: is the package %s whole?", name, package);
	else
		say(o, true, name, "%.*s", (int)strcspn(buf_str(&b), "\n"), buf_str(&b));
}

/* Neither is a fault: what has no KVM is emulated, some ten times slower. */
static void kvm(const struct out *o)
{
	struct image im = {0};
	CLEAN_BUF struct buf why = BUF_INIT;
	if (image_current(o->paths, &im, NULL)) {
		say(o, true, "kvm", "not known before there is a base image: software emulation (tcg) until then");
		return;
	}
	bool works = kvm_works(o->paths, im.dir, &why);
	say(o, true, "kvm",
	    works ? "works here: %s"
		  : "does not work here: %s; VMs use software emulation (tcg), some ten times slower",
	    buf_str(&why));
	image_release(&im);
}

static void locked_in(const struct out *o)
{
	struct err err = ERR_INIT;
	if (jail_possible(&err))
		say(o, false, "jail", "%s", err.text);
	else
		say(o, true, "jail",
		    "QEMU runs without privileges, network and sight of your files (" JAIL_PROGRAM ")");
}

static void containers(const struct out *o)
{
	struct err err = ERR_INIT;
	if (sandbox_possible("container", &err) || jail_possible(&err))
		say(o, false, "container", "%s", err.text);
	else
		say(o, true, "container", "sandboxes of kind container can be made");
}

static void user_ids(const struct out *o)
{
	struct image_mode mode;
	struct err err = ERR_INIT;
	if (geteuid() == 0)
		return;
	if (image_mode(&mode, &err))
		say(o, false, "user ids", "%s", err.text);
	else
		say(o, true, "user ids", "base images are made with %s", mode.name);
}

static void base_image(const struct out *o)
{
	struct image im = {0};
	struct err err = ERR_INIT;
	char age[CLOCK_TEXT];
	int rc = image_current(o->paths, &im, &err);
	if (rc == -ENOENT && !image_possible(&err)) {
		say(o, true, "image", "none yet: the first session makes it, or berthfs image build");
	} else if (rc) {
		say(o, false, "image", "none, and it cannot be made: %s", err.text);
	} else {
		int64_t old = clock_real_ms() - im.built_ms;
		clock_age(old, age);
		say(o, true, "image", "%s, %s old%s", im.name, age,
		    old > STALE_MS ? ": berthfs image build --force brings the newest packages" : "");
		say(o, true, "kernel", "%s", im.kernel ? im.kernel : "unknown");
	}
	image_release(&im);
}

static void space(const struct out *o, const char *name, const char *dir)
{
	struct statvfs v;
	if (statvfs(dir, &v)) {
		say(o, false, name, "%s: %s", dir, strerror(errno));
		return;
	}
	unsigned long long left = (unsigned long long)v.f_bavail * v.f_frsize;
	say(o, left >= SPACE_LOW, name, "%.1f GiB left in %s%s", (double)left / (1 << 30), dir,
	    left >= SPACE_LOW ? "" : ": a base image needs 3 GiB, and every VM grows");
}

void sandbox_doctor(const struct paths *paths, void (*line)(void *arg, bool ok, const char *name, const char *words),
		    void *arg)
{
	const struct out o = {line, arg, paths};
	program(&o, QEMU_PROGRAM, "qemu-system-x86", "the virtual machines");
	program(&o, "qemu-img", "qemu-utils", "their disks");
	locked_in(&o);
	kvm(&o);
	containers(&o);
	program(&o, "mmdebstrap", "mmdebstrap", "makes the base image");
	user_ids(&o);
	base_image(&o);
	space(&o, "space for VMs", paths->state);
	space(&o, "space for images", paths->cache);
}
