/* The table of every file of the mounted tree: where it is, what may be done with it, how its text is made and what
 * becomes of what is written. README in the mount is generated from the last column, so the two never disagree.
 *
 * Start here to learn the face. How a kind behaves is in handle.c, how a text is made in show.c, what a line does in
 * accept.c, when a message is complete in complete.c, and the drop box in drop.c.
 *
 * Constant data; it is read by the loop thread only, and nothing here may do I/O. */
#include "tree.h"

#include <string.h>

#include "accept.h"
#include "backend/base/mem.h"
#include "show.h"

/* Shapes of rows. N: name, W: what the row is about in README. */
#define DIR(P, N, MODE, INSIDE, W) {.place = P, .name = N, .mode = MODE, .kind = KIND_DIR, .inside = INSIDE, .about = W}
#define MADE(P, N, SHOW, CHANGED, W) \
	{.place = P, .name = N, .mode = 0444, .kind = KIND_MADE, .show = SHOW, .changed = CHANGED, .about = W}
#define VALUE(N, V, W)                                                                                        \
	{.place = PLACE_SESSION, .name = N, .mode = 0444, .kind = KIND_MADE, .value = V, .show = show_value, \
	 .changed = changed_value, .about = W}
#define TEXT(P, N, K, T, W) {.place = P, .name = N, .mode = 0444, .kind = K, .text = T, .changed = changed_text, .about = W}
#define SETTING(N, S)                                                                                            \
	{.place = PLACE_SETTINGS, .name = N, .mode = 0644, .kind = KIND_LINE, .setting = S, .show = show_setting, \
	 .changed = changed_setting, .accept = accept_setting}
#define WAIT(N, T) {.place = PLACE_WAIT, .name = N, .mode = 0444, .kind = KIND_WAIT, .wait = T}

const struct file tree[] = {
	[1] = DIR(PLACE_NONE, NULL, 0555, PLACE_ROOT, NULL),

	MADE(PLACE_ROOT, "README", show_readme, NULL, "this text"),
	MADE(PLACE_ROOT, "status", show_status, changed_status, "how the daemon is, one `key value` a line"),
	{PLACE_ROOT, "config", 0644, KIND_CONFIG, .show = show_config, .changed = changed_config,
	 .about = "settings, `key = value`; write it to change them"},
	MADE(PLACE_ROOT, "index", show_index, changed_index, "one line a session: id, name, state, project, branch, age"),
	TEXT(PLACE_ROOT, "events", KIND_GROWING, TEXT_EVENTS, "log of all sessions: seq, time, session, kind, detail"),
	{PLACE_ROOT, "error", 0644, KIND_ERRORS, .show = show_errors, .changed = changed_errors,
	 .about = "the last 8 refusals in words; `: > error` clears"},
	DIR(PLACE_ROOT, "projects", 0755, PLACE_PROJECTS, "symlinks to checkouts; `ln -s ~/code/app projects/app` adds one"),
	DIR(PLACE_ROOT, "sessions", 0755, PLACE_SESSIONS, "one directory a session; `rmdir` ends one, `mv` renames it"),

	{PLACE_PROJECTS, NULL, 0777, KIND_LINK},

	DIR(PLACE_SESSIONS, "new", 0755, PLACE_DROP, "drop box: a file written here becomes a session of its name"),
	DIR(PLACE_DROP, NULL, 0755, PLACE_DROP_PROJECT, NULL),
	{PLACE_DROP, NULL, 0644, KIND_DRAFT},
	{PLACE_DROP_PROJECT, NULL, 0644, KIND_DRAFT},

	DIR(PLACE_SESSIONS, NULL, 0555, PLACE_SESSION, NULL),
	MADE(PLACE_SESSION, "id", show_id, changed_birth, "its number; sessions/NUMBER leads here too"),
	VALUE("status", VALUE_STATUS, "preparing, running, idle, asking, checking, shipping, down, failed"),
	VALUE("sandbox", VALUE_SANDBOX, "where its tools run, and the state of that"),
	VALUE("project", VALUE_PROJECT, "path of the checkout"),
	VALUE("branch", VALUE_BRANCH, "branch in the checkout that holds its work"),
	VALUE("base", VALUE_BASE, "branch and commit that the work began from"),
	{PLACE_SESSION, "input", 0644, KIND_MESSAGE, .changed = changed_birth,
	 .about = "append to send a message; open to last close is one"},
	TEXT(PLACE_SESSION, "queue", KIND_SNAPSHOT, TEXT_QUEUE, "messages that wait: number, time, first line"),
	TEXT(PLACE_SESSION, "transcript", KIND_GROWING, TEXT_TRANSCRIPT, "the conversation; `tail -f` follows it"),
	TEXT(PLACE_SESSION, "transcript.jsonl", KIND_GROWING, TEXT_JSONL, "every entry exactly, one JSON object a line"),
	TEXT(PLACE_SESSION, "plan", KIND_SNAPSHOT, TEXT_PLAN, "the newest plan"),
	TEXT(PLACE_SESSION, "question", KIND_SNAPSHOT, TEXT_QUESTION, "the open question and its options"),
	TEXT(PLACE_SESSION, "checks", KIND_SNAPSHOT, TEXT_CHECKS, "pass, fail, error or stale, seconds, name, commit"),
	TEXT(PLACE_SESSION, "diff", KIND_SNAPSHOT, TEXT_DIFF, "its work against the base"),
	TEXT(PLACE_SESSION, "changes", KIND_SNAPSHOT, TEXT_CHANGES, "the same by file and lines"),
	TEXT(PLACE_SESSION, "commits", KIND_SNAPSHOT, TEXT_COMMITS, "the same as a log"),
	TEXT(PLACE_SESSION, "usage", KIND_SNAPSHOT, TEXT_USAGE, "requests, tokens in, out, cached, cost, model or tool, failed, aborted"),
	TEXT(PLACE_SESSION, "log", KIND_GROWING, TEXT_LOG, "what the machinery did"),
	{PLACE_SESSION, "error", 0644, KIND_ERRORS, .show = show_errors, .changed = changed_errors,
	 .about = "its last 8 refusals and failures, with what to do"},
	DIR(PLACE_SESSION, "settings", 0555, PLACE_SETTINGS, "model, network, after-run, ship, approvals; one value a file"),
	{PLACE_SESSION, "ctl", 0644, KIND_LINE, .show = show_verbs, .changed = changed_birth, .accept = accept_ctl,
	 .about = "write a verb, as in `echo stop > ctl`; read it for the verbs"},
	{PLACE_SESSION, "ship", 0644, KIND_LINE, .value = VALUE_SHIP, .show = show_value, .changed = changed_value,
	 .accept = accept_ship, .about = "write it to push the work; read it for how that went"},
	DIR(PLACE_SESSION, "wait", 0555, PLACE_WAIT, "lists nothing; wait/{reply,live,idle,shipped,change} block"),

	SETTING("model", SETTING_MODEL),
	SETTING("network", SETTING_NETWORK),
	SETTING("after-run", SETTING_AFTER_RUN),
	SETTING("ship", SETTING_SHIP),
	SETTING("approvals", SETTING_APPROVALS),

	WAIT("reply", WAIT_REPLY),
	WAIT("live", WAIT_LIVE),
	WAIT("idle", WAIT_IDLE),
	WAIT("shipped", WAIT_SHIPPED),
	WAIT("change", WAIT_CHANGE),
};
const unsigned tree_rows = ARRAY_LEN(tree);

const struct file *tree_find(enum place place, const char *name)
{
	for (unsigned i = 1; i < tree_rows; i++)
		if (tree[i].place == place && tree[i].name && !strcmp(tree[i].name, name))
			return &tree[i];
	return NULL;
}

const struct file *tree_unnamed(enum place place, enum file_kind kind)
{
	for (unsigned i = 2; i < tree_rows; i++)
		if (tree[i].place == place && !tree[i].name && tree[i].kind == kind)
			return &tree[i];
	return NULL;
}

const struct file *tree_dir(enum place inside)
{
	for (unsigned i = 1; i < tree_rows; i++)
		if (tree[i].kind == KIND_DIR && tree[i].inside == inside)
			return &tree[i];
	return NULL;
}
