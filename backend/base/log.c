/* The daemon's own log. Any thread: each line is one write(2). */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

static atomic_int threshold = LOG_INFO;

void log_set_level(enum log_level level)
{
	atomic_store(&threshold, level);
}

void log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	if ((int)level > atomic_load(&threshold))
		return;
	char when[CLOCK_TEXT], line[1200];
	int n = snprintf(line, sizeof line, "%s %s: ", clock_rfc3339(clock_real_ms(), when), names[level]);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
	va_end(ap);
	size_t len = strlen(line);
	line[len++] = '\n';
	ssize_t r = write(2, line, len);
	(void)r;
}
