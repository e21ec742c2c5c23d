/* Kind container: bubblewrap on a folder that starts as the base image's tree. Everything about one is in its folder
 * (box.h) and behind its socket, so nothing is held here between calls. Blocks; worker threads only. Must never end a
 * process that it cannot tell to be this sandbox's. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "backend/base/child.h"
#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "box.h"
#include "box_talk.h"
#include "driver.h"
#include "env_call.h"
#include "image.h"
#include "jail.h"
#include "net.h"
#include "process.h"

#define HELLO_MS      10000 /* a running tool daemon answers at once; this is for a machine that swaps */
#define END_MS	      10000 /* from the request to end itself to SIGKILL */
#define ENDING_MS     200
#define GONE_MS	      30000 /* all that was inside has ended, on a machine that swaps */
#define COPY_MS	      1800000
#define CANCEL_MS     50
#define PROBE	      "probe" /* folder in which is tried out what can be mounted */
#define PAUSE_MS      2000
#define PAUSE_LOOK_MS 10

struct place {
	char *folder, *root, *kind, *image, *lock, *pid, *log, *net, *turn, *socket;
};

static void place_release(struct place *p)
{
	char **all[] = {&p->folder, &p->root, &p->kind, &p->image, &p->lock,
			&p->pid,    &p->log,  &p->net,	&p->turn,  &p->socket};
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		free(take(*all[i]));
}
#define CLEAN_PLACE __attribute__((cleanup(place_release)))

static struct place place(const struct paths *paths, int64_t id)
{
	struct place p = {.folder = xasprintf("%s/sandboxes/%lld", paths->state, (long long)id)};
	p.root = xasprintf("%s/root", p.folder);
	p.kind = xasprintf("%s/kind", p.folder);
	p.image = xasprintf("%s/image", p.folder);
	p.lock = xasprintf("%s/lock", p.folder);
	p.pid = xasprintf("%s/keeper.pid", p.folder);
	p.log = xasprintf("%s/keeper.log", p.folder);
	p.net = xasprintf("%s/net", p.folder);
	p.turn = xasprintf("%s/up.lock", p.folder);
	p.socket = sandbox_socket(paths, id);
	return p;
}

static bool cancelled(const struct sandbox_spec *spec)
{
	return spec && spec->cancel && atomic_load(spec->cancel);
}

/* up, down and destroy of one sandbox take turns, also between two daemons. */
static int take_turn(const struct place *p, const struct sandbox_spec *spec, struct err *err)
{
	CLEAN_FD int fd = open(p->turn, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "cannot open %s", p->turn);
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (cancelled(spec))
			return err_set(err, ECANCELED, "starting the container was stopped");
		clock_sleep_ms(CANCEL_MS);
	}
	return take_fd(&fd);
}

/* Whether keeper, bubblewrap and all that is inside have ended; waits up to ms for that. */
static bool gone(const struct place *p, int ms)
{
	int64_t end = clock_mono_ms() + ms;
	CLEAN_FD int fd = open(p->lock, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return true;
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (clock_mono_ms() >= end)
			return false;
		clock_sleep_ms(10);
	}
	return true; /* closing gives it back */
}

static bool can_connect(const struct place *p)
{
	CLEAN_FD int fd = unix_connect_now(p->socket, NULL);
	return fd >= 0 || fd == -EAGAIN;
}

/* A keeper that was killed leaves the tool daemon, which still answers for a moment: it dies of that, too. */
static bool runs(const struct place *p)
{
	return process_alive(p->pid) && can_connect(p);
}

static bool has_tree(const char *image)
{
	CLEAN_FREE char *tree = xasprintf("%s/tree", image);
	return file_exists(tree);
}

static char *note_of(const char *path)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	return file_read(path, &b, 4096, NULL) ? NULL : xstrndup(buf_str(&b), strcspn(buf_str(&b), "\n"));
}

static int note(const char *path, const char *text, struct err *err)
{
	CLEAN_FREE char *line = xasprintf("%s\n", text);
	return file_write(path, line, strlen(line), 0600, err);
}

/* A number of /proc/sys, or fallback. */
static long setting(const char *path, long fallback)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	return file_read(path, &b, 100, NULL) ? fallback : atol(buf_str(&b));
}

static int possible(struct err *err)
{
	if (!child_found(JAIL_PROGRAM))
		return err_set(err, ENOENT,
			       "sandboxes of kind container need " JAIL_PROGRAM ": install the package bubblewrap");
	if (!setting("/proc/sys/user/max_user_namespaces", 1))
		return err_set(
			err, EPERM,
			"sandboxes of kind container need user namespaces, and this machine allows none: as root, "
			"sysctl user.max_user_namespaces=10000");
	if (geteuid() && !setting("/proc/sys/kernel/unprivileged_userns_clone", 1))
		return err_set(
			err, EPERM,
			"sandboxes of kind container need user namespaces, and this machine keeps them from ordinary "
			"users: as root, sysctl kernel.unprivileged_userns_clone=1");
	return 0;
}

static enum sandbox_state state(const struct paths *paths, int64_t id)
{
	CLEAN_PLACE struct place p = place(paths, id);
	if (!file_exists(p.root))
		return SANDBOX_NONE;
	if (!process_alive(p.pid))
		return SANDBOX_DOWN;
	CLEAN_BUF struct buf how = BUF_INIT;
	CLEAN_FD int fd = box_request(p.socket, BOX_STATUS "\n", HELLO_MS, &how, NULL);
	if (fd == -ENOTCONN)
		return SANDBOX_DOWN;
	return !strcmp(buf_str(&how), " paused") ? SANDBOX_PAUSED : SANDBOX_RUNNING;
}

/* The keeper refuses while somebody is connected. A connection that was closed on this side may be open inside for a
 * moment longer, so it is asked again for a while. */
static int pause_box(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_PLACE struct place p = place(paths, id);
	for (int64_t end = clock_mono_ms() + PAUSE_MS;; clock_sleep_ms(PAUSE_LOOK_MS)) {
		struct err why = ERR_INIT;
		CLEAN_FD int fd = box_request(p.socket, BOX_PAUSE "\n", HELLO_MS, NULL, &why);
		if (fd >= 0)
			return 0;
		bool busy = fd == -EIO && !strncmp(why.text, BOX_BUSY, strlen(BOX_BUSY));
		if (fd == -EIO && !busy) /* one of an older program knows nothing of it */
			return err_set(err, EOPNOTSUPP,
				       "an older berthfs has started this container: it cannot be paused before it was "
				       "down once (%s)",
				       why.text);
		if (!busy || clock_mono_ms() >= end)
			return err_set(err, busy ? EBUSY : -fd, "%s", busy ? why.text + strlen(BOX_BUSY) : why.text);
	}
}

/* Whatever connects lets it go on. */
static int resume_box(const struct paths *paths, int64_t id, struct err *err)
{
	struct env *env = NULL;
	int rc = env_open_within(paths, id, HELLO_MS, NULL, &env, err);
	env_close(env);
	return rc;
}

/* ---- making ---- */

/* Whether the kernel lays a folder of ours over the tree, on this file system, for this user. */
static bool overlay_possible(const struct sandbox_spec *spec, const struct place *p, const char *tree, struct buf *why)
{
	CLEAN_FREE char *folder = xasprintf("%s/" PROBE, p->folder);
	const char *const argv[] = {
		paths_program(spec->paths), BOX_VERB, "--folder", folder, "--tree", tree, "--probe", "1", NULL};
	int rc = child_run(&(struct child){.argv = argv, .errout = why, .max = 1000, .timeout_ms = 60000}, NULL);
	buf_cut(why, strcspn(buf_str(why), "\n"));
	return rc == 0;
}

static int make_dirs(const struct place *p, const char *const *names, struct err *err)
{
	int rc = 0;
	for (; *names && !rc; names++) {
		CLEAN_FREE char *path = xasprintf("%s/%s", p->folder, *names);
		rc = dir_make(path, 0755, err);
	}
	return rc;
}

/* What is removed may hold folders without any right, and be deeper than descriptors reach: rm knows both. */
static int remove_trees(const struct place *p, const char *const *names, struct err *err)
{
	CLEAN_BUF struct buf words = BUF_INIT;
	const char *argv[12] = {
		"sh", "-c",
		"for d; do [ -e \"$d\" ] || [ -L \"$d\" ] || continue; chmod -R u+rwx -- \"$d\" 2>/dev/null; "
		"rm -rf --one-file-system -- \"$d\" || exit 1; done",
		"sh"};
	int n = 4;
	for (; *names && n < 11; names++)
		argv[n++] = *names;
	int rc = child_run(
		&(struct child){.argv = argv, .cwd = p->folder, .errout = &words, .max = 1000, .timeout_ms = COPY_MS},
		err);
	buf_cut(&words, strcspn(buf_str(&words), "\n"));
	return rc > 0 ? err_set(err, EIO, "cannot remove the files of a container: %s", buf_str(&words)) : rc;
}

static const char *const trees[] = {"root", "root.new", "work", "mnt", PROBE, NULL};
/* and, at its end, copies of them, finished or not */
static const char *const copies[] = {"saves", "root.copy", NULL};

static int copy_tree(const struct sandbox_spec *spec, const struct place *p, const char *tree, struct err *err)
{
	CLEAN_BUF struct buf words = BUF_INIT;
	CLEAN_FREE char *from = xasprintf("%s/.", tree);
	const char *const argv[] = {"cp", "-a", "--reflink=auto", "--", from, "root.new", NULL};
	int rc = child_run(&(struct child){.argv = argv,
					   .cwd = p->folder,
					   .errout = &words,
					   .max = 1000,
					   .timeout_ms = COPY_MS,
					   .cancel = spec->cancel},
			   err);
	buf_cut(&words, strcspn(buf_str(&words), "\n"));
	return rc > 0 ? err_set(err, strstr(buf_str(&words), "No space left") ? ENOSPC : EIO,
				"cannot copy the base image: %s", buf_str(&words))
		      : rc;
}

/* root/ is put in place last: a sandbox that was being made when its maker was killed is none. */
static int lay_out(const struct sandbox_spec *spec, const struct place *p, const char *tree, struct err *err)
{
	CLEAN_BUF struct buf why = BUF_INIT;
	CLEAN_FREE char *made = xasprintf("%s/root.new", p->folder);
	int rc = remove_trees(p, trees, err);
	rc = rc ? rc
		: make_dirs(p, (const char *const[]){PROBE, PROBE "/root", PROBE "/work", PROBE "/mnt", NULL}, err);
	if (rc)
		return rc;
	bool overlay = overlay_possible(spec, p, tree, &why);
	rc = remove_trees(p, (const char *const[]){PROBE, NULL}, err);
	rc = rc ? rc : make_dirs(p, (const char *const[]){"root.new", "mnt", overlay ? "work" : NULL, NULL}, err);
	if (!rc && !overlay) {
		sandbox_say(spec, "an overlay cannot be mounted here (%s): copying the base image", buf_str(&why));
		rc = copy_tree(spec, p, tree, err);
	}
	rc = rc ? rc : note(p->kind, overlay ? "overlay" : "copy", err);
	if (!rc && rename(made, p->root))
		rc = err_sys(err, errno, "cannot make %s", p->root);
	return rc;
}

/* The image folder to start from, built if there is none: the base image of VMs where those can be made, else its tree
 * alone. */
static int find_image(const struct sandbox_spec *spec, char **dir, struct err *err)
{
	struct image im = {0};
	int rc = image_current(spec->paths, &im, NULL);
	if (rc == -ENOENT && !image_possible(NULL)) {
		sandbox_say(spec, "there is no base image yet: building it");
		rc = image_build(spec->paths, false, spec->cancel, spec->progress, spec->arg, err);
		rc = rc ? rc : image_current(spec->paths, &im, err);
		if (rc)
			return rc;
	}
	if (rc || (!child_found("qemu-img") && !has_tree(im.dir))) {
		image_release(&im);
		return image_tree_alone(spec->paths, spec->cancel, spec->progress, spec->arg, dir, err);
	}
	*dir = take(im.dir);
	image_release(&im);
	return 0;
}

/* As a template has it: what lies above the image's tree is copied. */
static int create_from(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	CLEAN_FREE char *from = xasprintf("%s/root", spec->template),
			*its_image = xasprintf("%s/image", spec->template),
			*its_kind = xasprintf("%s/kind", spec->template), *image = note_of(its_image),
			*kind = note_of(its_kind);
	CLEAN_FD int hold = image_hold(spec->paths, err);
	if (hold < 0)
		return hold;
	if (!image || !kind || !file_exists(from))
		return err_set(err, ENOENT, "the template %s is gone", spec->template);
	if (!file_exists(image))
		return err_set(err, ENOENT, "the base image %s of the template %s is gone", image, spec->template);
	int rc = note(p->image, image, err);
	rc = rc ? rc : image_use(image, p->folder, err);
	rc = rc ? rc : note(p->kind, kind, err);
	rc = rc ? rc : remove_trees(p, trees, err);
	rc = rc ? rc : remove_trees(p, (const char *const[]){"root.copy", NULL}, err);
	rc = rc ? rc : make_dirs(p, (const char *const[]){"work", "mnt", NULL}, err);
	return rc ? rc : sandbox_copy_tree(from, p->root, spec->cancel, err);
}

/* Makes the sandbox while nobody can remove the image. */
static int create(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	if (spec->template)
		return create_from(spec, p, err);
	CLEAN_FREE char *dir = NULL, *tree = NULL;
	int rc = find_image(spec, &dir, err);
	CLEAN_FD int hold = rc ? -1 : image_hold(spec->paths, err);
	rc = rc ? rc : hold < 0 ? hold : 0;
	if (!rc && !file_exists(dir))
		rc = err_set(err, EAGAIN, "the base image was removed meanwhile: `retry`");
	rc = rc ? rc : note(p->image, dir, err);
	rc = rc ? rc : image_use(dir, p->folder, err);
	rc = rc ? rc : image_tree(dir, spec->cancel, spec->progress, spec->arg, &tree, err);
	return rc ? rc : lay_out(spec, p, tree, err);
}

/* ---- starting ---- */

/* The keeper's one line, or why there is none. */
static int await(const struct sandbox_spec *spec, const struct place *p, int status, struct buf *line, struct err *err)
{
	int64_t end = clock_mono_ms() + spec->boot_timeout_ms;
	while (!buf_ends(line, "\n")) {
		struct pollfd w = {.fd = status, .events = POLLIN};
		char room[700];
		if (cancelled(spec))
			return err_set(err, ECANCELED, "starting the container was stopped");
		if (clock_mono_ms() > end)
			return err_set(err, ETIMEDOUT, "the container did not start within %d s: see %s",
				       spec->boot_timeout_ms / 1000, p->log);
		if (poll(&w, 1, CANCEL_MS) <= 0)
			continue;
		ssize_t n = read(status, room, sizeof room);
		if (n <= 0)
			return err_set(err, EIO, "the container's keeper ended at once: see %s", p->log);
		buf_add(line, room, (size_t)n);
	}
	buf_cut(line, line->n - 1);
	return 0;
}

/* bubblewrap's own words, which stand in the log. */
static int explain(const struct place *p, const char *words, struct err *err)
{
	CLEAN_BUF struct buf log = BUF_INIT;
	file_read(p->log, &log, 65536, NULL);
	const char *line = strstr(buf_str(&log), "bwrap: ");
	return line ? err_set(err, EIO, "the container does not start: %.*s", (int)strcspn(line, "\n"), line)
		    : err_set(err, EIO, "the container does not start: %s; see %s", words, p->log);
}

static int start(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	struct sandbox_size size;
	CLEAN_FREE char *image = note_of(p->image), *kind = note_of(p->kind), *tree = NULL,
			*host = sandbox_host(spec->name);
	CLEAN_BUF struct buf line = BUF_INIT;
	if (sandbox_size(spec->size, &size))
		return err_set(err, EINVAL, "there is no size %s: mini, small or large", spec->size);
	if (!image || !kind)
		return err_set(err, EIO, "%s is damaged: `destroy` ends this session", p->folder);
	bool overlay = !strcmp(kind, "overlay");
	int rc = overlay ? image_tree(image, spec->cancel, spec->progress, spec->arg, &tree, err) : 0;
	if (rc)
		return rc;
	CLEAN_FREE char *cpus = xasprintf("%d", size.cpus), *memory = xasprintf("%d", size.memory_mib),
			*disk = xasprintf("%d", spec->disk_mib), *base = xasprintf("%s/tree", image);
	const char *argv[18] = {paths_program(spec->paths),
				BOX_VERB,
				"--folder",
				p->folder,
				"--socket",
				p->socket,
				"--host",
				host,
				"--cpus",
				cpus,
				"--memory",
				memory,
				"--disk",
				disk,
				overlay ? "--tree" : "--base",
				overlay ? tree : base};
	CLEAN_FD int status = process_detach(argv, p->log, err);
	rc = status < 0 ? status : await(spec, p, status, &line, err);
	if (!rc && strncmp(buf_str(&line), "ok", 2) != 0)
		return explain(p, buf_str(&line) + strlen("error "), err);
	if (!rc && line.n > 3)
		sandbox_say(spec, "the container's %s cannot be limited here (no cgroup of ours): only each process is",
			    buf_str(&line) + 3);
	return rc;
}

static int end_processes(const struct paths *paths, int64_t id, const struct place *p, bool gently, struct err *err)
{
	struct env *env = NULL;
	if (gently && process_alive(p->pid) && !env_open_within(paths, id, HELLO_MS, NULL, &env, NULL)) {
		env_hurry(env, END_MS);
		env_shutdown(env, NULL);
	}
	bool ended = gone(p, env ? END_MS : 0);
	env_close(env);
	pid_t pid = ended ? 0 : process_alive(p->pid);
	if (pid && !kill(pid, SIGTERM)) /* it removes what it has made elsewhere */
		ended = gone(p, END_MS);
	if (pid && !ended && process_alive(p->pid) == pid)
		kill(pid, SIGKILL); /* the rest dies with it */
	if (!ended && !gone(p, GONE_MS))
		return err_set(err, EBUSY, "the container %lld does not end", (long long)id);
	unlink(p->socket);
	return 0;
}

static int begin(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	int rc = end_processes(spec->paths, spec->id, p, false, err);
	if (rc)
		return rc;
	sandbox_say(spec, "starting the container");
	rc = start(spec, p, err);
	if (rc) /* cut off on its way */
		end_processes(spec->paths, spec->id, p, false, NULL);
	return rc;
}

/* Whether the container that is there answers, and its end had not begun before it did. */
static int greets(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	struct env *env = NULL;
	int rc = env_open_within(spec->paths, spec->id, HELLO_MS, spec->cancel, &env, err);
	env_close(env);
	return !rc && !process_alive(p->pid) ? err_set(err, ENOTCONN, "the container has ended at once: see %s", p->log)
					     : rc;
}

/* One that was ending just then, be it slowly, is started anew; one that only was too busy answers the next time. */
static int take_over(const struct sandbox_spec *spec, const struct place *p, struct err *err)
{
	int64_t end = clock_mono_ms() + GONE_MS;
	int rc = greets(spec, p, err);
	while (rc == -ENOTCONN && !cancelled(spec) && clock_mono_ms() < end) {
		if (gone(p, ENDING_MS)) {
			rc = begin(spec, p, err);
			return rc ? rc : greets(spec, p, err);
		}
		rc = greets(spec, p, err);
	}
	return rc;
}

static int up(const struct sandbox_spec *spec, struct err *err)
{
	CLEAN_PLACE struct place p = place(spec->paths, spec->id);
	int rc = dir_make(p.folder, 0700, err);
	if (rc)
		return rc;
	CLEAN_FD int turn = take_turn(&p, spec, err);
	rc = turn < 0 ? turn : 0;
	if (!rc && (!file_exists(p.root) || !file_exists(p.kind))) /* older programs tried out mounts in root/ itself */
		rc = create(spec, &p, err);
	rc = rc ? rc : net_note(p.net, spec->net, err);
	if (rc || runs(&p))
		return rc ? rc : take_over(spec, &p, err);
	rc = begin(spec, &p, err);
	return rc ? rc : greets(spec, &p, err);
}

/* ---- ending ---- */

static int down(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_PLACE struct place p = place(paths, id);
	if (!file_exists(p.folder))
		return 0;
	CLEAN_FD int turn = take_turn(&p, NULL, err);
	return turn < 0 ? turn : end_processes(paths, id, &p, true, err);
}

static int destroy(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_PLACE struct place p = place(paths, id);
	if (!file_exists(p.folder))
		return 0;
	CLEAN_FD int turn = take_turn(&p, NULL, err);
	int rc = turn < 0 ? turn : end_processes(paths, id, &p, false, err);
	rc = rc ? rc : remove_trees(&p, trees, err);
	rc = rc ? rc : remove_trees(&p, copies, err);
	return rc ? rc : dir_remove(p.folder, err);
}

/* root/ is all that there is of a disk; what it lies on never changes. */
static int copy(const struct sandbox_copy *c, struct err *err)
{
	CLEAN_PLACE struct place from = place(c->paths, c->from);
	CLEAN_PLACE struct place to = place(c->paths, c->to);
	CLEAN_FREE char *saves = xasprintf("%s/saves", to.folder), *image = note_of(from.image),
			*kind = note_of(from.kind);
	CLEAN_FREE char *source =
		c->from_save ? xasprintf("%s/saves/%s", from.folder, c->from_save) : xstrdup(from.root);
	CLEAN_FREE char *target = c->to_save ? xasprintf("%s/%s", saves, c->to_save) : xstrdup(to.root);
	if (!image || !kind || !file_exists(source))
		return err_set(err, ENOENT, "the container %lld has no disk", (long long)c->from);
	CLEAN_FD int hold = image_hold(c->paths, err);
	int rc = hold < 0 ? hold : dir_make(to.folder, 0700, err);
	rc = rc ? rc : make_dirs(&to, (const char *const[]){"work", "mnt", NULL}, err);
	rc = rc || !c->to_save ? rc : dir_make(saves, 0700, err);
	rc = rc ? rc : remove_trees(&to, (const char *const[]){"root.copy", NULL}, err);
	if (!rc && c->from != c->to) {
		rc = note(to.image, image, err);
		rc = rc ? rc : note(to.kind, kind, err);
		rc = rc ? rc : image_use(image, to.folder, err);
	}
	return rc ? rc : sandbox_copy_tree(source, target, c->cancel, err);
}

/* root/ comes there last. */
static int save(const struct paths *paths, int64_t id, const char *folder, bool *alone, struct err *err)
{
	CLEAN_PLACE struct place p = place(paths, id);
	CLEAN_FREE char *to = xasprintf("%s/root", folder), *its_image = xasprintf("%s/image", folder),
			*its_kind = xasprintf("%s/kind", folder), *image = note_of(p.image), *kind = note_of(p.kind);
	*alone = true;
	if (!file_exists(p.root))
		return file_exists(to) ? 0 : err_set(err, ENOENT, "the container %lld has no disk", (long long)id);
	CLEAN_FD int turn = take_turn(&p, NULL, err);
	if (turn < 0)
		return turn;
	if (runs(&p) || !gone(&p, GONE_MS))
		return err_set(err, EBUSY, "the container %lld runs: it has to be down to be saved", (long long)id);
	if (!image || !kind)
		return err_set(err, EIO, "%s is damaged", p.folder);
	CLEAN_FD int hold = image_hold(paths, err);
	int rc = hold < 0 ? hold : dir_make(folder, 0700, err);
	rc = rc ? rc : note(its_image, image, err);
	rc = rc ? rc : note(its_kind, kind, err);
	rc = rc ? rc : image_use(image, folder, err);
	return rc ? rc : sandbox_move(p.root, to, err);
}

static void describe(const struct paths *paths, int64_t id, enum sandbox_state s, char out[64])
{
	static const char *const words[] = {"container none", "container down", "container running",
					    "container paused"};
	snprintf(out, 64, "%s", words[s]);
}

static int ssh(const struct paths *paths, int64_t id, struct err *err)
{
	CLEAN_FREE char *socket = sandbox_socket(paths, id);
	int fd = box_request(socket, BOX_SSH "\n", HELLO_MS, NULL, err);
	return fd == -ETIMEDOUT
		       ? err_set(err, ETIMEDOUT,
				 "the container does not answer; if an older berthfs has started it, `down` in its ctl "
				 "helps")
		       : fd;
}

const struct driver driver_container = {.kind = "container",
					.possible = possible,
					.up = up,
					.state = state,
					.pause = pause_box,
					.resume = resume_box,
					.down = down,
					.destroy = destroy,
					.copy = copy,
					.describe = describe,
					.save = save,
					.ssh = ssh,
					.one_user = true};
