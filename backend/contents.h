/* Contents of files that were read lately, by the names of their git objects. Any thread.
 *
 * A reader asks for a file piece by piece, and git can only unpack a whole one: so it is unpacked once, small ones in
 * memory, large ones into a file without a name. */
#pragma once
#include <stdint.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "backend/base/paths.h"
#include "backend/git/repo.h"

struct contents;
struct contents *contents_new(const struct paths *paths);
void contents_free(struct contents *c);

/* Up to n bytes from offset on are appended to out; fewer at the end. path and tree: where the object is, if it has to
 * be read. -EFBIG: larger than max. -ENOSPC. */
int contents_read(struct contents *c, const char *path, struct repo_tree *tree, const char *object, uint64_t max,
		  uint64_t offset, size_t n, struct buf *out, struct err *err);
