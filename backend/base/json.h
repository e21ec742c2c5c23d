/* JSON: cJSON behind a strict pass. cJSON takes the first of duplicate keys, accepts NUL and bad UTF-8;
 * the strict pass refuses those, depth over 64, lone surrogates and trailing bytes. Any thread. */
#pragma once
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define JSON_DEPTH 64

int json_check(const char *p, size_t n, struct err *err); /* strict pass alone: 0 or -EINVAL with byte offset */
cJSON *json_parse(const char *p, size_t n,
		  struct err *err); /* strict, then parsed; freed by cJSON_Delete; NULL = refused */
/* The same for who looks at structure, numbers and short words alone: a value's string of more than cut characters ends
 * after so many in the result, which saves most of the time that a long text takes. Keys stay whole; all is checked. It
 * is for texts of strangers: more than 250,000 values are refused, for millions of small ones would take a gigabyte. */
cJSON *json_parse_cut(const char *p, size_t n, size_t cut, struct err *err);
/* One member of a stranger's object, parsed, its strings cut after 64 characters; NULL in *out if there is none, or no
 * object. All is checked, but for other keys that stand twice. -EINVAL: refused. */
int json_member(const char *p, size_t n, const char *key, cJSON **out);
/* The same, and json_size() tells how many bytes the text of a string had, escapes as they were written; of one that
 * was not cut, those that it has now. */
cJSON *json_parse_sized(const char *p, size_t n, size_t cut, struct err *err);
size_t json_size(const cJSON *item, size_t cut);
const char *json_str(const cJSON *o, const char *key);	      /* exact-case key; NULL if absent or no string */
bool json_int(const cJSON *o, const char *key, int64_t *out); /* false if absent or no whole number within 2^53 */
bool json_bool(const cJSON *o, const char *key, bool fallback);
const cJSON *json_get(const cJSON *o, const char *key);
void json_print(struct buf *out, const cJSON *o); /* compact, one line */
/* Adds s as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
void json_quote(struct buf *out, const char *s, size_t n);
/* Bytes from p on, of n, that are within a string for sure: neither quote nor backslash nor control character. In
 * steps, so the next byte may be such a one as well. */
size_t json_plain(const char *p, size_t n);
void json_free(cJSON **o);
#define CLEAN_JSON __attribute__((cleanup(json_free)))
