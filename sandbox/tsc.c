/* Measures the time stamp counter against CLOCK_MONOTONIC_RAW, the clock that NTP does not bend. Holds no state. */
#include "tsc.h"

#include <stdint.h>
#include <time.h>

#include "backend/base/clock.h"

#define ROUNDS	 3 /* the median of these counts: a preempted round is an outlier */
#define ROUND_MS 20
#define TRIES	 16 /* readings of both clocks of which the closest pair is taken */

#ifdef __x86_64__
#include <x86intrin.h>

struct reading {
	uint64_t tsc;
	int64_t ns;
};

static struct reading read_both(void)
{
	struct reading best = {0};
	uint64_t least = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		struct timespec t;
		uint64_t before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC_RAW, &t);
		uint64_t after = __rdtsc();
		if (after - before < least) {
			least = after - before;
			best = (struct reading){before + least / 2, t.tv_sec * 1000000000LL + t.tv_nsec};
		}
	}
	return best;
}

long tsc_khz(void)
{
	long khz[ROUNDS];
	for (int i = 0; i < ROUNDS; i++) {
		struct reading a = read_both();
		clock_sleep_ms(ROUND_MS);
		struct reading b = read_both();
		long k = (long)((double)(b.tsc - a.tsc) * 1e6 / (double)(b.ns - a.ns) + 0.5);
		int at = i;
		for (; at > 0 && khz[at - 1] > k; at--)
			khz[at] = khz[at - 1];
		khz[at] = k;
	}
	return khz[ROUNDS / 2];
}
#else
long tsc_khz(void)
{
	return 0;
}
#endif
