/* The unlisted files of wait/. Loop thread only. */
#pragma once
#include <stdbool.h>

struct handle;
struct spot;

/* Would a read of this open wait file answer without waiting? */
bool wait_ready(struct handle *h, const struct spot *at);
