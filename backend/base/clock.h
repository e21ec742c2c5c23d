/* Time. Any thread. */
#pragma once
#include <stdint.h>

#define CLOCK_TEXT 32 /* bytes for clock_rfc3339() */

int64_t clock_mono_ms(void); /* CLOCK_MONOTONIC, milliseconds */
int64_t clock_mono_us(void);
int64_t clock_real_ms(void); /* since 1970, UTC */
/* "2026-11-29T19:02:10Z" in out (CLOCK_TEXT bytes); returns out. */
char *clock_rfc3339(int64_t real_ms, char *out);
/* A coarse age such as 5m, 3h, 12d (minutes at least), for tables. */
char *clock_age(int64_t ms, char *out);
/* Sleeps, restarted after signals. Only for retry back-off on a worker thread. */
void clock_sleep_ms(int64_t ms);
