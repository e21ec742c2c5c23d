/* What stands in each file of the tree, for the man page berthfs(5). Constant data; any thread. */
#pragma once
#include <stddef.h>

#include "tree.h"

/* Keyed by a row of the tree: its place and its name. text and the columns are plain text in which `x` is typed or
 * shown as it stands and <x> stands for something; a blank line begins a paragraph. */
struct format {
	enum place place;
	enum file_kind kind; /* that of the row */
	const char *name;    /* NULL as in the tree */
	const char *shown;   /* for rows without a name: what stands for it */
	const char *text;
	const char *const *columns; /* of a tab-separated table: "name: what it is", in order, ended by NULL; or NULL */
};

extern const struct format formats[];
extern const size_t formats_n;

/* The text of a row, or NULL. */
const struct format *format_of(const struct file *file);
