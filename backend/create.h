/* Makes sessions. */
#pragma once
#include "core.h"
#include "session.h"

struct new_session {
	char *name, *project, *sandbox, *size, *message;
	char *setting[SETTING_KINDS];
	char *branch, *commit; /* of the checkout's HEAD; branch "HEAD" when detached */
	int64_t from;	       /* session that it begins as a clone of, 0 = none */
	int64_t id;	       /* candidate: its branch does not exist in the checkout */
	struct backend *b;
	struct request *request;
};

struct new_session *new_session_new(void);
void new_session_free(struct new_session *n);
int create_look(struct new_session *n, struct err *err);
/* Finds the id and commits session and first message; takes n and answers r. Pool threads. */
void create_commit(struct backend *b, struct new_session *n, struct request *r);
