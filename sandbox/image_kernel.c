/* The kernel of the sandboxes: fetched as a package by an apt with lists of its own (the machine's may be old, and the
 * package they name gone), unpacked, and made ready to boot: ELF kernel and a ramdisk with the few modules a microvm
 * needs. Nothing is installed on the machine. */
#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "bzimage.h"
#include "cpio.h"
#include "image_job.h"

#define KERNEL_FILE_MAX (256u << 20)
#define MODULE_MAX	(16u << 20)

/* In the order in which they have to be loaded: virtio_ring before all that need it. No network modules, since there
 * is no network card. */
static const char *const modules[] = {"virtio_ring",	"virtio",     "virtio_mmio",	"virtio_blk",
				      "virtio_console", "virtio_rng", "virtio_balloon", NULL};

static const struct {
	const char *suffix;
	const char *unpacker[4];
} module_kinds[] = {
	{".ko", {NULL}},
	{".ko.xz", {"xz", "-dc", NULL}},
	{".ko.zst", {"zstd", "-dcq", NULL}},
	{".ko.gz", {"gzip", "-dc", NULL}},
};

/* apt with the chosen sources and state of its own in tmp/apt. As root it would download as another user, who cannot
 * reach our folder. */
static int apt(struct image_job *job, const char *program, const char *const *words, struct buf *out, struct err *err)
{
	CLEAN_FREE char *state = xasprintf("Dir::State=%s/apt/state", job->tmp);
	CLEAN_FREE char *cache = xasprintf("Dir::Cache=%s/apt/cache", job->tmp);
	CLEAN_FREE char *parts = xasprintf("Dir::Etc::sourceparts=%s/apt/sources", job->tmp);
	const char *argv[24] = {program, "-q",
				"-o",	 state,
				"-o",	 cache,
				"-o",	 parts,
				"-o",	 "Dir::Etc::sourcelist=/dev/null",
				"-o",	 "APT::Sandbox::User=",
				"-o",	 "Acquire::Languages=none"};
	for (int n = 14; *words; words++)
		argv[n++] = *words;
	if (!out)
		return build_run(job, argv, (const char *const[]){"LC_ALL=C.UTF-8", NULL}, NULL, err);
	int rc = child_run(&(struct child){.argv = argv,
					   .env = (const char *const[]){"LC_ALL=C.UTF-8", NULL},
					   .cwd = job->tmp,
					   .out = out,
					   .timeout_ms = 600000,
					   .cancel = job->cancel},
			   err);
	return rc > 0 ? err_set(err, EIO, "%s failed", program) : rc;
}

static int copy_sources(struct image_job *job, struct err *err)
{
	static const char *const folders[] = {"apt/sources", "apt/state/lists/partial", "apt/cache/archives/partial"};
	int rc = 0;
	for (size_t i = 0; !rc && i < ARRAY_LEN(folders); i++) {
		CLEAN_FREE char *dir = build_path(job, folders[i]);
		rc = dir_make(dir, 0755, err);
	}
	for (size_t i = 0; !rc && job->sources[i]; i++) {
		CLEAN_BUF struct buf b = BUF_INIT;
		const char *slash = strrchr(job->sources[i], '/');
		CLEAN_FREE char *to = xasprintf("%s/apt/sources/%s", job->tmp, slash + 1);
		rc = file_read(job->sources[i], &b, 1 << 20, err);
		if (!rc)
			rc = file_write(to, b.p, b.n, 0644, err);
	}
	return rc;
}

/* The meta package depends on the newest concrete one. */
static int resolve(struct image_job *job, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	int rc = apt(job, "apt-cache", (const char *const[]){"depends", IMAGE_KERNEL, NULL}, &out, err);
	const char *at = rc ? NULL : strstr(buf_str(&out), "Depends: linux-image-");
	if (!at)
		return err_set(err, ENOENT,
			       "the package " IMAGE_KERNEL
			       " is not in this machine's apt sources: base images need Debian");
	at += strlen("Depends: ");
	job->kernel = xstrndup(at, strcspn(at, " \n"));
	return 0;
}

int image_fetch_kernel(struct image_job *job, struct err *err)
{
	build_step(job, 1, "downloading the kernel");
	int rc = copy_sources(job, err);
	if (!rc)
		rc = apt(job, "apt-get", (const char *const[]){"update", NULL}, NULL, err);
	if (!rc)
		rc = resolve(job, err);
	if (!rc) {
		build_tell(job, "downloading %s", job->kernel);
		rc = apt(job, "apt-get", (const char *const[]){"download", job->kernel, NULL}, NULL, err);
	}
	return rc;
}

/* The first file in dir whose name starts and ends so; malloc'd path, or NULL. */
static char *find_in(const char *dir, const char *start, const char *end)
{
	DIR *d = opendir(dir);
	char *found = NULL;
	for (struct dirent *e; d && !found && (e = readdir(d));) {
		size_t n = strlen(e->d_name);
		if (n >= strlen(start) + strlen(end) && !strncmp(e->d_name, start, strlen(start)) &&
		    !strcmp(e->d_name + n - strlen(end), end))
			found = xasprintf("%s/%s", dir, e->d_name);
	}
	if (d)
		closedir(d);
	return found;
}

/* Whether name is module + suffix; file names write virtio_rng as virtio-rng. */
static bool is_module(const char *name, const char *module, const char *suffix)
{
	for (; *module; module++, name++)
		if (*name != *module && !(*name == '-' && *module == '_'))
			return false;
	return !strcmp(name, suffix);
}

/* Finds a file by is_module() anywhere below root; malloc'd path, or NULL. */
static char *find_below(const char *root, const char *module, const char *suffix)
{
	char *const roots[] = {(char *)(uintptr_t)root, NULL};
	FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
	char *found = NULL;
	for (FTSENT *e; fts && !found && (e = fts_read(fts));)
		if (is_module(e->fts_name, module, suffix))
			found = xstrdup(e->fts_path);
	if (fts)
		fts_close(fts);
	return found;
}

static char *find_module(const char *root, const char *module, size_t *kind)
{
	char *path = NULL;
	for (*kind = 0; *kind < ARRAY_LEN(module_kinds); ++*kind)
		if ((path = find_below(root, module, module_kinds[*kind].suffix)))
			break;
	return path;
}

/* Whether the kernel has the module inside: listed in modules.builtin as kernel/drivers/.../virtio.ko. */
static bool is_builtin(const char *root, const char *module)
{
	CLEAN_BUF struct buf list = BUF_INIT;
	CLEAN_FREE char *path = find_below(root, "modules", ".builtin");
	if (!path || file_read(path, &list, 1 << 20, NULL))
		return false;
	CLEAN_FREE char *text = buf_take(&list);
	char *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *slash = strrchr(line, '/');
		if (slash && is_module(slash + 1, module, ".ko"))
			return true;
	}
	return false;
}

static int read_module(const char *path, size_t kind, struct buf *out, struct err *err)
{
	const char *const *unpacker = module_kinds[kind].unpacker;
	CLEAN_BUF struct buf packed = BUF_INIT;
	int rc = file_read(path, unpacker[0] ? &packed : out, MODULE_MAX, err);
	if (rc || !unpacker[0])
		return rc;
	rc = child_run(&(struct child){.argv = unpacker,
				       .in = packed.p,
				       .in_n = packed.n,
				       .out = out,
				       .max = MODULE_MAX,
				       .timeout_ms = 60000},
		       err);
	return rc > 0 ? err_set(err, EINVAL, "%s cannot unpack %s", unpacker[0], path) : rc;
}

static int pack_modules(struct image_job *job, const char *root, struct err *err)
{
	CLEAN_BUF struct buf archive = BUF_INIT;
	CLEAN_BUF struct buf names = BUF_INIT;
	cpio_dir(&archive, "modules", 0755);
	for (size_t i = 0; modules[i]; i++) {
		size_t kind = 0;
		CLEAN_BUF struct buf module = BUF_INIT;
		CLEAN_FREE char *path = find_module(root, modules[i], &kind);
		CLEAN_FREE char *name = xasprintf("modules/%s.ko", modules[i]);
		if (!path && is_builtin(root, modules[i]))
			continue;
		if (!path)
			return err_set(err, ENOENT, "the package %s has no module %s", job->kernel, modules[i]);
		int rc = read_module(path, kind, &module, err);
		if (rc)
			return rc;
		cpio_file(&archive, name, 0644, module.p, module.n);
		buf_addf(&names, "%s.ko\n", modules[i]);
	}
	cpio_file(&archive, "modules/list", 0644, names.p, names.n);
	cpio_end(&archive);
	CLEAN_FREE char *to = build_path(job, "modules.cpio");
	return file_write(to, archive.p, archive.n, 0644, err);
}

int image_unpack_kernel(struct image_job *job, struct err *err)
{
	build_step(job, 2, "unpacking the kernel");
	CLEAN_FREE char *tree = build_path(job, "kernel");
	CLEAN_FREE char *boot = build_path(job, "kernel/boot");
	CLEAN_FREE char *to = build_path(job, "vmlinux");
	CLEAN_FREE char *deb = find_in(job->tmp, "linux-image-", ".deb");
	CLEAN_BUF struct buf packed = BUF_INIT;
	CLEAN_BUF struct buf kernel = BUF_INIT;
	if (!deb)
		return err_set(err, ENOENT, "apt did not download the package %s", job->kernel);
	int rc = build_run(job, (const char *const[]){"dpkg-deb", "-x", deb, tree, NULL}, NULL, NULL, err);
	CLEAN_FREE char *image = rc ? NULL : find_in(boot, "vmlinuz-", "");
	if (!rc && !image)
		rc = err_set(err, ENOENT, "the package %s has no kernel in it", job->kernel);
	if (!rc)
		rc = file_read(image, &packed, KERNEL_FILE_MAX, err);
	if (!rc)
		rc = bzimage_extract(packed.p, packed.n, &kernel, err);
	if (!rc)
		rc = file_write(to, kernel.p, kernel.n, 0644, err);
	if (!rc)
		rc = pack_modules(job, tree, err);
	unlink(deb);
	return rc ? rc : dir_remove(tree, err);
}
