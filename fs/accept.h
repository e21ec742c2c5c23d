/* Files that take commands, and `config`. The accept column of the tree. Loop thread only. */
#pragma once
#include <stddef.h>

struct request;
struct spot;

/* Each makes the request that hands one line (no newline) to the backend. */
struct request *accept_ctl(const struct spot *at, const char *line, size_t n);
struct request *accept_ship(const struct spot *at, const char *line, size_t n);
struct request *accept_approval(const struct spot *at, const char *line, size_t n);
struct request *accept_setting(const struct spot *at, const char *line, size_t n);
