/* Opens the pull request of a ship at a forge, with a token that only this process holds: a route of the daemon's own
 * socket, which sandboxes and the TCP address do not have. One that is open already is looked for first, so that asking
 * again, after this process or its client ended in the middle, does not open a second one. Where a project's host leads
 * is the policy's to say; the decision is in the ledger before anything goes out. The loop's thread; never follows a
 * redirect or shows the key. */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/clock.h"
#include "backend/base/json.h"
#include "backend/base/mem.h"
#include "gw.h"

#define ROUTE	   "/forge/pull-request"
#define TIMEOUT_MS 30000     /* for each of at most three requests */
#define ANSWER_MAX (1 << 20) /* bytes of a forge's answer */

struct pull {
	struct gw *gw;
	struct list link;
	struct conn *conn; /* NULL: the client has left */
	struct token *token;
	enum forge kind;
	char *url, *key, *ca; /* of the API; name of the key; or NULL */
	char *host, *project, *head, *base, *title, *body;
	struct buf out, in;
	struct scrub scrub;
	CURL *easy;
	struct curl_slist *headers;
	bool looking; /* for one that is open already: before opening one, and after a refusal, which may mean that */
	int status;
	int no; /* status and words with which opening one was refused */
	struct buf no_words;
	uint64_t seq;
	int64_t started_ms;
};

/* What is known without a line of the policy. */
static const struct {
	const char *host, *url, *key;
	enum forge kind;
} known[] = {
	{"github.com", "https://api.github.com", "github", FORGE_GITHUB},
	{"gitlab.com", "https://gitlab.com/api/v4", "gitlab", FORGE_GITLAB},
	{"gitea.com", "https://gitea.com/api/v1", "gitea", FORGE_GITEA},
	{"codeberg.org", "https://codeberg.org/api/v1", "gitea", FORGE_GITEA},
};

static void pull_free(struct pull *p)
{
	char *texts[] = {p->url, p->key, p->ca, p->host, p->project, p->head, p->base, p->title, p->body};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		free(texts[i]);
	buf_release(&p->out);
	buf_release(&p->in);
	buf_release(&p->no_words);
	list_remove(&p->link);
	token_put(p->token);
	free(p);
}

bool pull_wanted(const struct conn *c)
{
	return c->from && c->from->kind == LISTEN_DAEMON && c->from->path && http_is(&c->in, c->in.target, ROUTE) &&
	       http_is(&c->in, c->in.method, "POST");
}

/* ---- what is asked ---- */

/* "group/name", "group/sub/name": what can be a part of a URL as it is. */
static bool project_ok(const char *s)
{
	size_t parts = 1;
	for (const char *at = s; *at; at++) {
		bool begin = at == s || at[-1] == '/';
		if (begin && (*at == '/' || *at == '.'))
			return false;
		parts += *at == '/';
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/", *at))
			return false;
	}
	return parts >= 2 && s[strlen(s) - 1] != '/';
}

static int take_fields(struct pull *p, const cJSON *json, struct denial *d)
{
	const struct {
		const char *name;
		char **to;
		size_t max;
	} fields[] = {{"host", &p->host, 255}, {"project", &p->project, 500}, {"head", &p->head, 250},
		      {"base", &p->base, 250}, {"title", &p->title, 1000},    {"body", &p->body, 1 << 18}};
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		const char *text = json_str(json, fields[i].name);
		if (!text || strlen(text) > fields[i].max || (!*text && strcmp(fields[i].name, "body")))
			return deny(d, 400, "body", "the field \"%s\" is missing, or no text of a right length",
				    fields[i].name);
		*fields[i].to = xstrdup(text);
	}
	return project_ok(p->project) ? 0 : deny(d, 400, "body", "\"%.100s\" is no project of a forge", p->project);
}

/* Where it goes and with which key: a line of the policy, or one of the known forges. */
static int find_forge(struct pull *p, struct denial *d)
{
	const struct forge_rule *rule = policy_forge(p->gw->policy, p->host);
	if (rule) {
		p->kind = rule->kind;
		p->url = xstrdup(rule->url);
		p->key = xstrdup(rule->key);
		p->ca = xstrdup(rule->ca);
	}
	for (size_t i = 0; !rule && i < ARRAY_LEN(known); i++) {
		if (strcmp(known[i].host, p->host))
			continue;
		p->kind = known[i].kind;
		p->url = xstrdup(known[i].url);
		p->key = xstrdup(key_known(p->gw->keys, p->host) ? p->host : known[i].key);
	}
	if (!p->url)
		return deny(d, 403, "forge",
			    "no forge line of the policy names %.100s; add `forge %.100s github`, or gitlab or gitea",
			    p->host, p->host);
	if (!key_known(p->gw->keys, p->key))
		return deny(d, 403, "key", "there is no key %s yet: write an access token to gateway/keys/%s", p->key,
			    p->key);
	return 0;
}

static int check(struct pull *p, struct conn *c, struct denial *d)
{
	struct err why = ERR_INIT;
	struct token *t = call_token(c, NULL, d);
	if (!t)
		return -EPERM;
	p->token = token_get(t);
	CLEAN_JSON cJSON *json = json_parse(buf_str(&c->in.body), c->in.body.n, &why);
	if (!json)
		return deny(d, 400, "body", "%s", why.text);
	int rc = take_fields(p, json, d);
	return rc ? rc : find_forge(p, d);
}

/* ---- the requests ---- */

static void add_field(struct buf *out, const char *name, const char *text)
{
	buf_addf(out, "%s\"%s\":", out->n ? "," : "{", name);
	json_quote(out, text, strlen(text));
}

static void build_body(struct pull *p)
{
	bool gitlab = p->kind == FORGE_GITLAB;
	add_field(&p->out, gitlab ? "source_branch" : "head", p->head);
	add_field(&p->out, gitlab ? "target_branch" : "base", p->base);
	add_field(&p->out, "title", p->title);
	add_field(&p->out, gitlab ? "description" : "body", p->body);
	buf_addc(&p->out, '}');
}

/* The address of the project's pull requests, and what narrows a list of them. */
static char *address(const struct pull *p, CURL *e)
{
	char *project = curl_easy_escape(e, p->project, 0), *head = curl_easy_escape(e, p->head, 0),
	     *base = curl_easy_escape(e, p->base, 0);
	CLEAN_FREE char *owner = xstrndup(p->project, strcspn(p->project, "/"));
	struct buf b = BUF_INIT;
	if (p->kind == FORGE_GITLAB)
		buf_addf(&b, "%s/projects/%s/merge_requests", p->url, project);
	else
		buf_addf(&b, "%s/repos/%s/pulls", p->url, p->project);
	if (p->looking && p->kind == FORGE_GITLAB)
		buf_addf(&b, "?state=opened&source_branch=%s&target_branch=%s", head, base);
	else if (p->looking && p->kind == FORGE_GITHUB)
		buf_addf(&b, "?state=open&head=%s:%s&base=%s", owner, head, base);
	else if (p->looking)
		buf_adds(&b, "?state=open&limit=50");
	curl_free(project);
	curl_free(head);
	curl_free(base);
	return buf_take(&b);
}

static size_t on_body(char *text, size_t size, size_t n, void *arg)
{
	struct pull *p = arg;
	if (p->in.n + n > ANSWER_MAX)
		return 0;
	scrub_feed(&p->scrub, text, n, false, &p->in);
	return n;
}

static bool add_headers(struct pull *p)
{
	static const char *const fixed[] = {"Expect:", "Accept: application/json", "Accept-Encoding: identity",
					    "User-Agent: berthfs/" BERTHFS_VERSION, "Content-Type: application/json"};
	char line[KEY_MAX + 64];
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		p->headers = curl_slist_append(p->headers, fixed[i]);
	int rc = key_header(p->gw->keys, p->key, KIND_OPENAI, line, sizeof line); /* Authorization: Bearer */
	if (!rc)
		p->headers = curl_slist_append(p->headers, line);
	OPENSSL_cleanse(line, sizeof line);
	return !rc;
}

static void pull_end(struct pull *p, const char *result, const char *url, struct denial *d);

static void ask(struct pull *p)
{
	struct denial d;
	CURL *e = p->easy = curl_easy_init();
	CLEAN_FREE char *url = address(p, e);
	buf_reset(&p->in);
	scrub_start(&p->scrub, p->gw->keys, p->key);
	if (!add_headers(p)) {
		deny(&d, 503, "key", "the key %s has just been removed", p->key);
		pull_end(p, "not sent", NULL, &d);
		return;
	}
	curl_easy_setopt(e, CURLOPT_URL, url);
	curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, !strncmp(url, "https:", 6) ? "https" : "http");
	curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(e, CURLOPT_PROXY, "");
	curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)TIMEOUT_MS);
	curl_easy_setopt(e, CURLOPT_FORBID_REUSE, 1L);	/* once an hour at most */
	curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L); /* on one that is used again curl may send it twice */
	curl_easy_setopt(e, CURLOPT_HTTPHEADER, p->headers);
	curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(e, CURLOPT_WRITEDATA, p);
	if (p->ca)
		curl_easy_setopt(e, CURLOPT_CAINFO, p->ca);
	if (!p->looking) {
		curl_easy_setopt(e, CURLOPT_POSTFIELDS, p->out.p);
		curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)p->out.n);
	}
	curl_multi_add_handle(p->gw->multi, e);
}

static void let_go(struct pull *p)
{
	if (p->easy) {
		curl_multi_remove_handle(p->gw->multi, p->easy);
		curl_easy_cleanup(p->easy);
	}
	curl_slist_free_all(p->headers);
	p->easy = NULL;
	p->headers = NULL;
}

/* ---- what comes back ---- */

static void recorded(struct ledger_record *r)
{
	ledger_record_free(r);
}

/* url: it is open there; else d says why not. */
static void pull_end(struct pull *p, const char *result, const char *url, struct denial *d)
{
	struct conn *c = p->conn;
	struct ledger_record *r = ledger_record_new("outcome");
	let_go(p);
	r->of = p->seq;
	r->done = recorded;
	ledger_int(r, "of", (int64_t)p->seq);
	ledger_text(r, "result", result);
	ledger_int(r, "status", p->status);
	ledger_text(r, "url", url ? url : "");
	ledger_int(r, "ms", clock_mono_ms() - p->started_ms);
	record_later(p->gw, r);
	if (c && url) {
		CLEAN_BUF struct buf body = BUF_INIT;
		CLEAN_BUF struct buf head = BUF_INIT;
		add_field(&body, "url", url);
		buf_addc(&body, '}');
		buf_addf(&head, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
			 body.n);
		conn_send(c, head.p, head.n);
		conn_send(c, body.p, body.n);
		conn_done(c);
		conn_read(c);
	} else if (c) {
		conn_deny(c, d, false);
		conn_read(c);
	}
	pull_free(p);
}

/* It is shown in terminals. */
static bool plain(const char *url)
{
	for (; *url; url++)
		if ((unsigned char)*url <= 0x20 || (unsigned char)*url >= 0x7f || strchr("\"<>", *url))
			return false;
	return true;
}

static const char *url_of(const cJSON *o)
{
	const char *url = json_str(o, "html_url");
	url = url ? url : json_str(o, "web_url");
	return url && (!strncmp(url, "https://", 8) || !strncmp(url, "http://", 7)) && strlen(url) < 500 && plain(url)
		       ? url
		       : NULL;
}

/* The one of a list that goes from head to base; the other two forges have looked for that themselves. */
static const char *url_in_list(const struct pull *p, const cJSON *list)
{
	const cJSON *one;
	cJSON_ArrayForEach(one, list)
	{
		const char *head = json_str(json_get(one, "head"), "ref"),
			   *base = json_str(json_get(one, "base"), "ref");
		if (p->kind != FORGE_GITEA || (head && base && !strcmp(head, p->head) && !strcmp(base, p->base)))
			return url_of(one);
	}
	return NULL;
}

/* The forge's own words: a text, a list of them, or a list of objects with a message. */
static void add_words(struct buf *out, const cJSON *o)
{
	if (cJSON_IsString(o))
		buf_addf(out, "%s%s", out->n ? "; " : "", o->valuestring);
	else if (cJSON_IsArray(o) || cJSON_IsObject(o))
		for (const cJSON *i = o->child; i; i = i->next)
			if (cJSON_IsArray(o) || !strcmp(i->string, "message") || !strcmp(i->string, "error") ||
			    !strcmp(i->string, "errors"))
				add_words(out, i);
}

static void refuse(struct pull *p, const cJSON *json)
{
	struct denial d;
	CLEAN_BUF struct buf words = BUF_INIT;
	if (p->no && p->status == 200) { /* none is open either: what was said before counts */
		p->status = p->no;
		buf_add(&words, p->no_words.p, p->no_words.n);
	} else {
		add_words(&words, json);
	}
	const char *hint = p->status < 300			  ? ", and gives no address that can be shown"
			   : p->status == 401			  ? " (is the key still good?)"
			   : p->status == 403 || p->status == 404 ? " (may the key do this for that project?)"
								  : "";
	deny(&d, 502, "forge.refused", "%.100s says %d%s: %.300s", p->host, p->status, hint, buf_str(&words));
	pull_end(p, "refused", NULL, &d);
}

bool pull_finished(struct gw *g, CURL *easy, CURLcode rc)
{
	struct pull *p = NULL;
	struct denial d;
	long status = 0;
	list_each (i, &g->pulls)
		if (list_entry(i, struct pull, link)->easy == easy)
			p = list_entry(i, struct pull, link);
	if (!p)
		return false;
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	p->status = (int)status;
	let_go(p);
	if (rc) {
		deny(&d, 502, "forge.unreachable", "%.100s cannot be reached: %s", p->host, curl_easy_strerror(rc));
		pull_end(p, "unreachable", NULL, &d);
		return true;
	}
	scrub_feed(&p->scrub, "", 0, true, &p->in);
	CLEAN_JSON cJSON *json = json_parse(buf_str(&p->in), p->in.n, NULL);
	const char *url = !json || status < 200 || status >= 300 ? NULL
			  : p->looking				 ? url_in_list(p, json)
								 : url_of(json);
	if (url) {
		pull_end(p, p->looking ? "found" : "opened", url, NULL);
	} else if (p->looking && !p->no && status == 200 && cJSON_IsArray(json)) {
		p->looking = false; /* there is none */
		ask(p);
	} else if (!p->looking && (status == 409 || status == 422)) {
		p->no = p->status;
		add_words(&p->no_words, json);
		p->looking = true; /* perhaps somebody else has just opened it */
		ask(p);
	} else {
		refuse(p, json);
	}
	return true;
}

void pull_cut(struct pull *p)
{
	p->conn = NULL; /* what has gone out may have been done: it goes on to its end, for the ledger */
}

void pull_stop(struct gw *g)
{
	struct denial d;
	deny(&d, 503, "forge.unreachable", "the gateway ends");
	list_each_safe (i, &g->pulls) {
		struct pull *p = list_entry(i, struct pull, link);
		if (p->easy) /* else the ledger still has it */
			pull_end(p, "gateway ended", NULL, &d);
	}
}

/* ---- the decision ---- */

static void decided(struct ledger_record *r)
{
	struct pull *p = r->arg;
	struct denial d;
	p->seq = r->seq;
	if (r->rc) {
		struct conn *c = p->conn;
		deny(&d, 503, "ledger", "the request cannot be recorded, so it is not sent: %.200s", r->err.text);
		if (c) {
			conn_deny(c, &d, false);
			conn_read(c);
		}
		pull_free(p);
	} else if (!p->conn || p->token->revoked) {
		deny(&d, 401, "token", "this session token is not valid any more");
		pull_end(p, p->conn ? "revoked before it was sent" : "client left before it was sent", NULL, &d);
	} else {
		ask(p);
	}
	ledger_record_free(r);
}

void pull_begin(struct conn *c)
{
	struct pull *p = xcalloc(1, sizeof *p);
	struct denial d;
	p->gw = c->gw;
	p->started_ms = clock_mono_ms();
	list_append(&c->gw->pulls, &p->link);
	if (check(p, c, &d)) {
		call_denied(c, p->token, &d, false);
		pull_free(p);
		return;
	}
	char hex[SHA_HEX + 1];
	build_body(p);
	p->looking = true;
	sha_hex(&p->gw->sha, p->out.p, p->out.n, hex);
	struct ledger_record *r = ledger_record_new("decision");
	record_who(r, p->token);
	ledger_text(r, "method", "POST");
	ledger_text(r, "target", ROUTE);
	ledger_text(r, "verdict", "allowed");
	ledger_text(r, "provider", p->host);
	ledger_text(r, "forge_project", p->project);
	ledger_text(r, "head", p->head);
	ledger_text(r, "base", p->base);
	ledger_int(r, "bytes", (int64_t)p->out.n);
	ledger_text(r, "sha256", hex);
	r->open = true;
	r->arg = p;
	r->done = decided;
	p->conn = c;
	c->pull = p;
	c->state = CONN_WAITING;
	record_now(c->gw, r);
}
