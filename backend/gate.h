/* What the tools must not show or touch: protected paths and secrets. Any thread, no I/O. */
#pragma once
#include <stddef.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"

/* Default of the key `protected`; see backend/base/guard.h for the patterns. */
extern const char gate_protected[];

/* -EACCES in words if the path, as the model wrote it, is protected. Where it leads is judged inside the sandbox. */
int gate_path(const char *list, const char *path, struct err *err);
/* What the system prompt says about both. */
void gate_prompt(const char *list, struct buf *out);
