/* One POST to the gateway whose answer is a stream of events, or whole. Worker threads; blocks. */
#pragma once
#include <curl/curl.h>

#include "backend/parse/sse.h"
#include "model.h"

struct model_http {
	const char *socket, *path; /* the gateway's socket; path of the route */
	const struct curl_slist *headers;
	const struct buf *body;
	const atomic_bool *cancel; /* looked at ten times a second */
	int64_t begin_ms, idle_ms; /* how long it may take to begin, and be silent */
	bool (*done)(void *arg);   /* true: all that counts has come */
	sse_fn *event;
	void *arg;
	struct buf *whole; /* instead of done and event: an answer that is no stream is put here */
};

/* 0: the answer was 200 and has ended; *clean: as it should, and not by a broken connection. -ECANCELED, what event
 * returned, or an error with words and fault: no connection, another status, time over. */
int model_http(const struct model_http *h, bool *clean, struct model_fault *fault, struct err *err);
