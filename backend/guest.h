/* Agents that run in a session's sandbox in place of the engine's own turns: `agent: opencode`, `claude`, `codex`, `pi`
 * or a command. Messages become their prompts, their output the transcript; models they reach through the gateway with
 * the sandbox's token. (What a project tells agents, AGENTS.md, is agents.h.) */
#pragma once
#include <stdbool.h>

#include "turn.h"

#define GUEST_NONE "none" /* value of `agent`: the engine's own turns */

bool guest_is(const char *agent); /* is it another one than the engine's own? */
/* Can it run so? Judged when a session is made and when a setting is changed. Any thread. */
int guest_check(const struct config *c, const char *agent, const char *model, const char *sandbox,
		const char *approvals, struct err *err);
/* In place of a turn: the prompt that is due, from its pinned record to the committed answer. As turn_run(). Worker. */
int guest_run(struct worker *w, session_fn *final, enum turn_end *end, struct err *err);
/* Ends the one that runs, if any, for a `stop`. Worker. */
int guest_kill(struct worker *w, struct err *err);
/* The sandbox is a new one: what agents remembered is gone. Worker. */
int guest_forget(struct worker *w, struct err *err);
