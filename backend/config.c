/* The `config` file. Any thread; a struct config never changes. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "approve.h"
#include "backend.h"
#include "backend/base/guard.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "gate.h"
#include "models.h"
#include "sandbox/sandbox.h"

#define WINDOW_MIN 1000 /* tokens; a prompt alone takes half of it */
#define WINDOW_MAX 100000000

/* Forms of a value. */
enum form { ANY, WORD, SECONDS, REST, COUNT, WINDOW, RULES, PATTERNS, LISTEN, LATER };

static const struct key {
	const char *name, *fallback;
	enum form form;
	const char *words; /* for WORD: what is possible, space-separated; LATER: only the default, the rest is not
			      built yet */
	const char *later; /* words that are known but not built yet */
	const char *about;
} keys[CONFIG_KEYS] = {
	[CONFIG_MODEL] = {"model", "", ANY, NULL, NULL,
			  "model of new sessions: a name that `berthfs models` lists, PROVIDER/NAME, or script:FILE, "
			  "which answers from a file; empty: claude-code if it is logged in, else a usual one of the "
			  "first provider with a key"},
	[CONFIG_PROJECT] = {"project", "", ANY, NULL, NULL,
			    "project of new sessions; empty: the git checkout that the writing process stands in"},
	[CONFIG_SANDBOX] = {"sandbox", "vm", WORD, "vm container host dir", "",
			    "where the tools of a session run; also ssh:HOST"},
	[CONFIG_SIZE] = {"size", "small", WORD, "mini small large", "",
			 "cpus/memory: mini 1/512 MiB, small 2/2 GiB, large 8/16 GiB"},
	[CONFIG_NETWORK] = {"network", "none", WORD, "none registries internet", "",
			    "what a sandbox may reach: models alone, package hosts too, or all that is public"},
	[CONFIG_AFTER_RUN] =
		{"after-run", "none", WORD, "none merge ship pr", "",
		 "after a run: merge fast-forwards the checked-out branch; ship and pr ship what has passed"},
	[CONFIG_SHIP] = {"ship", "main", ANY, NULL, NULL,
			 "where an empty `ship` goes: main (the remote's default branch), branch NAME or pr"},
	[CONFIG_APPROVALS] = {"approvals", "off", WORD, "off on", "",
			      "on: ask before a tool runs that approvals.ask names"},
	[CONFIG_AGENT] =
		{"agent", "none", ANY, NULL, NULL,
		 "who works: none (berthfs itself), or an agent that is installed in the sandbox: opencode, claude, "
		 "codex, pi, or a command that reads a prompt and prints the answer"},
	[CONFIG_APPROVALS_ASK] = {"approvals.ask", "bash, write, edit", RULES, NULL, NULL,
				  "what is asked for: TOOL or TOOL PATTERN, with commas, as in `write, bash git push`"},
	[CONFIG_ALLOW_DIR] = {"sandbox.allow-dir", "no", WORD, "no yes", "",
			      "allow sandbox dir: no isolation at all, for tests"},
	[CONFIG_BOOT_TIMEOUT] = {"sandbox.boot-timeout", "60", SECONDS, NULL, NULL, "seconds until a VM must answer"},
	[CONFIG_DISK] = {"sandbox.disk", "20480", COUNT, NULL, NULL,
			 "MiB of the machine's disk that a container may fill; a VM has a disk of 20 GiB"},
	[CONFIG_CHECK_TIMEOUT] = {"check.timeout", "300", SECONDS, NULL, NULL,
				  "seconds for a check that names none itself"},
	[CONFIG_WORKERS] = {"workers", "64", COUNT, NULL, NULL, "sessions that may run at the same time"},
	[CONFIG_IDLE_PAUSE] = {"idle.pause", "60 s", REST, NULL, NULL,
			       "until a sandbox that nothing is asked of is paused, memory and all; off: never"},
	[CONFIG_IDLE_HIBERNATE] = {"idle.hibernate", "30 m", REST, NULL, NULL,
				   "until the memory of such a sandbox goes to disk and its token ends; off: never"},
	[CONFIG_IDLE_DOWN] = {"idle.down", "off", REST, NULL, NULL,
			      "until such a sandbox is stopped, and all that runs in it ends; off: never"},
	[CONFIG_GATEWAY_LISTEN] = {"gateway.listen", "off", LISTEN, NULL, NULL,
				   "ADDRESS:PORT for programs of this machine that have a session's token"},
	[CONFIG_LEDGER_SYNC] =
		{"ledger.sync", "batch", WORD, "batch each", "",
		 "each: a request waits until the gateway's record of it is on disk; batch: 50 ms at most"},
	[CONFIG_HTTP_LISTEN] = {"http.listen", "off", LATER, NULL, NULL, "TCP address of the HTTP face"},
	[CONFIG_SANDBOX_LAUNCH] = {"sandbox.launch", "", LATER, NULL, NULL,
				   "command that starts a sandbox's keeper on another machine"},
	[CONFIG_SHIP_HOSTS] = {"ship.hosts", "", LATER, NULL, NULL, "hosts that a push asks for"},
	[CONFIG_RETRY_LIMIT] = {"retry.limit", "1 h", SECONDS, NULL, NULL,
				"how long a failing model request is tried again before the run fails"},
	[CONFIG_ANSWER_BEGIN] = {"answer.begin-timeout", "10 m", SECONDS, NULL, NULL,
				 "how long a model may take until its answer begins; local servers load it first"},
	[CONFIG_ANSWER_IDLE] = {"answer.idle-timeout", "3 m", SECONDS, NULL, NULL,
				"how long an answer that has begun may be silent"},
	[CONFIG_OUTPUT_LIMIT] =
		{"output.limit", "64", COUNT, NULL, NULL,
		 "MiB of tool output that a session's transcript keeps; beyond, a few lines of each result"},
	[CONFIG_WINDOW] =
		{"model.window", "auto", WINDOW, NULL, NULL,
		 "no model is given more tokens than this (auto: what it takes); older parts are summed up before"},
	[CONFIG_CLAUDE_PROGRAM] = {"claude-code.program", "claude", ANY, NULL, NULL,
				   "the installed Claude Code that serves the model claude-code: a name or a path"},
	[CONFIG_CLAUDE_KEEP] = {"claude-code.keep", "4", COUNT, NULL, NULL,
				"processes of Claude Code that wait for their session's next turn (200 MB each)"},
	[CONFIG_CLAUDE_IDLE] = {"claude-code.idle", "10 m", SECONDS, NULL, NULL,
				"how long such a process waits until it is let go"},
	[CONFIG_PROTECTED] =
		{"protected", NULL, PATTERNS, NULL, NULL,
		 "files that read, write and edit refuse: NAME, DIR/NAME, DIR/ with all below, !NAME is none"},
};

/* Keys that stand for many: PREFIX and a name of the user's choice. */
static int check_price(const char *name, const char *value, struct err *err);
static const struct family {
	const char *prefix, *name, *example, *about;
	int (*check)(const char *name, const char *value, struct err *err);
} families[] = {
	{"provider.", "provider.NAME.url", "http://127.0.0.1:11434",
	 "a server of models. Beside url: kind = anthropic, openai or responses (what it speaks); key = NAME (of "
	 "gateway/keys); ca = FILE (of certificates); "
	 "quirks = max-tokens no-usage tool-name null-content",
	 models_check_provider},
	{"model.", "model.NAME.provider", "NAME",
	 "about a model that the table lacks or has otherwise. Beside provider: id, window and max-output (tokens), "
	 "thinking = "
	 "off, on, adaptive, summarized, low, medium, high, xhigh, max or tokens; images = yes or no",
	 models_check_model},
	{"price.", "price.MODEL", "3 15 0.3", "dollars for a million tokens: in, out, cached in (if left out: as in)",
	 check_price},
};

static const struct family *family_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(families); i++)
		if (!strncmp(name, families[i].prefix, strlen(families[i].prefix)) && name[strlen(families[i].prefix)])
			return &families[i];
	return NULL;
}

static const struct key *find(const char *name)
{
	for (int i = 0; i < CONFIG_KEYS; i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

static bool word_in(const char *words, const char *w)
{
	size_t n = strcspn(w, " ");
	for (const char *p = words; n && !w[n] && (p = strstr(p, w)); p += n)
		if ((p == words || p[-1] == ' ') && (!p[n] || p[n] == ' '))
			return true;
	return false;
}

/* "60", "60 s", "5m": seconds; COUNT: a plain number. -1 if it is neither. */
static int64_t number(const char *s, bool seconds)
{
	char *end;
	if (*s < '0' || *s > '9')
		return -1;
	errno = 0;
	int64_t v = strtoll(s, &end, 10);
	while (*end == ' ')
		end++;
	int64_t unit = !*end		   ? 1
		       : !seconds	   ? -1
		       : !strcmp(end, "s") ? 1
		       : !strcmp(end, "m") ? 60
		       : !strcmp(end, "h") ? 3600
					   : -1;
	return errno || unit < 0 || v > 1000000 ? -1 : v * unit;
}

static int check_word(const struct key *k, const char *value, struct err *err)
{
	if (word_in(k->words, value))
		return 0;
	bool kind = !strcmp(k->name, "sandbox");
	if (kind && !strncmp(value, "ssh:", 4))
		return sandbox_kind_check(value, err);
	if (k->later && word_in(k->later, value))
		return err_set(err, EOPNOTSUPP, "%s = %s is not built yet; possible now: %s", k->name, value, k->words);
	return err_set(err, EINVAL, "%s cannot be \"%.60s\"; possible: %s%s", k->name, value, k->words,
		       kind ? " ssh:HOST" : "");
}

static int check_window(const char *value, struct err *err)
{
	char *end;
	long v = strtol(value, &end, 10);
	if (*value >= '0' && *value <= '9' && !*end && v >= WINDOW_MIN && v <= WINDOW_MAX)
		return 0;
	return err_set(err, EINVAL, "a window is a number of tokens from %d to %d, not \"%.60s\"", WINDOW_MIN,
		       WINDOW_MAX, value);
}

static int check_later(const struct key *k, const char *value, struct err *err)
{
	if (!strcmp(value, k->fallback))
		return 0;
	return err_set(err, EOPNOTSUPP, "%s is not built yet; possible now: %s", k->name,
		       *k->fallback ? k->fallback : "empty");
}

static int check_model(const char *value, struct err *err)
{
	if (!strncmp(value, "script:", 7))
		return value[7] ? 0 : err_set(err, EINVAL, "script: needs the FILE that answers come from");
	if (strlen(value) >= MODEL_NAME || value[strcspn(value, " \t\"\\")])
		return err_set(err, EINVAL, "\"%.60s\" is no model's name; berthfs models lists what there is", value);
	return 0;
}

static int check_ship(const char *value, struct err *err)
{
	if (!strcmp(value, "main") || !strcmp(value, "pr") || (!strncmp(value, "branch ", 7) && value[7]))
		return 0;
	return err_set(err, EINVAL, "ship cannot be \"%.60s\"; possible: main, branch NAME, pr", value);
}

/* "off", 127.0.0.1:8080 or [::1]:8080 */
static int check_listen(const char *name, const char *value, struct err *err)
{
	unsigned char address[16];
	const char *colon = strrchr(value, ':');
	CLEAN_FREE char *host = xstrndup(value, colon ? (size_t)(colon - value) : 0);
	size_t n = strlen(host);
	bool six = n > 2 && *host == '[' && host[n - 1] == ']';
	if (!strcmp(value, "off"))
		return 0;
	if (six)
		host[n - 1] = 0;
	int64_t port = colon ? number(colon + 1, false) : -1;
	if (port > 0 && port < 65536 && inet_pton(six ? AF_INET6 : AF_INET, host + six, address) == 1)
		return 0;
	return err_set(err, EINVAL, "%s is off, or an address and a port such as 127.0.0.1:8081, not \"%.60s\"", name,
		       value);
}

static int check(const struct key *k, const char *value, struct err *err)
{
	if (k == &keys[CONFIG_MODEL])
		return check_model(value, err);
	if (k == &keys[CONFIG_SHIP])
		return check_ship(value, err);
	switch (k->form) {
	case WORD: return check_word(k, value, err);
	case LATER: return check_later(k, value, err);
	case SECONDS:
		if (number(value, true) > 0)
			return 0;
		return err_set(err, EINVAL, "%s needs a time such as 60, 60 s or 5 m, not \"%.60s\"", k->name, value);
	case REST:
		if (!strcmp(value, "off") || number(value, true) > 0)
			return 0;
		return err_set(err, EINVAL, "%s is off, or a time such as 60, 60 s, 5 m or 1 h, not \"%.60s\"", k->name,
			       value);
	case COUNT:
		if (number(value, false) > 0)
			return 0;
		return err_set(err, EINVAL, "%s needs a number above 0, not \"%.60s\"", k->name, value);
	case WINDOW:
		if (!strcmp(value, "auto"))
			return 0;
		return check_window(value, err);
	case RULES: return approve_check_ask(value, err);
	case PATTERNS: return guard_check(value, err);
	case LISTEN: return check_listen(k->name, value, err);
	case ANY: break;
	}
	return 0;
}

/* What a key has where the text says nothing. */
static const char *fallback(int key)
{
	return key == CONFIG_PROTECTED ? gate_protected : keys[key].fallback;
}

int value_check(const char *key, const char *value, struct err *err)
{
	const struct key *k = find(key);
	return k ? check(k, value, err) : err_set(err, EINVAL, "unknown key \"%.60s\"", key);
}

static bool price_of(const char *text, struct price *p)
{
	double v[3];
	char *end;
	int n = 0;
	for (; n < 3; n++, text = end) {
		v[n] = strtod(text, &end);
		if (end == text || !(v[n] >= 0) || v[n] > 1e6)
			break;
	}
	*p = (struct price){v[0], v[1], n == 3 ? v[2] : v[0]};
	return n >= 2 && !text[strspn(text, " \t")];
}

static int check_price(const char *name, const char *value, struct err *err)
{
	struct price p;
	return price_of(value, &p)
		       ? 0
		       : err_set(err, EINVAL,
				 "a price is two or three numbers: dollars for a million tokens in, out, cached; not "
				 "\"%.60s\"",
				 value);
}

bool config_price(const struct config *c, const char *model, struct price *out)
{
	for (size_t i = 0; i < c->n_extra; i++)
		if (!strncmp(c->extra[i].name, "price.", 6) && !strcmp(c->extra[i].name + 6, model))
			return price_of(c->extra[i].value, out);
	return false;
}

int64_t config_window(const struct config *c)
{
	return strcmp(c->value[CONFIG_WINDOW], "auto") ? atoll(c->value[CONFIG_WINDOW]) : 0;
}

static void unknown_key(const char *name, struct err *err)
{
	CLEAN_BUF struct buf list = BUF_INIT;
	for (int i = 0; i < CONFIG_KEYS; i++)
		buf_addf(&list, "%s%s", i ? ", " : "", keys[i].name);
	for (size_t i = 0; i < ARRAY_LEN(families); i++)
		buf_addf(&list, ", %s", families[i].name);
	err_set(err, EINVAL, "unknown key \"%.60s\"; known: %s", name, buf_str(&list));
}

/* Splits and checks a line. *name NULL for a blank one or a comment; *key NULL for one of a family. line is changed. */
static int split(char *line, const struct key **key, char **name, char **value, struct err *err)
{
	*key = NULL;
	*name = NULL;
	char *s = text_trim(line);
	if (!*s || *s == '#')
		return 0;
	char *eq = strchr(s, '=');
	if (!eq)
		return err_set(err, EINVAL, "\"%.60s\" is no `key = value` line", s);
	*eq = 0;
	*name = text_trim(s);
	*value = text_trim(eq + 1);
	*key = find(*name);
	if (*key)
		return check(*key, *value, err);
	const struct family *f = family_of(*name);
	if (f)
		return f->check(*name, *value, err);
	unknown_key(*name, err);
	return -EINVAL;
}

int config_line(const char *line, size_t n, struct err *err)
{
	const struct key *k;
	char *name, *value;
	CLEAN_FREE char *copy = xstrndup(line, n);
	return split(copy, &k, &name, &value, err);
}

const char *config_extra(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->n_extra; i++)
		if (!strcmp(c->extra[i].name, name))
			return c->extra[i].value;
	return NULL;
}

/* Takes over one line. */
static int take_line(struct config *c, char *line, int no, int seen[CONFIG_KEYS], struct err *err)
{
	const struct key *k;
	char *name, *value;
	int rc = split(line, &k, &name, &value, err);
	if (rc || !name)
		return rc;
	if (k && seen[k - keys])
		return err_set(err, EINVAL, "%s stands twice, first in line %d", name, seen[k - keys]);
	if (!k && config_extra(c, name))
		return err_set(err, EINVAL, "%s stands twice", name);
	if (k) {
		seen[k - keys] = no;
		c->value[k - keys] = xstrdup(value);
	} else {
		c->extra = xrealloc(c->extra, (c->n_extra + 1) * sizeof *c->extra);
		c->extra[c->n_extra++] = (struct config_extra){xstrdup(name), xstrdup(value)};
	}
	return 0;
}

int config_parse(const char *text, size_t n, struct config **out, struct err *err)
{
	if (!utf8_valid(text, n))
		return err_set(err, EILSEQ, "config is not UTF-8 text");
	struct config *c = xcalloc(1, sizeof *c);
	atomic_init(&c->refs, 1);
	c->text = xstrndup(text, n);
	CLEAN_FREE char *copy = xstrndup(text, n);
	int no = 0, seen[CONFIG_KEYS] = {0};
	char *rest = copy;
	for (char *line; (line = strsep(&rest, "\n"));) {
		int rc = take_line(c, line, ++no, seen, err);
		if (rc) {
			err_prefix(err, "line %d", no);
			config_put(c);
			return rc;
		}
	}
	for (int i = 0; i < CONFIG_KEYS; i++)
		if (!c->value[i])
			c->value[i] = xstrdup(fallback(i));
	*out = c;
	return 0;
}

struct config *config_get(struct config *c)
{
	atomic_fetch_add(&c->refs, 1);
	return c;
}

void config_put(struct config *c)
{
	if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	for (int i = 0; i < CONFIG_KEYS; i++)
		free(c->value[i]);
	for (size_t i = 0; i < c->n_extra; i++) {
		free(c->extra[i].name);
		free(c->extra[i].value);
	}
	free(c->extra);
	free(c->text);
	free(c);
}

int64_t config_int(const struct config *c, enum config_key key)
{
	return number(c->value[key], keys[key].form == SECONDS || keys[key].form == REST);
}

void config_default_text(struct buf *out)
{
	buf_adds(out, "# Settings of berthfs. Every key is here with its default; take the # away to change one.\n"
		      "# A write to this file through the mount is checked and in force at once.\n");
	for (int i = 0; i < CONFIG_KEYS; i++)
		buf_addf(out, "\n# %s\n#%s = %s\n", keys[i].about, keys[i].name, fallback(i));
	for (size_t i = 0; i < ARRAY_LEN(families); i++)
		buf_addf(out, "\n# %s\n#%s = %s\n", families[i].about, families[i].name, families[i].example);
}

/* What a value of this key may be; made in values where it is no constant. */
static const char *key_values(const struct key *k, struct buf *values)
{
	switch (k->form) {
	case SECONDS: return "A time such as 60, 60 s, 5 m or 1 h";
	case REST: return "off, or a time such as 60, 60 s, 5 m or 1 h";
	case COUNT: return "A number above 0";
	case PATTERNS: return "Patterns with blanks between them";
	case WINDOW: return "auto, or a number of tokens";
	case RULES: return "Rules with commas between them: TOOL or TOOL PATTERN";
	case LISTEN: return "off, or an address and a port such as 127.0.0.1:8081";
	case LATER: return "Not built yet: it can only have its default";
	case ANY: return NULL;
	case WORD: break;
	}
	buf_adds(values, "Possible: ");
	for (const char *p = k->words; *p; p++)
		buf_addf(values, "%s%c", *p == ' ' ? "," : "", *p);
	return values->p;
}

void config_describe(void (*key)(void *arg, const struct config_key_info *key), void *arg)
{
	for (int i = 0; i < CONFIG_KEYS; i++) {
		CLEAN_BUF struct buf values = BUF_INIT;
		key(arg,
		    &(struct config_key_info){keys[i].name, fallback(i), keys[i].about, key_values(&keys[i], &values)});
	}
	for (size_t i = 0; i < ARRAY_LEN(families); i++)
		if (families[i].name)
			key(arg,
			    &(struct config_key_info){families[i].name, families[i].example, families[i].about, NULL});
}
