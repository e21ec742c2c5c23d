/* Time. Any thread. */
#include "clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int64_t clock_mono_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_mono_ms(void)
{
	return clock_mono_us() / 1000;
}

int64_t clock_real_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

char *clock_rfc3339(int64_t real_ms, char *out)
{
	time_t s = real_ms / 1000;
	struct tm tm;
	if (!gmtime_r(&s, &tm) || !strftime(out, CLOCK_TEXT, "%Y-%m-%dT%H:%M:%SZ", &tm))
		strcpy(out, "1970-01-01T00:00:00Z");
	return out;
}

char *clock_age(int64_t ms, char *out)
{
	int64_t min = ms < 0 ? 0 : ms / 60000;
	if (min < 120)
		snprintf(out, CLOCK_TEXT, "%" PRId64 "m", min);
	else if (min < 48 * 60)
		snprintf(out, CLOCK_TEXT, "%" PRId64 "h", min / 60);
	else
		snprintf(out, CLOCK_TEXT, "%" PRId64 "d", min / (24 * 60));
	return out;
}

void clock_sleep_ms(int64_t ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}
