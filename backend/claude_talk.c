/* What is said to Claude Code, a JSON object a line: who we are, our tools, the conversation so far, and a no to
 * whatever it wants to do by itself. The conversation is told by lines of the user and of the model; a line of the user
 * is queued and one of the model taken at once, so each of the user's is waited for. Worker threads. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backend/base/clock.h"
#include "backend/base/hash.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "claude.h"
#include "context.h"
#include "format.h"
#include "tool.h"

#define HELLO_MS 120000 /* until it has said what it is: a cold start on a busy machine */
#define TOLD_MS	 120000 /* until it has taken a message of the past */
#define ID_MAX	 200	/* bytes of the id of something that it asks */
#define HELLO_ID "berthfs"

/* ---- the conversation ---- */

static void add(void *arg, bool user, const char *blocks, size_t n, const char *from)
{
	struct claude_told *t = arg;
	t->v = xrealloc(t->v, (t->n + 1) * sizeof *t->v);
	struct claude_message *m = &t->v[t->n++];
	*m = (struct claude_message){.user = user, .from = xstrdup(from)};
	buf_add(&m->blocks, blocks, n);
}

void claude_told(struct claude_told *t, const struct context *c, const struct model_info *m, const char *model)
{
	*t = (struct claude_told){0};
	anthropic_talk(c, m, model, CLAUDE_PREFIX, add, t);
	if (!t->n || !t->v[t->n - 1].user)
		add(t, true, "{\"type\":\"text\",\"text\":\"Go on.\"}", 31, NULL);
}

/* As the transcript will keep it. */
static char *normal(const char *json)
{
	CLEAN_JSON cJSON *o = json_parse(json, strlen(json), NULL);
	return cJSON_IsObject(o) ? cJSON_PrintUnformatted(o) : xstrdup("{}");
}

void claude_told_answer(struct claude_told *t, const struct model_reply *r, const struct model_info *m,
			const char *model)
{
	struct claude_told all;
	struct context c = {0};
	context_user(&c, "-");
	c.items = xrealloc(c.items, (r->n_calls + 2) * sizeof *c.items);
	c.items[c.n++] = (struct item){.kind = ITEM_ASSISTANT,
				       .text = xstrdup(buf_str(&r->text)),
				       .model = xstrdup(model),
				       .replay = xstrdup(r->replay)};
	for (size_t i = 0; i < r->n_calls; i++)
		c.items[c.n++] = (struct item){.kind = ITEM_CALL,
					       .id = xstrdup(r->calls[i].id),
					       .name = xstrdup(r->calls[i].name),
					       .input = normal(r->calls[i].input)};
	claude_told(&all, &c, m, model);
	if (all.n > 1)
		add(t, false, buf_str(&all.v[1].blocks), all.v[1].blocks.n, NULL);
	claude_told_release(&all);
	context_release(&c);
}

void claude_told_release(struct claude_told *t)
{
	for (size_t i = 0; i < t->n; i++) {
		buf_release(&t->v[i].blocks);
		free(t->v[i].from);
	}
	free(t->v);
	*t = (struct claude_told){0};
}

static uint64_t sum(const struct claude *c, const struct claude_told *t, size_t n)
{
	uint64_t h = c->seed;
	for (size_t i = 0; i < n; i++) {
		h = hash_add(h, &t->v[i].blocks.n, sizeof t->v[i].blocks.n);
		h = hash_add(h, buf_str(&t->v[i].blocks), t->v[i].blocks.n);
	}
	return h;
}

bool claude_knows(const struct claude *c, const struct claude_told *t)
{
	return c->told && t->n == c->told + 1 && sum(c, t, c->told) == c->sum;
}

void claude_learns(struct claude *c, const struct claude_told *t)
{
	c->told = t->n;
	c->sum = sum(c, t, t->n);
}

/* ---- answers to what it asks ---- */

static void tool_list(const struct claude *c, struct buf *out)
{
	buf_adds(out, "{\"tools\":[");
	for (size_t i = 0; !c->plain && i < tools_n; i++) {
		buf_addf(out, "%s{\"name\":\"%s\",\"description\":", i ? "," : "", tools[i].name);
		json_quote(out, tools[i].about, strlen(tools[i].about));
		buf_addf(out, ",\"inputSchema\":%s}", tools[i].schema);
	}
	buf_adds(out, "]}");
}

/* It speaks to our tools as to a server of them; they are only listed. */
static void server_answer(struct claude *c, const cJSON *message, struct buf *out)
{
	const char *method = json_str(message, "method");
	const cJSON *params = json_get(message, "params"), *id = json_get(message, "id");
	const char *protocol = json_str(params, "protocolVersion"),
		   *version = json_str(json_get(params, "clientInfo"), "version");
	buf_adds(out, "{\"mcp_response\":{\"jsonrpc\":\"2.0\",\"id\":");
	if (cJSON_IsNumber(id) || cJSON_IsString(id))
		json_print(out, id);
	else
		buf_addc(out, '0');
	if (method && !strcmp(method, "initialize")) {
		snprintf(c->version, sizeof c->version, "%.40s", version ? version : "");
		text_one_line(c->version, sizeof c->version);
		buf_adds(out, ",\"result\":{\"protocolVersion\":");
		json_quote(out, protocol ? protocol : "", protocol ? strlen(protocol) : 0);
		buf_adds(out, ",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"" CLAUDE_SERVER
			      "\",\"version\":\"" BERTHFS_VERSION "\"}}");
	} else if (method && !strcmp(method, "tools/list")) {
		buf_adds(out, ",\"result\":");
		tool_list(c, out);
	} else if (method && (!strncmp(method, "notifications/", 14) || !strcmp(method, "ping"))) {
		buf_adds(out, ",\"result\":{}");
	} else {
		c->ran |= method && !strcmp(method, "tools/call");
		buf_adds(out, ",\"error\":{\"code\":-32601,\"message\":\"nothing is run here\"}");
	}
	buf_adds(out, "}}");
}

static void hook_answer(struct claude *c, const cJSON *request, struct buf *out)
{
	buf_adds(out, "{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"defer\"}}");
}

static void permission_answer(struct claude *c, const cJSON *request, struct buf *out)
{
	c->ran = true; /* the hook has not kept it from running */
	buf_adds(out, "{\"behavior\":\"deny\",\"message\":\"nothing is run here\"}");
}

static void message_answer(struct claude *c, const cJSON *request, struct buf *out)
{
	server_answer(c, json_get(request, "message"), out);
}

static const struct {
	const char *subtype;
	void (*fn)(struct claude *c, const cJSON *request, struct buf *out);
} asked[] = {{"mcp_message", message_answer}, {"hook_callback", hook_answer}, {"can_use_tool", permission_answer}};

int claude_answer(struct claude *c, const cJSON *line, const atomic_bool *cancel, struct err *err)
{
	const char *type = json_str(line, "type"), *id = json_str(line, "request_id");
	const cJSON *request = json_get(line, "request");
	const char *subtype = json_str(request, "subtype");
	CLEAN_BUF struct buf out = BUF_INIT;
	if (!type || strcmp(type, "control_request"))
		return 0;
	if (!id || strlen(id) > ID_MAX)
		return 1; /* nobody could tell what an answer belongs to */
	size_t i = 0;
	while (i < ARRAY_LEN(asked) && (!subtype || strcmp(asked[i].subtype, subtype)))
		i++;
	bool known = i < ARRAY_LEN(asked);
	buf_addf(&out, "{\"type\":\"control_response\",\"response\":{\"subtype\":\"%s\",\"request_id\":",
		 known ? "success" : "error");
	json_quote(&out, id, strlen(id));
	if (known) {
		buf_adds(&out, ",\"response\":");
		asked[i].fn(c, request, &out);
	} else {
		buf_adds(&out, ",\"error\":\"not known here\"");
	}
	buf_adds(&out, "}}\n");
	int rc = claude_send(c, &out, cancel, err);
	return rc ? rc : 1;
}

/* ---- the handshake ---- */

static int strange(const struct claude *c, struct err *err, const char *why)
{
	return err_set(err, EPROTO,
		       "this Claude Code%s%s cannot be used as a model: %s (version 2.1 is known to work; `claude "
		       "update` gets a newer one)",
		       *c->version ? " " : "", c->version, why);
}

static int say_hello(struct claude *c, const char *system, const atomic_bool *cancel, struct err *err)
{
	CLEAN_BUF struct buf out = BUF_INIT;
	buf_adds(&out, "{\"type\":\"control_request\",\"request_id\":\"" HELLO_ID
		       "\",\"request\":{\"subtype\":\"initialize\",\"sdkMcpServers\":[\"" CLAUDE_SERVER
		       "\"],\"systemPrompt\":[");
	json_quote(&out, system, strlen(system));
	buf_adds(&out, "],\"hooks\":{\"PreToolUse\":[{\"matcher\":null,\"hookCallbackIds\":[\"no\"]}]}}}\n");
	return claude_send(c, &out, cancel, err);
}

/* Is it the answer to our introduction? 1: yes; -EPROTO: a no. */
static int is_welcome(const struct claude *c, const cJSON *o, struct err *err)
{
	const cJSON *r = json_get(o, "response");
	const char *type = json_str(o, "type"), *id = json_str(r, "request_id"), *how = json_str(r, "subtype");
	if (!type || strcmp(type, "control_response") || !id || strcmp(id, HELLO_ID))
		return 0;
	return how && !strcmp(how, "success") ? 1 : strange(c, err, "it refuses to be introduced to tools");
}

int claude_hello(struct claude *c, const struct model_request *q, struct model_fault *fault, struct err *err)
{
	const char *p;
	size_t n;
	int64_t until = clock_mono_ms() + HELLO_MS;
	bool welcome = false;
	if (getrandom(&c->seed, sizeof c->seed, 0) != sizeof c->seed)
		c->seed = (uint64_t)clock_mono_us();
	c->plain = q->plain;
	int rc = say_hello(c, q->system, q->cancel, err);
	while (!rc && !welcome) { /* older ones ask for the tools only with the first message */
		int64_t left = until - clock_mono_ms();
		rc = claude_line(c, left > 0 ? left : 0, q->cancel, &p, &n, err);
		CLEAN_JSON cJSON *o = rc ? NULL : answer_json(p, n);
		if (!o)
			continue;
		int is = is_welcome(c, o, err);
		welcome |= is > 0;
		rc = is < 0 ? is : claude_answer(c, o, q->cancel, err);
		rc = rc > 0 ? 0 : rc;
	}
	if (rc == -ETIMEDOUT) {
		fault->retry = true;
		return err_set(err, ETIMEDOUT, "Claude Code does not come up: it has said nothing of use for %d s",
			       HELLO_MS / 1000);
	}
	return rc;
}

/* ---- the conversation so far ---- */

static void user_line(struct buf *out, const struct claude_message *m, bool asks)
{
	buf_adds(out, "{\"type\":\"user\",\"session_id\":\"\",\"parent_tool_use_id\":null,\"client_composed\":true,");
	buf_addf(out, "%s\"message\":{\"role\":\"user\",\"content\":[", asks ? "" : "\"shouldQuery\":false,");
	buf_add(out, m->blocks.p, m->blocks.n);
	buf_adds(out, "]}}\n");
}

/* One line a message, with ids of its own: what has the same or none is put together. */
static void model_line(struct claude *c, struct buf *out, const struct claude_message *m)
{
	int n = ++c->lines;
	const char *from = m->from ? m->from : "";
	buf_addf(out,
		 "{\"type\":\"assistant\",\"session_id\":\"\",\"parent_tool_use_id\":null,\"uuid\":"
		 "\"00000000-0000-4000-8000-%012d\",\"message\":{\"id\":\"msg_berthfs_%d\",\"type\":\"message\","
		 "\"role\":\"assistant\",\"model\":",
		 n, n);
	json_quote(out, from, strlen(from));
	buf_adds(out, ",\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":0,\"output_tokens\":0},"
		      "\"content\":[");
	buf_add(out, m->blocks.p, m->blocks.n);
	buf_adds(out, "]}}\n");
}

/* Until it has taken the message. */
static int wait_taken(struct claude *c, const atomic_bool *cancel, struct err *err)
{
	const char *p;
	size_t n;
	int64_t until = clock_mono_ms() + TOLD_MS;
	for (;;) {
		int64_t left = until - clock_mono_ms();
		int rc = claude_line(c, left > 0 ? left : 0, cancel, &p, &n, err);
		CLEAN_JSON cJSON *o = rc ? NULL : answer_json(p, n);
		const char *type = json_str(o, "type");
		if (rc)
			return rc;
		if (type && !strcmp(type, "result"))
			return json_bool(o, "is_error", false)
				       ? strange(c, err, "it does not take a conversation that has begun elsewhere")
				       : 0;
		if (type && !strcmp(type, "stream_event"))
			return strange(c, err, "it answers to what was only told");
		rc = o ? claude_answer(c, o, cancel, err) : 0;
		if (rc < 0)
			return rc;
	}
}

int claude_tell(struct claude *c, const struct claude_told *t, const atomic_bool *cancel, struct err *err)
{
	for (size_t i = c->told; i < t->n; i++) {
		CLEAN_BUF struct buf line = BUF_INIT;
		bool asks = i + 1 == t->n;
		if (t->v[i].user)
			user_line(&line, &t->v[i], asks);
		else
			model_line(c, &line, &t->v[i]);
		int rc = claude_send(c, &line, cancel, err);
		if (!rc && t->v[i].user && !asks)
			rc = wait_taken(c, cancel, err);
		if (rc)
			return rc;
	}
	return 0;
}
