/* When a sandbox that nobody needs is paused, goes to disk, or is stopped. Pure: times come in, an act comes out. Any
 * thread. All times are CLOCK_REALTIME in ms, since they outlive the daemon. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "sandbox/sandbox.h"

enum {
	IDLE_SAMPLE_MS = 60000, /* how often a sandbox that runs is asked, where it is not paused before */
	IDLE_FRESH_MS = 10000,	/* how old an answer may be that something is done upon */
	IDLE_CPU = 5,		/* percent of one processor: over it a sandbox works */
};

/* What the sandbox and the gateway said when they were asked last. A question that went wrong was answered BUSY. */
enum idle_answer {
	IDLE_UNASKED,
	IDLE_QUIET,
	IDLE_BUSY,
};

struct idle_look {
	int64_t now_ms;
	enum sandbox_state sandbox;
	bool can_pause, can_hibernate;		 /* its kind */
	int64_t pause_ms, hibernate_ms, down_ms; /* the settings; 0 or less: never */
	int64_t quiet_ms;			 /* the session has asked nothing of it since */
	int64_t busy_ms;			 /* when an answer was last BUSY, or an act was refused; 0: never */
	int64_t worked_ms; /* when it last used more than IDLE_CPU, 0: never. Pausing does not mind */
	int64_t asked_ms;  /* when it was last asked, 0: never */
	enum idle_answer answer;
};

enum idle_act {
	IDLE_NOTHING,
	IDLE_ASK,
	IDLE_PAUSE,
	IDLE_HIBERNATE,
	IDLE_DOWN,
	IDLE_RESET, /* its times lie ahead, since the clock was set back: they begin anew */
};

/* The session is at rest: its state is idle or failed, and neither a message nor an approval waits. An act other than
 * IDLE_ASK is only given upon an answer QUIET: for a sandbox that runs a fresh one, else the last one before. */
enum idle_act idle_decide(const struct idle_look *k);

/* Whether a processor time of cpu_ms, which was before_ms since_ms ago, is work. Negative ones are not known: no. */
bool idle_works(int64_t before_ms, int64_t cpu_ms, int64_t since_ms);
