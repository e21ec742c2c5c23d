/* files/ of a session: folders, files and links of its work as of the last sync. Loop thread only.
 *
 * An inode is a path together with the object that is there: what a sync changes gets a new inode, as if git had
 * checked it out, and whoever has the old one open reads on in the old file. That is why the kernel may keep the
 * contents. Folders are paths alone: `cd files/src` stays where it is over a sync. */
#pragma once
#include <fuse_lowlevel.h>
#include <sys/types.h>

#include "backend/backend.h"

struct face;
struct node;
struct spot;

struct work {
	char *path; /* below files/ */
	struct work_file file;
};
void work_free(struct work *w);

/* S_IFDIR, S_IFLNK or S_IFREG; a submodule is an empty folder. */
mode_t work_type(const struct work_file *file);
/* Which row of the tree it is. */
const struct file *work_row(const struct work *w);
/* The path of a spot in files/, of a name in it (NULL: of itself); malloc'd. "" is the top. */
char *work_path(const struct spot *at, const char *name);

/* All of them park the request and answer it later. */
void files_lookup(const struct spot *dir, fuse_req_t req, const char *name);
void files_readlink(const struct spot *at, fuse_req_t req);
void files_opendir(const struct spot *dir, fuse_req_t req, struct fuse_file_info *fi);

/* A listing, as it was at opendir: fi->fh. */
struct files_listing;
void files_readdir(struct files_listing *l, fuse_req_t req, size_t size, off_t off, bool plus);
void files_closedir(struct files_listing *l); /* NULL is fine */
void files_release(struct face *f);	      /* those that the kernel has not closed: it was a lazy unmount */
