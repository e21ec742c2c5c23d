/* A record that is being put together, member by member. Any thread; a record belongs to one at a time. */
#include <stdlib.h>
#include <string.h>

#include "backend/base/mem.h"
#include "ledger.h"

struct ledger_record *ledger_record_new(const char *kind)
{
	struct ledger_record *r = xcalloc(1, sizeof *r);
	buf_reserve(&r->fields, 480);
	buf_adds(&r->fields, "\"kind\":\"");
	buf_adds(&r->fields, kind);
	buf_addc(&r->fields, '"');
	return r;
}

void ledger_record_free(struct ledger_record *rec)
{
	if (rec) {
		buf_release(&rec->fields);
		buf_release(&rec->aside);
	}
	free(rec);
}

/* ASCII only, so that no two programs read a line differently. */
static void quote(struct buf *out, const char *s)
{
	size_t n = strnlen(s, 200);
	buf_addc(out, '"');
	for (size_t i = 0; i < n;) {
		size_t from = i;
		while (i < n && (unsigned char)s[i] >= 0x20 && (unsigned char)s[i] < 0x7f && s[i] != '"' &&
		       s[i] != '\\')
			i++;
		buf_add(out, s + from, i - from);
		if (i == n)
			break;
		if (s[i] == '"' || s[i] == '\\')
			buf_addf(out, "\\%c", s[i]);
		else
			buf_addf(out, "\\u%04x", (unsigned char)s[i]);
		i++;
	}
	buf_addc(out, '"');
}

static void add_key(struct ledger_record *rec, const char *key)
{
	buf_adds(&rec->fields, ",\"");
	buf_adds(&rec->fields, key);
	buf_adds(&rec->fields, "\":");
}

void ledger_text(struct ledger_record *rec, const char *key, const char *text)
{
	add_key(rec, key);
	quote(&rec->fields, text ? text : "");
}

void ledger_int(struct ledger_record *rec, const char *key, int64_t n)
{
	add_key(rec, key);
	buf_addi(&rec->fields, n);
}
