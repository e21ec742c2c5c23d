/* Builds the immutable pictures that faces read. Store thread. */
#pragma once
#include "session.h"

struct view *view_make(const struct session *s);
struct live *live_make(int64_t run, bool running, const struct buf *text);
