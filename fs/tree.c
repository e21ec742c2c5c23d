/* The table of every file of the mounted tree: where it is, what may be done with it, how its text is made and what
 * becomes of what is written. README in the mount is generated from the last column, so the two never disagree.
 *
 * Start here to learn the face. How a kind behaves is in handle.c, how a text is made in show.c, what a line does in
 * accept.c, when a message is complete in complete.c, the drop box in drop.c, the waits in wait.c, files/ in files.c,
 * and what editors keep beside a file in aside.c.
 *
 * Constant data; it is read by the loop thread only, and nothing here may do I/O. */
#include "tree.h"

#include <string.h>

#include "accept.h"
#include "backend/base/mem.h"
#include "keys.h"
#include "show.h"
#include "templates.h"

/* Kinds of rows. P is their place, WORDS what README says of them; NULL leaves them out there. */
/* clang-format off */
#define DIR(P, NAME, MODE, INSIDE, WORDS) \
	{.place = PLACE_##P, .name = NAME, .mode = MODE, .kind = KIND_DIR, .inside = PLACE_##INSIDE, .about = WORDS}
#define LINK(P) \
	{.place = PLACE_##P, .mode = 0777, .kind = KIND_LINK}
#define WORK(P) \
	{.place = PLACE_##P, .mode = 0444, .kind = KIND_WORK}
#define DRAFT(P) \
	{.place = PLACE_##P, .mode = 0644, .kind = KIND_DRAFT}
#define ATTACHED(P) \
	{.place = PLACE_##P, .mode = 0444, .kind = KIND_ATTACHED}
#define MADE(P, NAME, SHOW, CHANGED, WORDS) \
	{.place = PLACE_##P, .name = NAME, .mode = 0444, .kind = KIND_MADE, .show = SHOW, .changed = CHANGED, \
	 .about = WORDS}
#define VALUE(P, NAME, V, WORDS) \
	{.place = PLACE_##P, .name = NAME, .mode = 0444, .kind = KIND_MADE, .value = VALUE_##V, .show = show_value, \
	 .changed = changed_value, .about = WORDS}
#define TEXT(P, NAME, T, WORDS) \
	{.place = PLACE_##P, .name = NAME, .mode = 0444, .kind = KIND_SNAPSHOT, .text = TEXT_##T, \
	 .changed = changed_text, .about = WORDS}
#define GROWS(P, NAME, T, WORDS) \
	{.place = PLACE_##P, .name = NAME, .mode = 0444, .kind = KIND_GROWING, .text = TEXT_##T, \
	 .changed = changed_text, .about = WORDS}
#define MESSAGE(P, NAME, WORDS) \
	{.place = PLACE_##P, .name = NAME, .mode = 0644, .kind = KIND_MESSAGE, .changed = changed_birth, .about = WORDS}
#define LINE(P, NAME, WHICH, SHOW, CHANGED, ACCEPT, WORDS) \
	{.place = PLACE_##P, .name = NAME, .mode = 0644, .kind = KIND_LINE, WHICH, .show = SHOW, .changed = CHANGED, \
	 .accept = ACCEPT, .about = WORDS}
#define APPROVAL(P) \
	LINE(P, NULL, .value = 0, show_approval, changed_approval, accept_approval, NULL)
#define SETTING(P, NAME, S) \
	LINE(P, NAME, .setting = SETTING_##S, show_setting, changed_setting, accept_setting, NULL)
#define CONFIG(P, NAME, W, SHOW, CHANGED, WORDS) \
	{.place = PLACE_##P, .name = NAME, .mode = 0644, .kind = KIND_CONFIG, .whole = WHOLE_##W, .show = SHOW, \
	 .changed = CHANGED, .about = WORDS}
#define KEY(P) \
	{.place = PLACE_##P, .mode = 0600, .kind = KIND_KEY, .show = show_key, .changed = changed_key}
#define ERRORS(P, NAME, WORDS) \
	{.place = PLACE_##P, .name = NAME, .mode = 0644, .kind = KIND_ERRORS, .show = show_errors, \
	 .changed = changed_errors, .about = WORDS}
#define WAIT(P, NAME, W) \
	{.place = PLACE_##P, .name = NAME, .mode = 0444, .kind = KIND_WAIT, .wait = WAIT_##W}

const struct file tree[] = {
	[1] = DIR(NONE, NULL, 0555, ROOT, NULL),

	/* ---- the root ---- */

	MADE(ROOT,     "README",   show_readme, NULL,           NULL),
	MADE(ROOT,     "status",   show_status, changed_status, "how the daemon is, one `key value` a line"),
	CONFIG(ROOT,   "config",   CONFIG, show_config, changed_config,
			 "settings, `key = value`; write it to change them"),
	MADE(ROOT,     "index",    show_index,  changed_index,  "rows of id, name, state, project, branch and age"),
	GROWS(ROOT,    "events",   EVENTS,      "log of all sessions: seq, time, session, kind, detail"),
	ERRORS(ROOT,   "error",    "the last 8 refusals in words; `: > error` clears"),
	DIR(ROOT,      "projects", 0755, PROJECTS, "symlinks to checkouts; `ln -s ~/code/app projects/app` adds one"),
	DIR(ROOT,      "sessions", 0755, SESSIONS, "a directory a session; `rmdir` ends one, `mv` renames it"),

	DIR(ROOT,      "gateway",  0555, GATEWAY, "the process that holds keys: keys/PROVIDER, policy, ledger, head, tokens"),

	DIR(ROOT,      "templates", 0755, TEMPLATES, "saved sandboxes that sessions start from: status, log, size"),

	LINK(PROJECTS), /* projects/NAME */

	/* ---- templates ---- */

	DIR(TEMPLATES,   NULL,     0555, TEMPLATE, NULL), /* templates/PROJECT@COMMIT; rmdir drops it */
	MADE(TEMPLATE,   "status", show_template_status, changed_template, NULL),
	GROWS(TEMPLATE,  "log",    TEMPLATE_LOG, NULL), /* how it was made, and what the setup said */
	MADE(TEMPLATE,   "size",   show_template_size, changed_template, NULL), /* bytes on the disk */

	/* ---- the gateway ---- */

	DIR(GATEWAY,    "keys",   0700, KEYS, NULL),
	KEY(KEYS), /* gateway/keys/PROVIDER: write a key; reads its fingerprint; rm takes it away */
	CONFIG(GATEWAY, "policy", POLICY, show_policy, changed_policy, NULL), /* what is let through, at what price */
	GROWS(GATEWAY,  "ledger", LEDGER, NULL),                      /* each request, allowed or not: JSON lines */
	MADE(GATEWAY,   "head",   show_head, changed_head, NULL),     /* length and hash of it, signed */
	MADE(GATEWAY,   "tokens", show_tokens, changed_tokens, NULL), /* id, kind, hash, age, tokens, dollars, network */

	/* ---- the drop box ---- */

	DIR(SESSIONS,  "new",      0755, DROP, "drop box: a file written here becomes a session of its name"),
	DIR(DROP,      NULL,       0755, DROP_PROJECT, NULL), /* sessions/new/PROJECT */
	DRAFT(DROP),                                          /* sessions/new/NAME */
	DRAFT(DROP_PROJECT),                                  /* sessions/new/PROJECT/NAME */

	/* ---- a session ---- */

	DIR(SESSIONS,    NULL,               0555, SESSION, NULL), /* sessions/NAME; its number leads there too */
	MADE(SESSION,    "id",               show_id, changed_birth, "its number; sessions/NUMBER leads here too"),
	VALUE(SESSION,   "status",           STATUS,     "preparing, running, idle, asking, waiting, shipping, failed..."),
	VALUE(SESSION,   "sandbox",          SANDBOX,    "where its tools run, and the state of that"),
	VALUE(SESSION,   "project",          PROJECT,    "path of the checkout"),
	VALUE(SESSION,   "branch",           BRANCH,     "branch in the checkout that holds its work"),
	VALUE(SESSION,   "base",             BASE,       "branch and commit that the work began from"),
	MESSAGE(SESSION, "input",            "append to send a message; open to last close is one"),
	TEXT(SESSION,    "queue",            QUEUE,      "messages that wait: number, time, first line"),
	GROWS(SESSION,   "transcript",       TRANSCRIPT, "the conversation; `tail -f` follows it"),
	GROWS(SESSION,   "transcript.jsonl", JSONL,      "every entry exactly, one JSON object a line"),
	TEXT(SESSION,    "plan",             PLAN,       "the newest plan"),
	TEXT(SESSION,    "question",         QUESTION,   "the open question and its options"),
	TEXT(SESSION,    "checks",           CHECKS,     "pass, fail, error or stale, seconds, name, commit"),
	TEXT(SESSION,    "diff",             DIFF,       "its work against the base"),
	TEXT(SESSION,    "changes",          CHANGES,    "the same by file and lines"),
	TEXT(SESSION,    "commits",          COMMITS,    "the same as a log"),
	TEXT(SESSION,    "usage",            USAGE,      "requests, tokens in, out, cached, cost, model or tool, failed, aborted"),
	GROWS(SESSION,   "log",              LOG,        "what the machinery did"),
	ERRORS(SESSION,  "error",            "its last 8 refusals and failures, with what to do"),
	DIR(SESSION,     "files",            0555, FILES, "its work as of the last sync, read-only; wakes nothing"),
	DIR(SESSION,     "attach",           0755, ATTACH, "files put here go with the next message; images to the model"),
	DIR(SESSION,     "approvals",        0555, APPROVALS, "a call that waits for your word: write once, session, project, no"),
	DIR(SESSION,     "settings",         0555, SETTINGS, "values of model, agent, network, after-run, ship, approvals"),
	LINE(SESSION,    "ctl",  .value = 0,          show_verbs, changed_birth, accept_ctl,
			 "write a verb, as in `echo stop > ctl`; read it for the verbs"),
	LINE(SESSION,    "ship", .value = VALUE_SHIP, show_value, changed_value, accept_ship,
			 "write it to push the work; read it for how that went"),
	DIR(SESSION,     "wait",             0555, WAIT, "lists nothing; wait/{reply,live,idle,approval,shipped,change} block"),

	DIR(FILES,       NULL,               0555, FILES, NULL), /* what git has there: folders, */
	WORK(FILES),                                             /* files */
	LINK(FILES),                                             /* and symlinks */

	DRAFT(ATTACH),       /* attach/NAME while it is written */
	ATTACHED(ATTACH),    /* and while it waits */
	APPROVAL(APPROVALS), /* approvals/K */

	SETTING(SETTINGS, "model",     MODEL), /* effect from the next turn */
	SETTING(SETTINGS, "agent",     AGENT),
	SETTING(SETTINGS, "network",   NETWORK),
	SETTING(SETTINGS, "after-run", AFTER_RUN),
	SETTING(SETTINGS, "ship",      SHIP),
	LINE(SETTINGS, "approvals", .setting = SETTING_APPROVALS, show_approvals, changed_setting, accept_setting, NULL),

	WAIT(WAIT, "reply",   REPLY),   /* until all messages sent before are answered: the last answer */
	WAIT(WAIT, "live",    LIVE),    /* the run's text while it comes */
	WAIT(WAIT, "idle",    IDLE),    /* until nothing runs or waits: the status */
	WAIT(WAIT, "approval", APPROVAL), /* until something waits for an approval: its number */
	WAIT(WAIT, "shipped", SHIPPED), /* until the ship has ended: how */
	WAIT(WAIT, "change",  CHANGE),  /* until something has changed: the status */
};
/* clang-format on */
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
