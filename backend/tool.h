/* The tools that a model may call, and their limits. Worker threads; a tool's effect happens in the sandbox. */
#pragma once
#include <cjson/cJSON.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "backend/base/buf.h"
#include "backend/base/err.h"
#include "sandbox/sandbox.h"

#define TOOL_LINES 2000	      /* of a result; the rest is named, not shown */
#define TOOL_BYTES (50 << 10) /* of a result */

struct tool_run {
	struct env *env;
	const char *clone; /* root of the clone in the sandbox */
	const char *job;   /* job id, the same for the same call after a restart */
	const cJSON *args;
	bool again;	       /* the call may have run before: its intent was committed by an earlier process */
	const char *protected; /* patterns of protected paths; env refuses them as well, by what is opened */
	const char *note;      /* what `note` said when the intent was committed, "" at first */
	int limit_ms;	       /* longest time for a command, 0: none */
	const atomic_bool *cancel;
};

struct tool_result {
	struct buf text; /* what the model is told, valid UTF-8 */
	bool error;
	bool full; /* the sandbox's disk is full: the user is to hear of it, too */
	bool keep; /* its output stays in the sandbox then: the result names the file */
	bool job;  /* a job in the sandbox is to be acknowledged once the result is committed */
};

struct tool {
	const char *name;
	const char *about;  /* for the model */
	const char *schema; /* JSON schema of its arguments */
	/* Before the intent is committed: what is needed to tell after a restart whether the call took effect. May be
	 * NULL. */
	int (*intend)(const struct tool_run *t, struct buf *note, struct err *err);
	/* 0 with a result (errors of the tool are results); -ENOTCONN: the sandbox is gone; -ECANCELED. */
	int (*run)(const struct tool_run *t, struct tool_result *out, struct err *err);
};

const struct tool *tool_find(const char *name);
extern const struct tool tools[];
extern const size_t tools_n;
/* Puts words for the model into out as an error; 0. */
int tool_fail(struct tool_result *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* True for errors that mean the sandbox and not the call: -ENOTCONN, -ETIMEDOUT, -ECANCELED... */
bool tool_env_lost(int rc);
/* path as the sandbox needs it: absolute, from the clone's root. malloc'd. */
char *tool_path(const struct tool_run *t, const char *path);

int tool_read(const struct tool_run *t, struct tool_result *out, struct err *err);
int tool_write(const struct tool_run *t, struct tool_result *out, struct err *err);
int tool_edit(const struct tool_run *t, struct tool_result *out, struct err *err);
int tool_edit_intend(const struct tool_run *t, struct buf *note, struct err *err);
int tool_bash(const struct tool_run *t, struct tool_result *out, struct err *err);
