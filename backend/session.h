/* A session's record, and what may happen to it: the state table. Belongs to the store thread; workers get copies of
 * what they need inside a transaction. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "store.h"

enum state {
	STATE_PREPARING, /* its sandbox is being made; messages are held */
	STATE_IDLE,
	STATE_RUNNING, /* a run: turns and tool calls */
	STATE_SYNCING, /* the run has ended, its commits come back */
	STATE_CHECKING,
	STATE_SHIPPING,	  /* ship.c: fetch, ask, verify, push */
	STATE_COMPACTING, /* `compact` while nothing runs */
	STATE_LOWERING,	  /* down, pause, hibernate, resume (detail says which): then it is idle again */
	STATE_SAVING,	  /* `snapshot` */
	STATE_RESTORING,  /* `restore K` */
	STATE_FAILED,	  /* detail says why; `retry` or a message goes on */
	STATE_DESTROYING,
	STATES,
};

enum event {
	EVENT_MESSAGE,	/* one was accepted */
	EVENT_PREPARED, /* the sandbox is ready and the clone is there */
	EVENT_ANSWERED, /* the run ended with an answer */
	EVENT_STOP,	/* ctl stop: what is going on shall end */
	EVENT_STOPPED,	/* it has ended */
	EVENT_SYNCED,
	EVENT_CHECKED,
	EVENT_SHIP,    /* a ship was asked for */
	EVENT_SHIPPED, /* it ended, one way or another */
	EVENT_RETRY,   /* ctl retry */
	EVENT_SYNC,    /* ctl sync */
	EVENT_CHECK,   /* ctl check */
	EVENT_MERGE,   /* ctl merge */
	EVENT_COMPACT, /* ctl compact */
	EVENT_COMPACTED,
	EVENT_DOWN,	/* ctl down, pause, hibernate, resume */
	EVENT_LOWERED,	/* it has been done */
	EVENT_SNAPSHOT, /* ctl snapshot */
	EVENT_RESTORE,	/* ctl restore K */
	EVENT_SAVED,	/* either has ended */
	EVENT_FAILED,	/* words are in detail */
	EVENT_DESTROY,
	EVENTS,
};

/* What a session owes once its run has ended: the `after` column. */
enum { AFTER_SYNC = 1, AFTER_CHECKS = 2, AFTER_MERGE = 4, AFTER_SHIP = 8 };

/* Why a compaction is due: the `compact` column. */
enum { COMPACT_NONE, COMPACT_ASKED, COMPACT_OVERFLOW };

struct session {
	int64_t id;
	char *name, *project;
	int64_t created_ms, changed_ms, destroyed_ms;
	enum state state;
	char *detail;
	int after;
	char *base_branch, *base_commit, *start_commit, *head;
	char *sandbox, *sandbox_state, *size, *clone;
	char *setting[SETTING_KINDS];
	int64_t settings_ms;
	int64_t accepted, run, request, attempt, retry_ms, retry_since_ms, stopping, unsynced, check_round, ship,
		ships_done;
	int64_t entries, md_size, json_size, transcript_ms, log_size, log_ms;
	int64_t plan_seq, plan_size, answer_seq, answer_size, question_size;
	int64_t output_bytes, usage_size, usage_ms;
	int64_t compact, compact_tries, compact_row, compact_turns, overflowed, context_tokens, context_off;
	int64_t attached;	      /* number of the newest file that was attached */
	int64_t cloned_from;	      /* session that it began as a clone of, 0 = none */
	int64_t snapshots, restoring; /* snapshot.h: number of the newest one, and of the one to go back to, 0 = none */
	int64_t approval, asked;      /* number of the approval that waits, 0 = none, and of the newest */
	/* not stored: derived from other rows, kept up to date by message.c, checks, ship.c, loaded with the session */
	int64_t unanswered, waiting; /* lowest open message, number of waiting ones */
	struct text_info queue, checks, diff, changes, commits;
	struct attach_info *attach; /* those that wait */
	size_t n_attach;
	char *approval_text, *grants; /* approve.c; NULL: nothing waits, nothing is granted */
	int64_t approval_ms;
	char *ship_text;   /* the `ship` file */
	char *uncommitted; /* what the last sync found uncommitted in the sandbox, in words; "": nothing */
	int64_t ship_ms;
	int64_t plan_ms; /* when the plan changed while an answer streamed */
	struct live *live;
	uint64_t version;
	bool shipping;
};

struct session *session_new(void);
void session_free(struct session *s);
int session_load(struct db *db, int64_t id, struct session **out, struct err *err); /* *out NULL if there is none */
int session_insert(struct tx *tx, struct session *s, struct err *err);
int session_save(struct tx *tx, struct session *s, struct err *err);

/* Looks the event up in the state table and acts. -EBUSY or -EINVAL in words when it makes no sense in this state. */
int session_event(struct tx *tx, struct session *s, enum event ev, const char *words, struct err *err);
/* Sets the words beside the state (step of a preparation, reason of a failure...) and marks the change. */
void session_detail(struct tx *tx, struct session *s, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The line of the `status` file. tool: name of the running tool or NULL. malloc'd. */
char *session_status(const struct session *s);
bool session_idle(const struct session *s);
bool session_waits(const struct session *s);	/* for a person's word, and has no work until it comes */
bool session_has_work(const struct session *s); /* its state calls for a step */
const char *state_name(enum state state);

/* Replaces a malloc'd string of a record. */
void session_set(char **field, const char *value);
