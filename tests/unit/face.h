/* A face without a mount, for tests of the engine: it starts a real backend on a project of its own (git_fixture.h),
 * takes its notes, and asks by requests. The tool daemon of kind dir is the test program itself. */
#pragma once
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>

#include "backend/backend.h"
#include "backend/base/clock.h"
#include "check.h"
#include "gateway/gateway.h"
#include "git_fixture.h"
#include "sandbox/sandbox.h"

#ifndef FACE_SESSIONS
#define FACE_SESSIONS 64
#endif
#define FACE_WAIT_MS 200000 /* on a machine that does much else */

static struct {
	struct paths paths;
	struct queue notes;
	struct backend *b;
	struct view *view[FACE_SESSIONS];
	struct root_view *root;
	struct err last_error; /* newest NOTE_ERROR */
	bool gateway;	       /* with one: the test program itself is it, too */
} face;

static inline void face_take(struct note *n)
{
	if (n->kind == NOTE_VIEW && n->view->id < FACE_SESSIONS) {
		view_put(face.view[n->view->id]);
		face.view[n->view->id] = n->view;
		n->view = NULL;
	} else if (n->kind == NOTE_ROOT) {
		root_view_put(face.root);
		face.root = n->root;
		n->root = NULL;
	} else if (n->kind == NOTE_ERROR) {
		face.last_error = n->err;
	} else if (n->kind == NOTE_DONE) {
		n->request->done(n->request);
	}
	note_free(n);
}

static inline void face_drain(int ms)
{
	struct pollfd p = {.fd = queue_fd(&face.notes), .events = POLLIN};
	poll(&p, 1, ms);
	for (struct queue_node *q; (q = queue_pop(&face.notes));)
		face_take(queue_entry(q, struct note, node));
}

static inline void face_done(struct request *r)
{
	*(bool *)r->arg = true;
}

/* Submits and waits for the answer; the caller frees r. */
static inline int face_ask(struct request *r)
{
	bool done = false;
	r->done = face_done;
	r->arg = &done;
	backend_submit(face.b, r);
	while (!done)
		face_drain(100);
	return r->rc;
}

static inline int face_start(void)
{
	struct err err = ERR_INIT;
	char exe[4096];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	if (!face.paths.state) {
		face.paths = (struct paths){.state = at("state"),
					    .cache = at("cache"),
					    .runtime = at("run"),
					    .config = at("config"),
					    .self = xstrndup(exe, (size_t)n)};
		dir_make(face.paths.state, 0700, NULL);
		dir_make(face.paths.runtime, 0700, NULL);
		const char *text = "sandbox = dir\nsandbox.allow-dir = yes\n";
		file_write(face.paths.config, text, strlen(text), 0600, NULL);
	}
	queue_init(&face.notes);
	struct backend_options opt = {
		.paths = &face.paths, .notes = &face.notes, .mount = "/nonexistent/berth", .gateway = face.gateway};
	int rc = backend_start(&opt, &face.b, &err);
	if (rc)
		printf("# backend_start: %s\n", err.text);
	return rc;
}

static inline void face_stop(void)
{
	backend_stop(face.b);
	face.b = NULL;
	face_drain(0);
	queue_release(&face.notes);
	for (int i = 0; i < FACE_SESSIONS; i++) {
		view_put(face.view[i]);
		face.view[i] = NULL;
	}
	root_view_put(face.root);
	face.root = NULL;
}

static inline struct request *face_request(enum request_kind kind, int64_t session, const char *text)
{
	struct request *r = request_new(kind, NULL, NULL);
	r->session = session;
	buf_adds(&r->text, text);
	return r;
}

/* A request that is expected to give rc; prints the words if it does not. */
static inline int face_do(enum request_kind kind, int64_t session, const char *text)
{
	struct request *r = face_request(kind, session, text);
	int rc = face_ask(r);
	if (rc)
		face.last_error = r->err;
	request_free(r);
	return rc;
}

/* Makes a session; 0 and words in face.last_error if it is refused. */
static inline int64_t face_create(const char *name, const char *text)
{
	struct request *r = face_request(REQ_CREATE, 0, text);
	r->name = xstrdup(name);
	r->cwd = at("project");
	int rc = face_ask(r);
	int64_t id = rc ? 0 : r->session;
	if (rc)
		face.last_error = r->err;
	request_free(r);
	return id;
}

/* A text as a face would show it; valid until 16 calls later. */
static inline const char *face_text(int64_t session, enum text_kind kind)
{
	static struct buf outs[16];
	static int turn;
	struct buf *out = &outs[turn++ % 16];
	struct request *r = request_new(REQ_READ, NULL, NULL);
	r->session = session;
	r->text_kind = kind;
	r->size = 64 << 20;
	face_ask(r);
	buf_reset(out);
	buf_add(out, r->out.p, r->out.n);
	request_free(r);
	return buf_str(out);
}

static inline const char *face_value(int64_t session, enum value_kind kind)
{
	return face.view[session] ? face.view[session]->value[kind] : "";
}

/* Waits until the status begins with a word; false (and what it was) after FACE_WAIT_MS. */
static inline bool face_wait(int64_t session, const char *status)
{
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end;) {
		const char *now = face_value(session, VALUE_STATUS);
		if (!strncmp(now, status, strlen(status)))
			return true;
		face_drain(100);
	}
	printf("# session %" PRId64 " is \"%s\", not \"%s\"\n# log:\n%s\n", session, face_value(session, VALUE_STATUS),
	       status, face_text(session, TEXT_LOG));
	return false;
}

static inline bool face_wait_idle(int64_t session)
{
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end;) {
		if (face.view[session] && (face.view[session]->idle || face.view[session]->failed))
			return face.view[session]->idle;
		face_drain(100);
	}
	printf("# session %" PRId64 " is \"%s\"\n%s\n", session, face_value(session, VALUE_STATUS),
	       face_text(session, TEXT_LOG));
	return false;
}

/* Ends all sessions and their sandboxes, then the backend. */
static inline void face_end(void)
{
	for (int i = 1; i < FACE_SESSIONS; i++)
		if (face.view[i] && !face.view[i]->destroyed)
			face_do(REQ_CTL, i, "destroy force");
	face_stop();
	for (int i = 1; i < FACE_SESSIONS; i++)
		sandbox_destroy(&face.paths, "dir", i, NULL);
}

/* A project with one commit and a bare remote `origin` whose default branch is main. */
static inline void face_project(void)
{
	sh("git init -q -b main project && cd project && echo hello > a.txt && git add . && git commit -qm first");
	sh("git init -q --bare -b main remote.git && cd project && git remote add origin ../remote.git && git push -q "
	   "-u origin main");
}

static inline char *face_script(const char *name, const char *lines)
{
	char *path = at(name);
	file_write(path, lines, strlen(lines), 0600, NULL);
	return path;
}

/* A session that a script answers: the lines of script, the first message. */
static inline int64_t face_session(const char *name, const char *script, const char *message)
{
	CLEAN_FREE char *file = xasprintf("%s.script", name);
	CLEAN_FREE char *path = face_script(file, script);
	CLEAN_FREE char *text = xasprintf("---\nmodel: script:%s\n---\n%s\n", path, message);
	int64_t id = face_create(name, text);
	if (!id)
		printf("# refused: %s\n", face.last_error.text);
	CHECK(id > 0);
	return id;
}

/* Replaces the config. */
static inline void face_config(const char *lines)
{
	CLEAN_FREE char *text = xasprintf("sandbox = dir\nsandbox.allow-dir = yes\n%s", lines);
	CHECK_INT(face_do(REQ_CONFIG, 0, text), 0);
}

/* A script line of one bash call; the command needs its quotes escaped for JSON. */
#define BASH(command) "{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"" command "\"}}]}\n"
#define SAY(text)     "{\"text\":\"" text "\"}\n"
#define SHOW	      "{\"show\":true}\n" /* answers with what the model is sent */

/* How often needle is in hay. */
static inline int face_count(const char *hay, const char *needle)
{
	int n = 0;
	for (const char *p = hay; (p = strstr(p, needle)); p += strlen(needle))
		n++;
	return n;
}

/* Sends a message, waits until all is done, and gives the answer. */
static inline const char *face_say(int64_t id, const char *text)
{
	CHECK_INT(face_do(REQ_MESSAGE, id, text), 0);
	CHECK(face_wait_idle(id));
	return face_text(id, TEXT_ANSWER);
}

/* prepare (may be NULL): after the project is there, before the backend starts; an answer other than 0 skips all. */
static inline int face_main(int argc, char **argv, int (*prepare)(void))
{
	int bad = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && !strcmp(argv[1], "gateway"))
		return gateway_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "tool-daemon"))
		return sandbox_tools_main(argc - 1, argv + 1);
	signal(SIGPIPE, SIG_IGN);
	fixture_begin();
	face_project();
	if (prepare && prepare())
		return 0;
	if (face_start())
		return 1;
	for (struct check_test *t = check_tests; t; t = t->next) {
		if (argc > 1 && strcmp(argv[1], t->name))
			continue;
		check_failed = 0;
		t->run();
		printf("%s %s\n", check_failed ? "not ok" : "ok", t->name);
		fflush(stdout);
		bad |= check_failed;
	}
	face_end();
	return bad;
}

#define FACE_MAIN()                                                                                                    \
	int main(int argc, char **argv)                                                                                \
	{                                                                                                              \
		return face_main(argc, argv, NULL);                                                                    \
	}
