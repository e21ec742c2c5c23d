/* The policy of idle sandboxes. Pure. */
#include "idle.h"

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static bool due(const struct idle_look *k, int64_t since, int64_t limit)
{
	return limit > 0 && k->now_ms - since >= limit;
}

/* The deepest rest that its time has come for. */
static enum idle_act wanted(const struct idle_look *k)
{
	int64_t still = later(k->quiet_ms, k->busy_ms), asleep = later(still, k->worked_ms);
	bool up = k->sandbox == SANDBOX_RUNNING || k->sandbox == SANDBOX_PAUSED;
	if (due(k, asleep, k->down_ms) && (up || k->sandbox == SANDBOX_HIBERNATED))
		return IDLE_DOWN;
	if (due(k, asleep, k->hibernate_ms) && k->can_hibernate && up)
		return IDLE_HIBERNATE;
	if (due(k, still, k->pause_ms) && k->can_pause && k->sandbox == SANDBOX_RUNNING)
		return IDLE_PAUSE;
	return IDLE_NOTHING;
}

/* How often to ask so that a window is looked at all along; 0: there is none. */
static int64_t sample_ms(const struct idle_look *k)
{
	int64_t ms = 0, windows[] = {k->can_hibernate ? k->hibernate_ms : 0, k->down_ms};
	for (int i = 0; i < 2; i++)
		if (windows[i] > 0 && (!ms || windows[i] < ms))
			ms = windows[i];
	return ms / 4 > IDLE_SAMPLE_MS || !ms ? (ms ? IDLE_SAMPLE_MS : 0) : later(ms / 4, 1);
}

enum idle_act idle_decide(const struct idle_look *k)
{
	if (later(later(k->quiet_ms, k->busy_ms), later(k->worked_ms, k->asked_ms)) > k->now_ms)
		return IDLE_RESET;
	enum idle_act act = wanted(k);
	if (k->sandbox != SANDBOX_RUNNING)
		return k->answer == IDLE_QUIET ? act : IDLE_NOTHING;
	int64_t ms = sample_ms(k), begin = later(k->quiet_ms, k->asked_ms);
	if (act == IDLE_NOTHING)
		return ms && k->now_ms - begin >= ms ? IDLE_ASK : IDLE_NOTHING;
	bool fresh = k->answer == IDLE_QUIET && k->asked_ms >= k->quiet_ms && k->now_ms - k->asked_ms <= IDLE_FRESH_MS;
	return fresh ? act : IDLE_ASK;
}

bool idle_works(int64_t before_ms, int64_t cpu_ms, int64_t since_ms)
{
	return before_ms >= 0 && cpu_ms >= 0 && since_ms > 0 && (cpu_ms - before_ms) * 100 > since_ms * IDLE_CPU;
}
