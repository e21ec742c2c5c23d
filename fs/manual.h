/* The man page berthfs(5). Any thread. */
#pragma once
#include "backend/base/buf.h"

/* Fills in a template (contrib/man/berthfs.5.in): a line `@TREE@` becomes every file of the tree with its format,
 * `@VERBS@` the verbs of ctl, `@CONFIG@` the keys of config; `@VERSION@` anywhere becomes the version. Other lines
 * stay. */
void manual_make(const char *template, struct buf *out);
