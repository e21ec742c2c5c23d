/* Transcript → context → request: whatever stands in the transcript, what a model is shown is well-formed, and no
 * provider refuses the request for it (request_rules.h). Histories are made at random and then damaged at random:
 * entries lost, doubled, moved, ids mixed up, texts emptied, bodies broken, single bytes changed. */
#include <stdlib.h>

#include "backend/base/fd.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/context.h"
#include "backend/db.h"
#include "check.h"
#include "request_rules.h"

static char root[] = "/tmp/berthfs-context-XXXXXX";
static struct db *db;
static unsigned seed;

static unsigned chance(unsigned n)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 8) % n;
}

/* ---- histories ---- */

struct entry {
	const char *kind;
	char *body;
};
static struct entry entries[400];
static int n_entries;

static void add(const char *kind, char *body)
{
	if (n_entries < 300)
		entries[n_entries++] = (struct entry){kind, body};
	else
		free(body);
}

/* As providers make them: their own, the same ones in each turn, with letters that others refuse, too long for others.
 */
static char *call_id(int group, int i)
{
	switch (chance(6)) {
	case 0: return xasprintf("call_%d", i);
	case 1: return xasprintf("functions.bash:%d", group * 4 + i);
	case 2: return xasprintf("call_%048d", group * 4 + i);
	default: return xasprintf("c%d-%d", group, i);
	}
}

/* Blocks that only the model itself understands: before the text, behind the calls, or alone. */
static char *replay(int group, int text, int calls)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	bool anthropic = chance(2), last = !chance(4);
	CLEAN_FREE char *raw =
		anthropic
			? xasprintf("{\"raw\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"s%d\"}}", group)
			: xasprintf("{\"raw\":{\"type\":\"reasoning\",\"id\":\"rs_%d\",\"summary\":[]}}", group);
	buf_addf(&b, ",\"replay\":{\"api\":\"%s\",\"from\":\"m\",\"blocks\":[", anthropic ? "anthropic" : "responses");
	if (!last)
		buf_addf(&b, "%s,", raw);
	buf_addf(&b, "{\"skip\":0,\"text\":%d}", text);
	for (int i = 0; i < calls; i++)
		buf_adds(&b, ",{\"call\":true}");
	if (last)
		buf_addf(&b, ",%s", raw);
	buf_adds(&b, "]}");
	return buf_take(&b);
}

static void add_group(int group)
{
	static const struct {
		const char *json;
		int n;
	} texts[] = {{"looking", 7}, {"", 0}, {" \\n", 2}, {"d\xC3\xB6ne", 5}};
	static const char *const ends[] = {"end_turn", "end_turn", "end_turn", "max_tokens", "aborted"};
	int calls = (int)chance(4), t = (int)chance(4);
	char *id[4];
	CLEAN_FREE char *own = chance(3) ? xstrdup("") : replay(group, texts[t].n, calls);
	add("assistant", xasprintf("{\"model\":\"m\",\"text\":\"%s\",\"stop\":\"%s\",\"calls\":%d%s}", texts[t].json,
				   calls ? "tool_use" : ends[chance(5)], calls, own));
	for (int i = 0; i < calls; i++) {
		id[i] = call_id(group, i);
		add("tool_call", xasprintf("{\"id\":\"%s\",\"name\":\"%s\",\"input\":{\"command\":\"%d\"}}", id[i],
					   chance(8) ? "bash" : "no such/tool", i));
	}
	for (int i = 0; i < calls; i++) {
		add("tool_result", xasprintf("{\"id\":\"%s\",\"name\":\"bash\",\"text\":\"%s\",\"error\":false}", id[i],
					     chance(5) ? "out" : ""));
		if (!chance(6))
			add("user", xasprintf("{\"message\":%d,\"text\":\"in between\"}", group));
		free(id[i]);
	}
}

static void make_history(void)
{
	n_entries = 0;
	for (int run = 0, group = 0; run < 1 + (int)chance(4); run++) {
		add(chance(5) ? "user" : "ship",
		    xasprintf("{\"message\":%d,\"text\":\"%s\"}", run, chance(8) ? "do it" : " "));
		for (int turns = 1 + (int)chance(4); turns > 0; turns--)
			add_group(group++);
		if (!chance(4))
			add("notice", xstrdup("{\"text\":\"stopped by the user\"}"));
	}
}

static void lose(int i)
{
	free(entries[i].body);
	memmove(&entries[i], &entries[i + 1], (size_t)(n_entries - i - 1) * sizeof *entries);
	n_entries--;
}

static void damage(void)
{
	int i = (int)chance((unsigned)n_entries), k = (int)chance((unsigned)n_entries);
	struct entry e = entries[i];
	switch (chance(7)) {
	case 0: lose(i); break;
	case 1: add(e.kind, xstrdup(e.body)); break; /* once more, at the end */
	case 2:
		entries[i] = entries[k];
		entries[k] = e;
		break;
	case 3: /* one entry says what another says */
		if (i != k && !strcmp(e.kind, entries[k].kind)) {
			free(entries[k].body);
			entries[k].body = xstrdup(e.body);
		}
		break;
	case 4:
		free(entries[i].body);
		entries[i].body = xstrdup(chance(2) ? "{}" : "{\"broken");
		break;
	case 5: entries[i].kind = chance(2) ? "strange" : entries[k].kind; break;
	case 6: { /* but in a provider's own blocks, of which nobody else knows what is right in them */
		const char *own = strstr(e.body, ",\"replay\"");
		size_t n = own ? (size_t)(own - e.body) : strlen(e.body);
		e.body[chance((unsigned)n)] = (char)(1 + chance(255));
		break;
	}
	}
}

static int store(int64_t session)
{
	int rc = db_run(db, NULL, "DELETE FROM entries", "");
	rc = rc ? rc : db_run(db, NULL, "DELETE FROM summaries", "");
	for (int i = 0; i < n_entries && !rc; i++)
		rc = db_run(db, NULL, "INSERT INTO entries VALUES(?,?,0,?,1,?,'',0,0)", "iitt", session, (int64_t)i + 1,
			    entries[i].kind, entries[i].body);
	return rc;
}

/* ---- what has to hold ---- */

/* Index behind the group of calls and results at i (the first call), or 0 if it is not one whole group. */
static size_t group(const struct context *c, size_t i)
{
	size_t calls = 0, from = i;
	for (; i < c->n && c->items[i].kind == ITEM_CALL; i++, calls++) {
		CLEAN_JSON cJSON *input = cJSON_Parse(c->items[i].input);
		if (!cJSON_IsObject(input))
			return 0;
		for (size_t k = from; k < i; k++) /* an id stands for one call */
			if (!strcmp(c->items[k].id, c->items[i].id))
				return 0;
	}
	for (size_t k = 0; k < calls; k++, i++)
		if (i >= c->n || c->items[i].kind != ITEM_RESULT || strcmp(c->items[i].id, c->items[from + k].id))
			return 0;
	return i;
}

static const char *fault(const struct context *c)
{
	for (size_t i = 0; i < c->n;) {
		const struct item *item = &c->items[i];
		bool calls = i + 1 < c->n && c->items[i + 1].kind == ITEM_CALL;
		switch (item->kind) {
		case ITEM_USER:
			if (!item->text || !item->text[strspn(item->text, " \n")])
				return "a user without words";
			i++;
			break;
		case ITEM_ASSISTANT:
			if (!calls && (!item->text || !item->text[strspn(item->text, " \n")]))
				return "an empty assistant";
			i++;
			if (calls && !(i = group(c, i)))
				return "calls whose results do not follow";
			break;
		case ITEM_CALL: return "a call of nobody";
		case ITEM_RESULT: return "a result of nothing";
		}
	}
	return NULL;
}

/* The first item is what a compaction left, and nothing from before it is there. */
static const char *fault_of_summary(const struct context *c, int64_t cut)
{
	if (!c->n || c->items[0].kind != ITEM_USER || !strstr(c->items[0].text, "SUM"))
		return "no summary at the begin";
	size_t users = 0, left = 0;
	for (size_t i = 1; i < c->n; i++)
		users += c->items[i].kind == ITEM_USER || c->items[i].kind == ITEM_ASSISTANT;
	for (int i = (int)cut; i < n_entries; i++)
		left += !strcmp(entries[i].kind, "user") || !strcmp(entries[i].kind, "ship") ||
			!strcmp(entries[i].kind, "assistant");
	return users > left ? "more than what follows the cut" : NULL;
}

static void print_case(const struct context *c)
{
	static const char *const names[] = {"user", "assistant", "call", "result"};
	for (int i = 0; i < n_entries; i++)
		printf("# entry   %s %s\n", entries[i].kind, entries[i].body);
	for (size_t i = 0; i < c->n; i++)
		printf("# context %s %s\n", names[c->items[i].kind],
		       c->items[i].id	  ? c->items[i].id
		       : c->items[i].text ? c->items[i].text
					  : "");
}

static void forget(void)
{
	while (n_entries)
		lose(n_entries - 1);
}

static unsigned requests; /* that were judged */

/* One of the three kinds of request, in turn: for the model that has written the history, or another one. */
static const char *fault_of_request(const struct context *c)
{
	static const struct format *const all[] = {&format_anthropic, &format_openai, &format_responses};
	unsigned k = requests++;
	const struct format *f = all[k % 3];
	struct model_info m = {.name = "m", .id = "m-id", .max_output = 9000};
	m.provider.quirks = k / 3 % 2 ? QUIRK_NULL_CONTENT | QUIRK_TOOL_NAME : 0;
	snprintf(m.thinking, sizeof m.thinking, "%s", k / 6 % 2 ? "2048" : "off");
	struct model_request q = {.model = k / 12 % 4 ? "m" : "n", .n = 9, .system = "be good", .context = c};
	CLEAN_BUF struct buf body = BUF_INIT;
	f->body(&q, &m, &body);
	const char *wrong = rules_fault(f, &body);
	if (wrong)
		printf("# %s, thinking %s, for %s: %s\n", f->kind, m.thinking, q.model, buf_str(&body));
	return wrong;
}

static bool well_formed(int64_t cutoff)
{
	struct context c;
	int rc = context_build(db, 1, cutoff, &c, NULL);
	const char *wrong = rc ? "context_build failed" : fault(&c);
	context_ask(&c);
	wrong = wrong ? wrong : fault_of_request(&c);
	if (wrong) {
		printf("# seed %u: %s\n", seed, wrong);
		print_case(&c);
	}
	context_release(&c);
	return !wrong;
}

TEST(undamaged_histories)
{
	for (unsigned round = 0; round < 200; round++) {
		seed = round;
		make_history();
		bool ok = !store(1) && well_formed(1000);
		for (int cut = 0; cut <= n_entries && ok; cut++) /* a restart in the middle of anything */
			ok = well_formed(cut);
		CHECK(ok);
		forget();
		if (!ok)
			break;
	}
}

/* Compactions at any place: in the middle of a group, of nothing, of all, several of them, in damaged histories too. */
TEST(compacted_histories)
{
	for (unsigned round = 0; round < 3000; round++) {
		seed = round * 31337 + 5;
		make_history();
		for (int n = (int)chance(4); n > 0 && n_entries; n--)
			damage();
		bool ok = !store(1);
		int64_t made = 0, cut = 0;
		for (int n = 1 + (int)chance(3); n > 0 && ok; n--) {
			made += 1 + chance(30);
			cut += chance((unsigned)(made - cut) + 1);
			ok = !db_run(db, NULL, "INSERT INTO summaries(session,made,cut,text) VALUES(1,?,?,'SUM')", "ii",
				     made, cut);
			struct context c = {0};
			ok = ok && well_formed(made) && well_formed(1000) && well_formed(made - 1);
			ok = ok && !context_build(db, 1, made + 300, &c, NULL);
			const char *wrong = ok ? fault_of_summary(&c, cut) : NULL;
			if (wrong)
				printf("# seed %u: %s\n", round, wrong);
			ok = ok && !wrong;
			context_release(&c);
		}
		CHECK(ok);
		forget();
		if (!ok)
			break;
	}
}

TEST(damaged_histories)
{
	for (unsigned round = 0; round < 3000; round++) {
		seed = round * 7919 + 1;
		make_history();
		for (int n = 1 + (int)chance(6); n > 0 && n_entries; n--)
			damage();
		bool ok = !store(1) && well_formed(1000);
		CHECK(ok);
		forget();
		if (!ok)
			break;
	}
	printf("# %u requests were judged\n", requests);
}

/* What is whole is not touched: each call's own result and all texts are there, in order. */
TEST(whole_groups_stay)
{
	struct context c;
	add("user", xstrdup("{\"text\":\"go\"}"));
	add("assistant", xstrdup("{\"text\":\"\",\"model\":\"m\",\"thinking\":\"hm\"}"));
	add("tool_call", xstrdup("{\"id\":\"a\",\"name\":\"read\",\"input\":{\"path\":\"x\"}}"));
	add("tool_call", xstrdup("{\"id\":\"b\",\"name\":\"bash\",\"input\":{}}"));
	add("tool_result", xstrdup("{\"id\":\"b\",\"name\":\"bash\",\"text\":\"B\",\"error\":true}"));
	add("user", xstrdup("{\"text\":\"meanwhile\"}"));
	add("tool_result", xstrdup("{\"id\":\"a\",\"name\":\"read\",\"text\":\"A\"}"));
	add("assistant", xstrdup("{\"text\":\"end\",\"model\":\"m\"}"));
	CHECK_INT(store(1), 0);
	CHECK_INT(context_build(db, 1, 1000, &c, NULL), 0);
	CHECK_INT(c.n, 8);
	static const struct {
		enum item_kind kind;
		const char *text;
	} want[] = {{ITEM_USER, "go"},	{ITEM_ASSISTANT, ""}, {ITEM_CALL, NULL},	{ITEM_CALL, NULL},
		    {ITEM_RESULT, "A"}, {ITEM_RESULT, "B"},   {ITEM_USER, "meanwhile"}, {ITEM_ASSISTANT, "end"}};
	for (size_t i = 0; i < c.n && i < ARRAY_LEN(want); i++) {
		CHECK_INT(c.items[i].kind, want[i].kind);
		if (want[i].text)
			CHECK_STR(c.items[i].text, want[i].text);
	}
	CHECK_STR(c.items[1].thinking, "hm");
	CHECK(c.items[5].error && !c.items[4].error);
	CHECK_STR(c.items[2].input, "{\"path\":\"x\"}");
	context_release(&c);
	forget();
}

int run_tests(void);
#define main run_tests
CHECK_MAIN()
#undef main

int main(void)
{
	if (!mkdtemp(root))
		return 1;
	CLEAN_FREE char *path = xasprintf("%s/db", root);
	if (db_open(path, true, &db, NULL) || db_run(db, NULL, "PRAGMA synchronous=OFF", ""))
		return 1;
	int rc = run_tests();
	db_close(db);
	dir_remove(root, NULL);
	return rc;
}
