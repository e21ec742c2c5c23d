/* Protected files inside the sandbox: judged by what was opened, not by what was asked for. Any thread. */
#pragma once
#include "backend/base/err.h"

struct protect;

/* home: where protected files that a hard link may lead to are looked for. Copied. Lives as long as its process. */
struct protect *protect_new(const char *home);
/* Is the opened file one that the list protects, under this name or another (hard link)? 0, or -EACCES in words. */
int protect_fd(struct protect *p, const char *list, int fd, struct err *err);
/* The same for a name in an opened folder, whether there is a file or not. */
int protect_name(const char *list, int dir, const char *name, struct err *err);
