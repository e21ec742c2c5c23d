/* Transcript → what the model is shown. Worker threads. */
#include "context.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/hash.h"
#include "backend/base/json.h"
#include "backend/base/map.h"
#include "backend/base/mem.h"
#include "backend/base/utf8.h"
#include "gate.h"
#include "transcript.h"

static void image_release(struct item_image *i)
{
	free(i->name);
	free(i->media);
	free(i->file);
	buf_release(&i->data);
}

static void item_release(struct item *i)
{
	free(i->text);
	free(i->thinking);
	free(i->model);
	free(i->replay);
	free(i->id);
	free(i->name);
	free(i->input);
	for (size_t k = 0; k < i->n_images; k++)
		image_release(&i->images[k]);
	free(i->images);
}

void context_release(struct context *c)
{
	for (size_t i = 0; i < c->n; i++)
		item_release(&c->items[i]);
	free(c->items);
	*c = (struct context){0};
}

static struct item *insert(struct context *c, size_t at, enum item_kind kind)
{
	c->items = xrealloc(c->items, (c->n + 1) * sizeof *c->items);
	memmove(c->items + at + 1, c->items + at, (c->n - at) * sizeof *c->items);
	c->n++;
	c->items[at] = (struct item){.kind = kind};
	return &c->items[at];
}

static char *copy(const cJSON *o, const char *key)
{
	const char *s = json_str(o, key);
	return xstrdup(s ? s : "");
}

/* The end of the calls that follow the assistant item at `at`, with their results. */
static size_t group_end(const struct context *c, size_t at)
{
	size_t i = at + 1;
	while (i < c->n && (c->items[i].kind == ITEM_CALL || c->items[i].kind == ITEM_RESULT))
		i++;
	return i;
}

static void add_result(struct context *c, const cJSON *o)
{
	const char *id = json_str(o, "id");
	bool called = false, done = false;
	for (size_t i = c->n; i-- > 0 && id && !called && !done;) { /* from the end: its call is near */
		bool same = c->items[i].id && !strcmp(c->items[i].id, id);
		called = same && c->items[i].kind == ITEM_CALL;
		done = same && c->items[i].kind == ITEM_RESULT;
	}
	if (!called)
		return; /* an orphan or a second one would make every later request invalid */
	struct item *r = insert(c, c->n, ITEM_RESULT);
	r->id = copy(o, "id");
	r->name = copy(o, "name");
	r->text = copy(o, "text");
	r->error = json_bool(o, "error", false);
}

/* Does a call stand behind the turn that made it, with an id that no other call of that turn has? */
static bool call_fits(const struct context *c, const char *id)
{
	size_t i = c->n;
	if (!id || !*id)
		return false;
	for (; i > 0 && c->items[i - 1].kind == ITEM_CALL; i--)
		if (!strcmp(c->items[i - 1].id, id))
			return false;
	return i > 0 && c->items[i - 1].kind == ITEM_ASSISTANT;
}

/* JSON that every reader takes: in most formats it stands in the request as it is. */
static char *arguments(const cJSON *input)
{
	char *text = cJSON_IsObject(input) ? cJSON_PrintUnformatted(input) : xstrdup("{}");
	if (!json_check(text, strlen(text), NULL))
		return text;
	CLEAN_BUF struct buf clean = BUF_INIT;
	utf8_clean(&clean, text, strlen(text));
	free(text);
	return json_check(buf_str(&clean), clean.n, NULL) ? xstrdup("{}") : buf_take(&clean);
}

static void add_call(struct context *c, const cJSON *o)
{
	if (!call_fits(c, json_str(o, "id")))
		return;
	struct item *i = insert(c, c->n, ITEM_CALL);
	i->id = copy(o, "id");
	i->name = copy(o, "name");
	i->input = arguments(json_get(o, "input"));
}

static void append_text(struct item *i, const char *more)
{
	char *old = i->text;
	i->text = xasprintf("%s%s", old ? old : "", more);
	free(old);
}

void context_image_lost(struct item *i, size_t image, const char *why)
{
	CLEAN_FREE char *words = xasprintf("\n[the image %s is left out: %s]", i->images[image].name, why);
	append_text(i, words);
	image_release(&i->images[image]);
	memmove(i->images + image, i->images + image + 1, (i->n_images - image - 1) * sizeof *i->images);
	i->n_images--;
}

/* Images are shown, files are named. */
static void add_attached(struct item *i, const cJSON *o)
{
	const cJSON *a;
	cJSON_ArrayForEach(a, json_get(o, "attached"))
	{
		const char *media = json_str(a, "media"), *path = json_str(a, "path"), *note = json_str(a, "note");
		int64_t size = 0;
		json_int(a, "size", &size);
		if (media && *media) {
			i->images = xrealloc(i->images, (i->n_images + 1) * sizeof *i->images);
			i->images[i->n_images++] = (struct item_image){copy(a, "name"), copy(a, "media"),
								       copy(a, "file"), (uint64_t)size, BUF_INIT};
		} else if (path) {
			CLEAN_FREE char *words = xasprintf("\n[the user attached the file %s, %lld bytes%s%s]", path,
							   (long long)size, note ? "; " : "", note ? note : "");
			append_text(i, words);
		}
	}
}

static void add_entry(struct context *c, enum entry_kind kind, const cJSON *o)
{
	const char *text = json_str(o, "text");
	struct item *i;
	switch (kind) {
	case ENTRY_USER:
	case ENTRY_SHIP:
		if (!text || utf8_blank(text, strlen(text)))
			return;
		i = insert(c, c->n, ITEM_USER);
		i->text = xstrdup(text);
		add_attached(i, o);
		return;
	case ENTRY_ASSISTANT:
		if (json_str(o, "stop") && !strcmp(json_str(o, "stop"), "aborted"))
			return;
		i = insert(c, c->n, ITEM_ASSISTANT);
		i->text = copy(o, "text");
		i->model = copy(o, "model");
		i->thinking = json_str(o, "thinking") ? copy(o, "thinking") : NULL;
		i->replay = json_get(o, "replay") ? cJSON_PrintUnformatted(json_get(o, "replay")) : NULL;
		i->more = json_str(o, "stop") && !strcmp(json_str(o, "stop"), "pause_turn");
		return;
	case ENTRY_TOOL_CALL: add_call(c, o); return;
	case ENTRY_TOOL_RESULT: add_result(c, o); return;
	case ENTRY_NOTICE:
	case ENTRY_KINDS: return;
	}
}

static bool is_of(const struct item *i, const struct item *call)
{
	return (i->kind == ITEM_RESULT || i->kind == ITEM_CALL) && !strcmp(i->id, call->id);
}

/* Moves each result behind the calls of its own turn and makes the missing ones. */
static void repair(struct context *c)
{
	for (size_t at = 0; at < c->n; at++) {
		if (c->items[at].kind != ITEM_ASSISTANT)
			continue;
		size_t end = group_end(c, at), calls = at + 1;
		for (size_t i = at + 1; i < end; i++) { /* calls first, order kept */
			if (c->items[i].kind != ITEM_CALL)
				continue;
			struct item call = c->items[i];
			memmove(c->items + calls + 1, c->items + calls, (i - calls) * sizeof call);
			c->items[calls++] = call;
		}
		for (size_t k = at + 1; k < calls; k++) {
			size_t place = calls + (k - at - 1), from = calls;
			while (from < c->n && !is_of(&c->items[from], &c->items[k]))
				from++;
			if (from < c->n && c->items[from].kind == ITEM_CALL)
				from = c->n; /* another call of that id: what follows is its own */
			if (from < c->n) {
				struct item r = c->items[from];
				memmove(c->items + place + 1, c->items + place, (from - place) * sizeof r);
				c->items[place] = r;
			} else {
				struct item *r = insert(c, place, ITEM_RESULT);
				r->id = xstrdup(c->items[k].id);
				r->name = xstrdup(c->items[k].name);
				r->text = xstrdup("interrupted: this call has no result");
				r->error = true;
			}
		}
	}
}

/* Ids are the providers' own: one counts in each answer anew, another one refuses two calls of one id in the whole
 * conversation, as it refuses the same thoughts twice. */
static void tell_apart(struct context *c)
{
	struct map seen = {0};
	for (size_t i = 0; i < c->n; i++) {
		struct item *it = &c->items[i];
		if (it->kind == ITEM_CALL && map_put(&seen, it->id, it)) {
			size_t result = i;
			while (c->items[result].kind != ITEM_RESULT || strcmp(c->items[result].id, it->id))
				result++;			   /* repair() has put one behind it */
			char *id = xasprintf("%s %zu", it->id, i); /* no id of a provider has a blank */
			free(it->id);
			free(c->items[result].id);
			it->id = id;
			c->items[result].id = xstrdup(id);
		}
		if (it->kind == ITEM_ASSISTANT && it->replay) {
			char key[24];
			snprintf(key, sizeof key, " %016" PRIx64, hash_add(HASH_BEGIN, it->replay, strlen(it->replay)));
			if (map_put(&seen, key, it)) {
				free(it->replay);
				it->replay = NULL;
			}
		}
	}
	map_release(&seen);
}

/* An assistant turn with neither text nor calls is refused by providers. */
static void drop_empty(struct context *c)
{
	size_t to = 0;
	for (size_t i = 0; i < c->n; i++) {
		bool empty = c->items[i].kind == ITEM_ASSISTANT &&
			     utf8_blank(c->items[i].text, strlen(c->items[i].text)) &&
			     !(i + 1 < c->n && c->items[i + 1].kind == ITEM_CALL);
		if (empty)
			item_release(&c->items[i]);
		else
			c->items[to++] = c->items[i];
	}
	c->n = to;
}

void context_user(struct context *c, const char *text)
{
	insert(c, c->n, ITEM_USER)->text = xstrdup(text);
}

void context_ask(struct context *c)
{
	const struct item *last = c->n ? &c->items[c->n - 1] : NULL;
	if (!last || (last->kind == ITEM_ASSISTANT && !last->more))
		context_user(c, "Go on.");
}

void context_words(struct context *c, const char *kind, const char *body)
{
	CLEAN_JSON cJSON *o = cJSON_Parse(body);
	if (o)
		add_entry(c, entry_kind_of(kind), o);
}

/* *from: the entries behind it follow the summary. */
static int begin(struct db *db, int64_t session, int64_t cutoff, struct context *out, int64_t *from, struct err *err)
{
	struct rows r;
	*from = 0;
	int rc = db_query(db, &r, err,
			  "SELECT cut, text FROM told_summaries WHERE session=? AND made<=? ORDER BY made DESC LIMIT 1",
			  "ii", session, cutoff);
	if (!rc && rows_next(&r)) {
		*from = row_int(&r, 0);
		CLEAN_FREE char *text = xasprintf("The conversation had grown too long. What came before is summed up "
						  "here; go on from it.\n\n%s",
						  row_text(&r, 1));
		context_user(out, text);
	}
	int end = rows_end(&r);
	return rc ? rc : end;
}

int context_build(struct db *db, int64_t session, int64_t cutoff, struct context *out, struct err *err)
{
	struct rows r;
	int64_t from;
	*out = (struct context){0};
	int rc = begin(db, session, cutoff, out, &from, err);
	if (rc) {
		context_release(out);
		return rc;
	}
	rc = db_query(db, &r, err,
		      "SELECT kind, body FROM told_entries WHERE session=? AND seq>? AND seq<=? ORDER BY seq", "iii",
		      session, from, cutoff);
	while (!rc && rows_next(&r))
		context_words(out, row_text(&r, 0), row_text(&r, 1));
	int end = rows_end(&r);
	if (rc || end) {
		context_release(out);
		return rc ? rc : end;
	}
	repair(out);
	drop_empty(out);
	tell_apart(out);
	return 0;
}

/* Where the tools run, and what becomes of the work. */
static void where(struct buf *p, const char *clone, bool host)
{
	if (host)
		buf_addf(
			p,
			"You are a coding agent. Your tools run on the user's own machine, as the user and without a "
			"sandbox, in the project's own checkout (%s), where relative paths and bash start. Leave alone "
			"what does not belong to the project, and other people's uncommitted work in it. Do not "
			"push.\n\n"
			"Commit your work on the checked-out branch, in small commits with messages that say why.\n\n",
			clone);
	else
		buf_addf(p,
			 "You are a coding agent. Your tools run in a sandbox of your own; the project is a git clone "
			 "in "
			 "%s, where relative paths and bash start.\n\n"
			 "The clone has no remote, and the sandbox holds no credentials: do not push or pull. What you "
			 "commit on the checked-out branch is brought to the user when you have answered; what you do "
			 "not "
			 "commit stays here. So commit your work, in small commits with messages that say why.\n\n",
			 clone);
}

char *context_prompt(const char *clone, bool host, const char *protected, const char *agents)
{
	CLEAN_BUF struct buf p = BUF_INIT;
	where(&p, clone, host);
	buf_adds(&p,
		 "Run the tests before you say that something works, and say so when you did not.\n\n"
		 "End every reply with your plan in a fenced block with the info word plan, one step a line: `- [x]` "
		 "done, "
		 "`- [>]` in work, `- [ ]` to do:\n\n"
		 "```plan\n- [x] find the cause\n- [>] fix it\n- [ ] add a test\n```\n\n"
		 "If you need an answer from the user, add a fenced block with the info word result after it: a line "
		 "`question: ...`, then an option a line, `- option: what it means`:\n\n"
		 "```result\nquestion: Which database shall it be?\n- sqlite: nothing to install\n- postgres: many "
		 "writers\n```\n\n"
		 "Ask only when you cannot go on sensibly without the answer.\n");
	gate_prompt(protected, &p);
	if (agents && *agents)
		buf_addf(&p, "\nThe project's own instructions for agents say:\n\n%s\n", agents);
	return buf_take(&p);
}
