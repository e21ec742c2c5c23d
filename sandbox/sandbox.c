/* The public functions of sandbox.h: sizes, and the table of kinds. Any thread; keeps no state. */
#include "sandbox.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/mem.h"
#include "driver.h"

static const struct {
	const char *name;
	struct sandbox_size size;
} sizes[] = {{"mini", {1, 512}}, {"small", {2, 2048}}, {"large", {8, 16384}}};

static const struct driver *const drivers[] = {&driver_vm, &driver_container, &driver_ssh, &driver_host, &driver_dir};

int sandbox_size(const char *name, struct sandbox_size *out)
{
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		if (strcmp(sizes[i].name, name) != 0)
			continue;
		long cpus = sysconf(_SC_NPROCESSORS_ONLN);
		int64_t half = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 2 >> 20;
		*out = sizes[i].size;
		if (cpus > 0 && out->cpus > cpus)
			out->cpus = (int)cpus;
		if (half > 0 && out->memory_mib > half)
			out->memory_mib = (int)half;
		return 0;
	}
	return -EINVAL;
}

/* KIND, or KIND:ARGUMENT of a kind that takes one; what is behind the colon is for the driver to judge. */
static const struct driver *find(const char *kind)
{
	size_t n = strcspn(kind, ":");
	for (size_t i = 0; i < ARRAY_LEN(drivers); i++)
		if (strlen(drivers[i]->kind) == n && !strncmp(drivers[i]->kind, kind, n) &&
		    (kind[n] == ':') == (drivers[i]->argument != NULL))
			return drivers[i];
	return NULL;
}

/* Why there is no driver of that kind. */
static int refuse(const char *kind, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(drivers); i++)
		if (drivers[i]->argument && !strcmp(drivers[i]->kind, kind))
			return drivers[i]->argument("", err);
	return err_set(err, EOPNOTSUPP, "there is no kind of sandbox called \"%.60s\": use vm", kind);
}

int sandbox_kind_check(const char *kind, struct err *err)
{
	const struct driver *d = find(kind);
	if (!d)
		return refuse(kind, err);
	return d->argument ? d->argument(strchr(kind, ':') + 1, err) : 0;
}

int sandbox_possible(const char *kind, struct err *err)
{
	int rc = sandbox_kind_check(kind, err);
	return rc ? rc : find(kind)->possible(err);
}

int sandbox_up(const struct sandbox_spec *spec, struct err *err)
{
	const struct driver *d = find(spec->kind);
	return d ? d->up(spec, err) : refuse(spec->kind, err);
}

enum sandbox_state sandbox_state(const struct paths *paths, const char *kind, int64_t id)
{
	const struct driver *d = find(kind);
	return d ? d->state(paths, id) : SANDBOX_NONE;
}

int sandbox_pause(const struct paths *paths, const char *kind, int64_t id, struct err *err)
{
	const struct driver *d = find(kind);
	if (d && !d->pause)
		return err_set(err, EOPNOTSUPP, "a sandbox of kind %s always runs: it cannot be paused", kind);
	return d ? d->pause(paths, id, err) : refuse(kind, err);
}

int sandbox_resume(const struct paths *paths, const char *kind, int64_t id, struct err *err)
{
	const struct driver *d = find(kind);
	return d && d->resume ? d->resume(paths, id, err) : d ? 0 : refuse(kind, err);
}

bool sandbox_can(const char *kind, enum sandbox_state state)
{
	const struct driver *d = find(kind);
	return d && (state == SANDBOX_PAUSED	   ? d->pause != NULL
		     : state == SANDBOX_HIBERNATED ? d->hibernate != NULL
						   : true);
}

int sandbox_down(const struct paths *paths, const char *kind, int64_t id, struct err *err)
{
	const struct driver *d = find(kind);
	return d ? d->down(paths, id, err) : refuse(kind, err);
}

int sandbox_hibernate(const struct paths *paths, const char *kind, int64_t id, struct err *err)
{
	const struct driver *d = find(kind);
	if (d && !d->hibernate)
		return err_set(err, EOPNOTSUPP, "sandboxes of kind %s cannot hibernate", kind);
	return d ? d->hibernate(paths, id, err) : refuse(kind, err);
}

int sandbox_destroy(const struct paths *paths, const char *kind, int64_t id, struct err *err)
{
	const struct driver *d = find(kind);
	return d ? d->destroy(paths, id, err) : 0; /* a kind that cannot be made has left nothing */
}

int sandbox_copy(const struct sandbox_copy *c, struct err *err)
{
	const struct driver *d = find(c->kind);
	if (d && !d->copy)
		return err_set(err, EOPNOTSUPP, "the disk of a sandbox of kind %s cannot be copied", c->kind);
	return d ? d->copy(c, err) : refuse(c->kind, err);
}

bool sandbox_copies(const char *kind)
{
	const struct driver *d = find(kind);
	return d && d->copy;
}

bool sandbox_can_save(const char *kind)
{
	const struct driver *d = find(kind);
	return d && d->save;
}

int sandbox_save(const struct paths *paths, const char *kind, int64_t id, const char *folder, bool *alone,
		 struct err *err)
{
	const struct driver *d = find(kind);
	if (!d)
		return refuse(kind, err);
	if (!d->save)
		return err_set(err, EOPNOTSUPP, "sandboxes of kind %s cannot be saved", kind);
	return d->save(paths, id, folder, alone, err);
}

void sandbox_describe(const struct paths *paths, const char *kind, int64_t id, enum sandbox_state state, char out[64])
{
	const struct driver *d = find(kind);
	if (d) {
		char words[64];
		d->describe(paths, id, state, words); /* the whole kind in front, not its first word */
		snprintf(out, 64, "%.*s%s", (int)(63 - strlen(words)), kind, words + strlen(d->kind));
	} else
		snprintf(out, 64, "%.40s", kind);
}

int sandbox_enter_possible(const char *kind, struct err *err)
{
	const struct driver *d = find(kind);
	if (!d)
		return refuse(kind, err);
	if (d->ssh)
		return 0;
	if (d->argument)
		return err_set(err, EOPNOTSUPP, "log in there yourself: `ssh %s`; the sandbox is below ~/.berthfs",
			       strchr(kind, ':') + 1);
	return err_set(err, EOPNOTSUPP,
		       "sandboxes of kind %s have no ssh server: they are folders of a machine that you are on; "
		       "kinds vm and container have one",
		       kind);
}

bool sandbox_one_user(const char *kind)
{
	const struct driver *d = find(kind);
	return d && d->one_user;
}

int sandbox_ssh(const struct paths *paths, const char *kind, int64_t id, struct err *err)
{
	int rc = sandbox_enter_possible(kind, err);
	return rc ? rc : find(kind)->ssh(paths, id, err);
}

char *sandbox_host(const char *name)
{
	char *host = xstrndup(name && *name ? name : "sandbox", 63);
	for (char *p = host; *p; p++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", *p))
			*p = '-';
	for (size_t n = strlen(host); n && host[n - 1] == '-';)
		host[--n] = 0;
	size_t lead = strspn(host, "-");
	memmove(host, host + lead, strlen(host + lead) + 1);
	if (*host)
		return host;
	free(host);
	return xstrdup("sandbox");
}

char *sandbox_socket(const struct paths *paths, int64_t id)
{
	return xasprintf("%s/%" PRId64 ".sock", paths->runtime, id);
}

char *sandbox_life(const struct paths *paths, int64_t id)
{
	return sandbox_socket(paths, id);
}

void sandbox_say(const struct sandbox_spec *spec, const char *fmt, ...)
{
	if (!spec->progress)
		return;
	va_list ap;
	va_start(ap, fmt);
	CLEAN_FREE char *line = xvasprintf(fmt, ap);
	va_end(ap);
	spec->progress(spec->arg, line);
}
