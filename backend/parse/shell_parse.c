/* Reads a line of bash into its simple commands. Quotes, lists, pipes, subshells, functions, substitutions and
 * here-documents are followed; nothing is expanded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/base/buf.h"
#include "backend/base/mem.h"
#include "shell.h"

#define DEPTH_MAX    20
#define COMMANDS_MAX 2000

struct reader {
	const char *p;
	struct shell_line *out;
	int depth;
	char heredoc[64];  /* end of the one that begins after this line, or "" */
	bool heredoc_open; /* its text is expanded */
};

static void list(struct reader *r, char end);

static void finish(struct reader *r, struct shell_command *c)
{
	struct shell_line *l = r->out;
	if (c->n && l->n < COMMANDS_MAX) {
		if (l->n == l->cap)
			l->command = xrealloc(l->command, (l->cap = l->cap * 2 + 8) * sizeof *l->command);
		l->command[l->n++] = *c;
	} else {
		l->unsure |= c->n > 0;
		for (size_t i = 0; i < c->n; i++)
			free(c->word[i].text);
		free(c->word);
	}
	*c = (struct shell_command){0};
}

/* What stands in a substitution is a list of its own. r->p is behind its begin. */
static void nested(struct reader *r, char end)
{
	if (++r->depth > DEPTH_MAX)
		r->out->unsure = true;
	else
		list(r, end);
	r->depth--;
	if (*r->p == end)
		r->p++;
	else
		r->out->unsure = true;
}

static void backticks(struct reader *r)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	for (r->p++; *r->p && *r->p != '`'; r->p++) {
		if (*r->p == '\\' && strchr("`\\$", r->p[1]) && r->p[1])
			r->p++;
		buf_addc(&text, *r->p);
	}
	if (*r->p)
		r->p++;
	else
		r->out->unsure = true;
	struct reader in = {.p = buf_str(&text), .out = r->out, .depth = r->depth + 1};
	if (in.depth > DEPTH_MAX)
		r->out->unsure = true;
	else
		list(&in, 0);
}

/* A $ and what belongs to it. */
static void dollar(struct reader *r, struct buf *text, bool *open, bool quoted)
{
	r->p++;
	if (*r->p == '(') {
		*open = true;
		r->p++;
		nested(r, ')');
	} else if (*r->p == '{') {
		*open = true;
		if (strcspn(r->p, "`\"'") < strcspn(r->p, "}") || memmem(r->p, strcspn(r->p, "}"), "$(", 2))
			r->out->unsure = true;
		r->p += strcspn(r->p, "}");
		r->p += *r->p == '}';
	} else if (*r->p == '\'' && !quoted) { /* $'...': with escapes, which are not looked at */
		*open = true;
		for (r->p++; *r->p && *r->p != '\''; r->p++)
			r->p += *r->p == '\\' && r->p[1];
		r->p += *r->p == '\'';
	} else if (*r->p == '"' && !quoted) {
		return;
	} else if (*r->p && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789@*#?$!-", *r->p)) {
		*open = true;
		r->p++;
	} else {
		buf_addc(text, '$');
	}
}

static void double_quotes(struct reader *r, struct buf *text, bool *open)
{
	for (r->p++; *r->p && *r->p != '"';) {
		if (*r->p == '\\' && r->p[1]) {
			if (!strchr("$`\"\\\n", r->p[1]))
				buf_addc(text, '\\');
			if (r->p[1] != '\n')
				buf_addc(text, r->p[1]);
			r->p += 2;
		} else if (*r->p == '$') {
			dollar(r, text, open, true);
		} else if (*r->p == '`') {
			*open = true;
			backticks(r);
		} else {
			buf_addc(text, *r->p++);
		}
	}
	if (*r->p)
		r->p++;
	else
		r->out->unsure = true;
}

static void single_quotes(struct reader *r, struct buf *text)
{
	size_t n = strcspn(++r->p, "'");
	buf_add(text, r->p, n);
	r->p += n;
	if (*r->p)
		r->p++;
	else
		r->out->unsure = true;
}

static bool ends_word(char c)
{
	return !c || strchr(" \t\n;&|()<>", c);
}

/* The next word. False if none begins here. */
static bool word(struct reader *r, struct shell_word *w)
{
	CLEAN_BUF struct buf text = BUF_INIT;
	bool open = false, any = false;
	while (!ends_word(*r->p)) {
		any = true;
		switch (*r->p) {
		case '\\':
			if (r->p[1] && r->p[1] != '\n')
				buf_addc(&text, r->p[1]);
			r->p += r->p[1] ? 2 : 1;
			break;
		case '\'': single_quotes(r, &text); break;
		case '"': double_quotes(r, &text, &open); break;
		case '$': dollar(r, &text, &open, false); break;
		case '`':
			open = true;
			backticks(r);
			break;
		case '*':
		case '?':
		case '[':
		case '{':
			open |= (*r->p == '[' ? strcspn(r->p, " \t\n]") < strcspn(r->p, " \t\n") : *r->p != '{') ||
				memchr(r->p, ',', strcspn(r->p, " \t\n}")) ||
				memmem(r->p, strcspn(r->p, " \t\n}"), "..", 2);
			buf_addc(&text, *r->p++);
			break;
		default: buf_addc(&text, *r->p++);
		}
	}
	*w = (struct shell_word){any ? xstrdup(buf_str(&text)) : NULL, open};
	return any;
}

/* A redirection, with what it goes to. */
static void redirection(struct reader *r)
{
	struct shell_word w;
	bool here = r->p[0] == '<' && r->p[1] == '<' && r->p[2] != '<';
	if ((r->p[0] == '<' || r->p[0] == '>') && r->p[1] == '(') { /* a process */
		r->p += 2;
		nested(r, ')');
		return;
	}
	r->p += strspn(r->p, "<>&|");
	if (here)
		r->p += *r->p == '-';
	r->p += strspn(r->p, " \t");
	bool quoted = strchr("'\"\\", *r->p) && *r->p;
	if (!word(r, &w))
		return;
	if (here && strlen(w.text) < sizeof r->heredoc && *w.text && !*r->heredoc) {
		snprintf(r->heredoc, sizeof r->heredoc, "%s", w.text);
		r->heredoc_open = !quoted;
	} else if (here) {
		r->out->unsure = true;
	}
	free(w.text);
}

static void heredoc(struct reader *r)
{
	while (*r->heredoc && *r->p) {
		size_t n = strcspn(r->p, "\n");
		const char *line = r->p + strspn(r->p, "\t");
		size_t len = n - (size_t)(line - r->p);
		bool end = len == strlen(r->heredoc) && !memcmp(line, r->heredoc, len);
		if (!end && r->heredoc_open && (memchr(r->p, '`', n) || memmem(r->p, n, "$(", 2)))
			r->out->unsure = true;
		r->p += n + (r->p[n] == '\n');
		if (end)
			break;
	}
	*r->heredoc = 0;
}

static void add(struct shell_command *c, struct shell_word w)
{
	c->word = xrealloc(c->word, (c->n + 1) * sizeof *c->word);
	c->word[c->n++] = w;
}

/* Words that stand before a command and are none. */
static bool is_keyword(const char *s)
{
	static const char *const words[] = {"if",    "then", "else", "elif", "fi", "do",   "done",  "while",
					    "until", "esac", "!",    "{",    "}",  "time", "coproc"};
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcmp(words[i], s))
			return true;
	return false;
}

/* `for x in a b`, `function f`: no command until the next separator. */
static bool takes_no_command(const char *s)
{
	return !strcmp(s, "for") || !strcmp(s, "select") || !strcmp(s, "function");
}

static void take_word(struct reader *r, struct shell_command *c, bool *skip)
{
	const char *from = r->p;
	struct shell_word w;
	if (!word(r, &w))
		return;
	bool bare = (size_t)(r->p - from) == strlen(w.text) && !w.open;
	if (!c->n && bare && !strcmp(w.text, "case"))
		r->out->unsure = true; /* its patterns end with a ) of their own */
	bool brace = *skip && bare && !strcmp(w.text, "{");
	if (brace || (!c->n && bare && takes_no_command(w.text)))
		*skip = !brace;
	else if (!*skip && !(!c->n && bare && is_keyword(w.text))) {
		add(c, w);
		return;
	}
	free(w.text);
}

/* Up to the end (a character that is left to the caller) or the end of the text. */
static void list(struct reader *r, char end)
{
	struct shell_command c = {0};
	bool skip = false;
	while (*r->p && !(end && *r->p == end)) {
		if (*r->p == ' ' || *r->p == '\t') {
			r->p++;
		} else if (*r->p == '\\' && r->p[1] == '\n') {
			r->p += 2;
		} else if (*r->p == '#') {
			r->p += strcspn(r->p, "\n");
		} else if (*r->p == '<' || *r->p == '>' || (*r->p == '&' && r->p[1] == '>')) {
			redirection(r);
		} else if (*r->p == '(') { /* a subshell, or the () of a function */
			finish(r, &c);
			r->p++;
			nested(r, ')');
		} else if (strchr("\n;&|)", *r->p)) {
			finish(r, &c);
			skip = false;
			if (*r->p++ == '\n')
				heredoc(r);
		} else {
			take_word(r, &c, &skip);
		}
	}
	finish(r, &c);
}

void shell_parse(const char *text, struct shell_line *out)
{
	struct reader r = {.p = text, .out = out};
	*out = (struct shell_line){0};
	list(&r, 0);
}

void shell_release(struct shell_line *l)
{
	for (size_t i = 0; i < l->n; i++) {
		for (size_t k = 0; k < l->command[i].n; k++)
			free(l->command[i].word[k].text);
		free(l->command[i].word);
	}
	free(l->command);
	*l = (struct shell_line){0};
}
