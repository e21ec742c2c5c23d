/* The jail of one QEMU: what it may see. Any thread; keeps no state. */
#include "jail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/buf.h"
#include "backend/base/child.h"
#include "backend/base/mem.h"

/* Always: namespaces of its own (a user of its own, too, also where we are root), no way to gain anything, the end of
 * its parent is its own. There is no /proc, no /sys, no /home and no /run in it. */
static const char *const fixed[] = {JAIL_PROGRAM,
				    "--unshare-user",
				    "--unshare-ipc",
				    "--unshare-pid",
				    "--unshare-net",
				    "--unshare-uts",
				    "--uid",
				    "65534",
				    "--gid",
				    "65534",
				    "--die-with-parent",
				    "--new-session",
				    "--cap-drop",
				    "ALL",
				    "--ro-bind",
				    "/usr",
				    "/usr",
				    "--ro-bind-try",
				    "/etc/ld.so.cache",
				    "/etc/ld.so.cache",
				    "--ro-bind-try",
				    "/etc/alternatives",
				    "/etc/alternatives",
				    "--dev",
				    "/dev",
				    "--chdir",
				    "/"};

/* On most systems these lead to folders in /usr. */
static const char *const roots[] = {"/bin", "/sbin", "/lib", "/lib64", "/nix"};

static void word(struct jail_args *a, const char *w)
{
	a->v[a->n++] = w;
}

static void words(struct jail_args *a, const char *option, const char *from, const char *to)
{
	word(a, option);
	word(a, from);
	word(a, to);
}

void jail_begin(const struct jail *j, struct jail_args *a)
{
	struct stat st;
	char target[256];
	a->n = a->owned = 0;
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		word(a, fixed[i]);
	for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
		if (lstat(roots[i], &st))
			continue;
		ssize_t n = S_ISLNK(st.st_mode) ? readlink(roots[i], target, sizeof target - 1) : -1;
		if (n > 0) {
			a->own[a->owned] = xstrndup(target, (size_t)n);
			words(a, "--symlink", a->own[a->owned++], roots[i]);
		} else {
			words(a, "--ro-bind", roots[i], roots[i]);
		}
	}
	if (j->open)
		words(a, "--ro-bind", j->open, j->open);
	if (j->image)
		words(a, "--ro-bind", j->image, j->image);
	for (const char *line = j->bases; line && *line && a->owned < (int)ARRAY_LEN(a->own);) {
		size_t n = strcspn(line, "\n");
		a->own[a->owned] = xstrndup(line, n);
		words(a, "--ro-bind", a->own[a->owned], a->own[a->owned]);
		a->owned++;
		line += n + (line[n] == '\n');
	}
	if (j->device)
		words(a, "--dev-bind", j->device, j->device);
	if (j->disk)
		words(a, "--bind", j->disk, j->disk);
	word(a, "--");
}

void jail_release(struct jail_args *a)
{
	for (int i = 0; i < a->owned; i++)
		free(a->own[i]);
	a->owned = 0;
}

int jail_possible(struct err *err)
{
	CLEAN_BUF struct buf said = BUF_INIT;
	__attribute__((cleanup(jail_release))) struct jail_args a = {.n = 0};
	jail_begin(&(struct jail){0}, &a);
	a.v[a.n++] = "/usr/bin/true";
	a.v[a.n] = NULL;
	struct err why = ERR_INIT;
	int rc = child_run(&(struct child){.argv = a.v, .errout = &said, .timeout_ms = 10000}, &why);
	if (!rc)
		return 0;
	if (rc == -ENOENT)
		return err_set(err, ENOENT,
			       JAIL_PROGRAM " is not found: install the package bubblewrap (it locks QEMU in)");
	if (rc < 0)
		return err_set(err, -rc, "%s", why.text);
	return err_set(err, EPERM,
		       "QEMU cannot be locked in: %.*s; user namespaces have to be allowed here (sysctl "
		       "kernel.unprivileged_userns_clone=1, or a profile of AppArmor that lets bwrap make them)",
		       (int)strcspn(buf_str(&said), "\n"), buf_str(&said));
}
