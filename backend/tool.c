/* The table of tools. Worker threads. */
#include "tool.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "backend/base/mem.h"

const struct tool tools[] = {
	{"read", "Read a text file: up to 2000 lines or 50 KiB from line `offset` (from 1).",
	 "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"offset\":{\"type\":\"integer\"},"
	 "\"limit\":{\"type\":\"integer\"}},\"required\":[\"path\"]}",
	 NULL, tool_read},
	{"write", "Write a whole file; folders on the way are made.",
	 "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"content\":{\"type\":\"string\"}},"
	 "\"required\":[\"path\",\"content\"]}",
	 NULL, tool_write},
	{"edit",
	 "Replace parts of a file. Each oldText must stand exactly once in the file as it is now; edits must not "
	 "overlap.",
	 "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"edits\":{\"type\":\"array\",\"items\":{"
	 "\"type\":\"object\",\"properties\":{\"oldText\":{\"type\":\"string\"},\"newText\":{\"type\":\"string\"}},"
	 "\"required\":[\"oldText\",\"newText\"]}}},\"required\":[\"path\",\"edits\"]}",
	 tool_edit_intend, tool_edit},
	{"bash",
	 "Run a command with bash in the clone's root. The last 2000 lines or 50 KiB of its output are shown, all of "
	 "it "
	 "is kept in a file that is named then. timeout is in seconds.",
	 "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\"},\"timeout\":{\"type\":\"number\"}},"
	 "\"required\":[\"command\"]}",
	 NULL, tool_bash},
};
const size_t tools_n = ARRAY_LEN(tools);

const struct tool *tool_find(const char *name)
{
	for (size_t i = 0; i < tools_n; i++)
		if (!strcmp(tools[i].name, name))
			return &tools[i];
	return NULL;
}

int tool_fail(struct tool_result *out, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	buf_addv(&out->text, fmt, ap);
	va_end(ap);
	out->error = true;
	return 0;
}

bool tool_env_lost(int rc)
{
	return rc == -ENOTCONN || rc == -ETIMEDOUT || rc == -ECANCELED || rc == -EPROTO;
}

char *tool_path(const struct tool_run *t, const char *path)
{
	return *path == '/' ? xstrdup(path) : xasprintf("%s/%s", t->clone, path);
}
