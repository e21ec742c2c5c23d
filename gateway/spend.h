/* The tables of what was used, which the meter reads when it starts. A change of counters is text in the row of its
 * record; the changes of thousands of records are summed up before the tables are written (struct ledger_tables). */
#pragma once
#include <sqlite3.h>
#include <stdbool.h>

#include "backend/base/buf.h"
#include "meter.h"

extern const char spend_schema[];
void spend_text(const struct meter_change *c, struct buf *out); /* nothing is changed: no text */

struct spend { /* of who writes the ledger; starts zeroed */
	struct spend_row *rows;
	uint64_t *hashes;
	size_t n, cap;
};
int spend_gather(struct spend *s, const char *text, size_t n); /* -EBADMSG: it is no change */
bool spend_full(const struct spend *s);
int spend_write(sqlite3 *db, const struct spend *s, struct err *err); /* within a transaction */
void spend_forget(struct spend *s);				      /* it is committed */
void spend_release(struct spend *s);
