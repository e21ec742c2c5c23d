/* Blocks in a model's answer: the fenced `plan` and `result` blocks, and the last line of an answer to a ship.
 * Nothing is stored for them; they are parsed when they are read. Any thread, no I/O. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "backend/base/buf.h"

/* The text inside the last ```plan block of an answer, as the file `plan` shows it: whole lines ending in LF, without
 * the fence's indentation. False, and out is untouched, if there is none (then an older answer's plan still holds). */
bool blocks_plan(const char *text, size_t n, struct buf *out);
/* The text inside the last ```result block, as the file `question` shows it: its options by number, `1. ...`. False if
 * there is none or it asks nothing (no `question:` line); the session's question is then empty. */
bool blocks_question(const char *text, size_t n, struct buf *out);

/* The text of an option of that question, by its number from 1. False if there is none. */
bool blocks_option(const char *text, size_t n, int number, struct buf *out);

enum ship_verdict {
	SHIP_VERDICT_NONE, /* the answer does not end with either line */
	SHIP_VERDICT_READY,
	SHIP_VERDICT_BLOCKED,
};
/* Reads the last non-empty line: SHIP-READY, or SHIP-BLOCKED: why (why goes to out, one line; may be NULL).
 * Markdown emphasis and backticks around it do not count, nor does a fence that closes behind it. */
enum ship_verdict ship_verdict(const char *text, size_t n, struct buf *why);
