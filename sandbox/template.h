/* The folder of a template of kind vm; see sandbox_save(). Any thread; blocks.
 *	disk.qcow2   what the disks of sandboxes lie on; read-only, moved here as the last thing: it is whole
 *	image        the image folder that its chain began with, one line
 *	bases        folders of the templates that it lies on itself, nearest first, one a line
 *	manifest     "key = value" lines, for people */
#pragma once
#include <stdbool.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/paths.h"

#define TEMPLATE_DEPTH 3 /* templates below one another; the fourth is made to lie on the image alone */

/* For a disk on this template: *image (malloc'd), and the lines of its file `bases` (keeper.h). -ENOENT: it is gone. */
int template_bases(const char *dir, char **image, struct buf *bases, struct err *err);
/* folder: of the sandbox, which does not run. */
int template_save(const struct paths *paths, const char *folder, const char *to, bool *alone, struct err *err);
