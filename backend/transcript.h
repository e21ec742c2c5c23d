/* The transcript: immutable entries, each with its JSON line (transcript.jsonl) and its Markdown (transcript), both
 * written in the same commit. Store thread unless said otherwise. */
#pragma once
#include <cjson/cJSON.h>

#include "session.h"

enum entry_kind {
	ENTRY_USER,	   /* message, text; typed: the number, if text is the option that it picked; attached:
			      array of name, size, media, file, path, note */
	ENTRY_ASSISTANT,   /* model, text, thinking, replay, stop, calls: number of tool calls that follow */
	ENTRY_TOOL_CALL,   /* id, name, input */
	ENTRY_TOOL_RESULT, /* id, name, text, error */
	ENTRY_NOTICE,	   /* text: from the host to the reader; never sent to the model */
	ENTRY_SHIP,	   /* text: the host's request to the model in a ship */
	ENTRY_KINDS,
};
const char *entry_name(enum entry_kind kind);
enum entry_kind entry_kind_of(const char *name); /* ENTRY_KINDS if unknown */

/* option: text of the option that the message picks by its number, "" if none; the model is told it, a reader both. */
int transcript_user(struct tx *tx, struct session *s, int64_t k, const char *text, const char *option, struct err *err);
int transcript_notice(struct tx *tx, struct session *s, const char *text, struct err *err);
int transcript_ship(struct tx *tx, struct session *s, const char *text, struct err *err);
/* replay: JSON, what the model gets back of its own blocks; or NULL. final: it is the run's answer: plan, question and
 * answer are taken from it. */
int transcript_assistant(struct tx *tx, struct session *s, const char *model, const char *text, const char *thinking,
			 const char *replay, const char *stop, int calls, bool final, struct err *err);
int transcript_call(struct tx *tx, struct session *s, const char *id, const char *name, const char *args,
		    struct err *err);
int transcript_result(struct tx *tx, struct session *s, const char *id, const char *name, const char *text, bool error,
		      struct err *err);

/* A line of the session's `log` file, with its time before it. */
int log_add(struct tx *tx, struct session *s, const char *line, struct err *err);

/* The plan: of the answer that streams (request: its pinned one) if it has one so far, else of entry plan_seq. */
int plan_text(struct db *db, int64_t session, int64_t request, int64_t plan_seq, struct buf *out, struct err *err);

/* Reads [offset, offset + max) of a generated text into out. Any thread with its own connection. */
int text_read(struct db *db, int64_t session, enum text_kind kind, uint64_t offset, size_t max, struct buf *out,
	      struct err *err);
