/* Ship: the session's work goes to the project's remote, as a chain of durable steps. */
#pragma once
#include "session.h"

/* A line was written to `ship`. Store thread. */
int ship_start(struct tx *tx, struct session *s, const char *line, struct err *err);
