/* The root file system of the sandboxes: installed by mmdebstrap into an archive, made an ext4 disk, and that a qcow2
 * file. Works as root and as an ordinary user; must never mount anything or leave files that the user cannot remove. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "image_job.h"
#include "image_store.h"

/* Bump when the steps change in a way that the strings below do not show. */
#define RECIPE_VERSION "1"

/* Space is used as it is needed; the size is only what a sandbox may grow to. */
#define DISK_SIZE "20G"

#define ORPHANS_MS   10000
#define WORK_OUTSIDE "/var/tmp/berthfs-image-"

#define PACKAGES                                                                                                       \
	"bash,build-essential,bzip2,ca-certificates,curl,diffutils,dropbear-bin,file,findutils,git,gzip,less,make,"    \
	"netbase,nodejs,npm,openssh-sftp-server,patch,procps,python3,python3-venv,rsync,sudo,tar,unzip,xz-utils"

/* $1 is the folder of the new system. sudo: Debian builds it to look its own host's name up, which here only costs
 * time. resolv.conf: there is no name server, and an empty file makes that an error at once. */
#define SETUP                                                                                                          \
	"set -e\n"                                                                                                     \
	"chroot \"$1\" useradd --uid 1000 --user-group --create-home --shell /bin/bash agent\n"                        \
	"printf 'agent ALL=(ALL:ALL) NOPASSWD: ALL\\nDefaults !fqdn\\n' >\"$1/etc/sudoers.d/agent\"\n"                 \
	"chmod 0440 \"$1/etc/sudoers.d/agent\"\n"                                                                      \
	"mkdir -p \"$1/var/lib/berthfs/jobs\"\n"                                                                       \
	"printf 'sandbox\\n' >\"$1/etc/hostname\"\n"                                                                   \
	"printf '127.0.0.1 localhost sandbox\\n::1 localhost\\n' >\"$1/etc/hosts\"\n"                                  \
	"rm -f \"$1/etc/resolv.conf\"\n"                                                                               \
	": >\"$1/etc/resolv.conf\"\n"                                                                                  \
	"printf '[init]\\n\\tdefaultBranch = main\\n[safe]\\n\\tdirectory = *\\n[core]\\n\\tpager = cat\\n"            \
	"[advice]\\n\\tdetachedHead = false\\n' >\"$1/etc/gitconfig\"\n"

/* $1 archive, $2 folder, $3 disk. Device nodes stay out: an ordinary user cannot make them and the guest has its own.
 * The tables are written now, so that no guest does it in the background. */
#define FORMAT                                                                                                         \
	"mkdir \"$2\" && tar -x -f \"$1\" -C \"$2\" --numeric-owner --exclude='./dev/*' && "                           \
	"mke2fs -q -t ext4 -L root -m 0 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0 -d \"$2\" "               \
	"\"$3\" " DISK_SIZE "; rc=$?; rm -rf \"$2\"; exit $rc"

static const char *const dpkg_options[] = {
	"path-exclude=/usr/share/man/*",     "path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/doc/*",     "path-include=/usr/share/doc/*/copyright",
	"path-exclude=/usr/share/locale/*",  "path-include=/usr/share/locale/locale.alias",
	"path-exclude=/usr/share/lintian/*",
};

void image_recipe(struct buf *out)
{
	buf_addf(out, "version %s\npackages %s\ndisk %s\n%s%s", RECIPE_VERSION, PACKAGES, DISK_SIZE, SETUP, FORMAT);
	for (size_t i = 0; i < ARRAY_LEN(dpkg_options); i++)
		buf_addf(out, "\n%s", dpkg_options[i]);
}

/* ---- who we can be ---- */

/* Whether /etc/subuid or /etc/subgid gives the user at least a range. */
static bool has_range(const char *file)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	CLEAN_FREE char *id = xasprintf("%u", geteuid());
	CLEAN_BUF struct buf name = BUF_INIT;
	child_run(&(struct child){.argv = (const char *const[]){"id", "-un", NULL}, .out = &name, .timeout_ms = 10000},
		  NULL);
	if (file_read(file, &b, 1 << 20, NULL))
		return false;
	CLEAN_FREE char *user = xstrndup(buf_str(&name), strcspn(buf_str(&name), "\n"));
	CLEAN_FREE char *text = buf_take(&b);
	char *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t n = strcspn(line, ":");
		if ((strlen(user) == n && !strncmp(line, user, n)) || (strlen(id) == n && !strncmp(line, id, n)))
			return true;
	}
	return false;
}

int image_mode(struct image_mode *out, struct err *err)
{
	static const char *const none[] = {NULL}, *const unshare[] = {"unshare", "--map-auto", "-r", "--", NULL},
				 *const fakeroot[] = {"fakeroot", NULL};
	bool ranges = has_range("/etc/subuid") && has_range("/etc/subgid");
	if (!geteuid())
		*out = (struct image_mode){"root", none};
	else if (child_found("newuidmap") && ranges)
		*out = (struct image_mode){"unshare", unshare};
	else if (child_found("fakeroot") && child_found("fakechroot"))
		*out = (struct image_mode){"fakechroot", fakeroot};
	else if (child_found("newuidmap"))
		return err_set(err, EPERM,
			       "an ordinary user needs a range of user ids to make a base image: as root, "
			       "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER");
	else
		return err_set(err, EPERM,
			       "an ordinary user needs the package uidmap to make a base image (or fakeroot and "
			       "fakechroot)");
	return 0;
}

/* ---- install ---- */

/* What apt and dpkg say while they work. mmdebstrap calls apt twice: essential packages, then the others. A package is
 * unpacked and later set up; each is half of the way. */
static void install_line(struct image_job *job, const char *line)
{
	int n;
	const char *words = "installing";
	if (sscanf(line, "%*d upgraded, %d newly installed", &n) == 1)
		job->count.total += n;
	if (!job->count.total)
		return;
	if (!strncmp(line, "Get:", 4)) {
		job->count.fetched++;
		words = "downloading";
	} else if (!strncmp(line, "Unpacking ", 10) || !strncmp(line, "Setting up ", 11)) {
		job->count.halves++;
	} else {
		return;
	}
	int64_t now = clock_mono_ms();
	if (now - job->count.told_ms < 1000)
		return;
	job->count.told_ms = now;
	build_tell(job, "%s packages (%d of %d)", words, words[0] == 'd' ? job->count.fetched : job->count.halves / 2,
		   job->count.total);
}

/* mmdebstrap's own folder. Under `unshare` it belongs to other user ids, which cannot reach our 0700 folders; then a
 * note in job->tmp says where it is, for image_discard() of a build that was killed. */
static int work_folder(struct image_job *job, const struct image_mode *mode, char **out, struct err *err)
{
	bool outside = !strcmp(mode->name, "unshare");
	CLEAN_FREE char *note = build_path(job, WORK_NOTE);
	*out = outside ? xstrdup(WORK_OUTSIDE "XXXXXX") : build_path(job, "work");
	if (outside ? !mkdtemp(*out) || chmod(*out, 0755) : mkdir(*out, 0755))
		return err_sys(err, errno, "cannot make the folder %s", *out);
	return outside ? file_write(note, *out, strlen(*out), 0600, err) : 0;
}

/* Files of other user ids can only be removed the way they were made. */
static void remove_as(const struct image_mode *mode, const char *dir)
{
	const char *argv[16];
	int n = 0;
	for (const char *const *w = mode->wrap; *w; w++)
		argv[n++] = *w;
	for (const char *const *w = (const char *const[]){"rm", "-rf", "--one-file-system", dir, NULL}; *w; w++)
		argv[n++] = *w;
	argv[n] = NULL;
	child_run(&(struct child){.argv = argv, .timeout_ms = 120000}, NULL);
}

/* A builder that was killed leaves its programs at work: they are told by the folder in their arguments. Their own
 * children are of other user ids and end when nobody reads what they print. */
static void end_orphans(const char *tmp)
{
	DIR *d = opendir("/proc");
	for (struct dirent *e; d && (e = readdir(d));) {
		CLEAN_BUF struct buf line = BUF_INIT;
		CLEAN_FREE char *path = xasprintf("/proc/%s/cmdline", e->d_name);
		int pid = atoi(e->d_name);
		if (pid > 1 && pid != getpid() && !file_read(path, &line, 1 << 20, NULL) &&
		    memmem(buf_str(&line), line.n, tmp, strlen(tmp)))
			kill(pid, SIGKILL);
	}
	if (d)
		closedir(d);
}

void image_discard(const char *tmp)
{
	struct image_mode mode;
	CLEAN_BUF struct buf work = BUF_INIT;
	CLEAN_FREE char *note = xasprintf("%s/" WORK_NOTE, tmp);
	bool outside = !file_read(note, &work, 4096, NULL) && !strstr(buf_str(&work), "..") &&
		       !strncmp(buf_str(&work), WORK_OUTSIDE, strlen(WORK_OUTSIDE));
	bool can = !image_mode(&mode, NULL);
	end_orphans(tmp);
	for (int64_t end = clock_mono_ms() + ORPHANS_MS;; clock_sleep_ms(100)) {
		if (can && outside)
			remove_as(&mode, buf_str(&work));
		bool gone = !(can && outside) || !file_exists(buf_str(&work));
		/* the note goes last: while it is there, the next build tries again */
		if (gone && dir_remove(tmp, NULL) && can)
			remove_as(&mode, tmp);
		if ((gone && !file_exists(tmp)) || clock_mono_ms() > end)
			return;
	}
}

int image_install(struct image_job *job, struct err *err)
{
	struct image_mode mode;
	CLEAN_FREE char *work = NULL;
	CLEAN_FREE char *root = build_path(job, "root.tar");
	build_step(job, 3, "installing packages");
	int rc = image_mode(&mode, err);
	if (!rc)
		rc = work_folder(job, &mode, &work, err);
	if (rc)
		return rc;
	CLEAN_FREE char *tmpdir = xasprintf("TMPDIR=%s", work);
	CLEAN_FREE char *mode_option = xasprintf("--mode=%s", mode.name);
	const char *argv[64] = {"mmdebstrap",
				"--verbose",
				"--variant=minbase",
				"--format=tar",
				mode_option,
				"--include=" PACKAGES,
				"--aptopt=APT::Install-Recommends \"false\"",
				"--aptopt=Acquire::Languages \"none\"",
				"--customize-hook=" SETUP};
	size_t n = 9;
	CLEAN_BUF struct buf options = BUF_INIT;
	for (size_t i = 0; i < ARRAY_LEN(dpkg_options); i++) {
		buf_addf(&options, "--dpkgopt=%s", dpkg_options[i]);
		buf_addc(&options, 0);
	}
	for (size_t at = 0; at < options.n; at += strlen(options.p + at) + 1)
		argv[n++] = options.p + at;
	argv[n++] = job->suite;
	argv[n++] = root;
	for (size_t i = 0; job->sources[i] && n < ARRAY_LEN(argv) - 1; i++)
		argv[n++] = job->sources[i];
	rc = build_run(job, argv, (const char *const[]){tmpdir, "LC_ALL=C.UTF-8", NULL}, install_line, err);
	remove_as(&mode, work);
	return rc;
}

/* ---- disk ---- */

int image_format(struct image_job *job, struct err *err)
{
	struct image_mode mode;
	CLEAN_FREE char *tar = build_path(job, "root.tar");
	CLEAN_FREE char *tree = build_path(job, "tree");
	CLEAN_FREE char *raw = build_path(job, "disk.raw");
	CLEAN_FREE char *disk = build_path(job, "disk.qcow2");
	const char *argv[16];
	size_t n = 0;
	build_step(job, 4, "making the file system");
	int rc = image_mode(&mode, err);
	if (rc)
		return rc;
	for (const char *const *w = mode.wrap; *w; w++)
		argv[n++] = *w;
	for (const char *const *w = (const char *const[]){"sh", "-c", FORMAT, "sh", tar, tree, raw, NULL}; *w; w++)
		argv[n++] = *w;
	argv[n] = NULL;
	rc = build_run(job, argv, NULL, NULL, err);
	if (rc) {
		remove_as(&mode, tree); /* when it was killed it could not do so itself */
		return rc;
	}
	unlink(tar);
	build_step(job, 5, "making the disk image");
	rc = build_run(job, (const char *const[]){"qemu-img", "convert", "-O", "qcow2", raw, disk, NULL}, NULL, NULL,
		       err);
	unlink(raw);
	return rc;
}
