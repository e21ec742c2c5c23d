/* The man page berthfs(5): a template of prose, and in it what is told by the tables that the program itself goes by,
 * so that the page cannot say what is not so. Pure; it runs at build time and in tests, never in the daemon. */
#include "manual.h"

#include <string.h>

#include "backend/base/mem.h"
#include "formats.h"
#include "tree.h"

/* ---- roff ---- */

/* Characters that mean something to roff, or that it would turn into typographic ones. */
static void add_char(struct buf *out, char c)
{
	static const char from[] = "\\-'^~", *const to[] = {"\\e", "\\-", "\\(aq", "\\(ha", "\\(ti"};
	const char *at = c ? strchr(from, c) : NULL;
	if (at)
		buf_adds(out, to[at - from]);
	else
		buf_addc(out, c);
}

static void add_plain(struct buf *out, const char *s, size_t n)
{
	if (n && *s == '.' && (!out->n || buf_ends(out, "\n")))
		buf_adds(out, "\\&"); /* no request */
	for (size_t i = 0; i < n; i++)
		add_char(out, s[i]);
}

/* `x` in bold, <x> in italics; "\n\n" begins a paragraph. Ends with a newline. */
static void add_text(struct buf *out, const char *s)
{
	bool bold = false, italic = false;
	for (; *s; s++) {
		if (*s == '`') {
			bold = !bold;
			buf_adds(out, bold ? "\\fB" : "\\fR");
		} else if (*s == '<' && !bold) {
			italic = true;
			buf_adds(out, "\\fI");
		} else if (*s == '>' && italic && !bold) {
			italic = false;
			buf_adds(out, "\\fR");
		} else if (!strncmp(s, "\n\n", 2)) {
			buf_adds(out, "\n.IP\n");
			s++;
		} else {
			add_plain(out, s, 1);
		}
	}
	buf_addc(out, '\n');
}

/* ---- the tree ---- */

struct place_words {
	enum place place;
	const char *title, *prefix;
};
/* In the order of a walk through the tree. */
static const struct place_words places[] = {
	{PLACE_ROOT, "The root", ""},
	{PLACE_PROJECTS, NULL, "projects/"},
	{PLACE_TEMPLATES, NULL, "templates/"},
	{PLACE_TEMPLATE, NULL, "templates/PROJECT@COMMIT/"},
	{PLACE_GATEWAY, NULL, "gateway/"},
	{PLACE_KEYS, NULL, "gateway/keys/"},
	{PLACE_SESSIONS, "Sessions and the drop box", "sessions/"},
	{PLACE_DROP, NULL, "sessions/new/"},
	{PLACE_DROP_PROJECT, NULL, "sessions/new/PROJECT/"},
	{PLACE_SESSION, "In sessions/NAME", ""},
	{PLACE_FILES, NULL, "files/"},
	{PLACE_ATTACH, NULL, "attach/"},
	{PLACE_APPROVALS, NULL, "approvals/"},
	{PLACE_SETTINGS, NULL, "settings/"},
	{PLACE_WAIT, NULL, "wait/"},
};

static void add_columns(struct buf *out, const char *const *columns)
{
	buf_adds(out, ".RS\n.PD 0\n");
	for (int i = 1; *columns; columns++, i++) {
		size_t n = strcspn(*columns, ":");
		buf_addf(out, ".IP %d. 4\n\\fI", i);
		add_plain(out, *columns, n);
		buf_adds(out, "\\fR:");
		add_text(out, *columns + n + 1);
	}
	buf_adds(out, ".PD\n.RE\n");
}

static void add_file(struct buf *out, const struct file *file, const char *prefix)
{
	const struct format *format = format_of(file);
	const char *name = file->name ? file->name : format && format->shown ? format->shown : "?";
	buf_adds(out, ".TP\n\\fI");
	add_plain(out, prefix, strlen(prefix));
	add_plain(out, name, strlen(name));
	buf_addf(out, "%s\\fR (%04o)\n", file->kind == KIND_DIR ? "/" : "", (unsigned)file->mode);
	if (file->about) {
		char first = file->about[0];
		buf_addc(out, (char)(first >= 'a' && first <= 'z' ? first - 'a' + 'A' : first));
		size_t n = strlen(file->about);
		CLEAN_FREE char *rest = xasprintf("%s%s", file->about + 1, file->about[n - 1] == '.' ? "" : ".");
		add_text(out, rest);
	}
	if (!format)
		return;
	add_text(out, format->text);
	if (format->columns)
		add_columns(out, format->columns);
}

static void add_tree(struct buf *out)
{
	for (size_t p = 0; p < ARRAY_LEN(places); p++) {
		if (places[p].title)
			buf_addf(out, ".SS %s\n", places[p].title);
		for (unsigned i = 1; i < tree_rows; i++)
			if (tree[i].place == places[p].place)
				add_file(out, &tree[i], places[p].prefix);
	}
}

/* ---- verbs and keys ---- */

static void add_verbs(struct buf *out)
{
	CLEAN_BUF struct buf verbs = BUF_INIT;
	ctl_verbs(&verbs);
	char *at = verbs.p;
	for (char *line; at && (line = strsep(&at, "\n"));) {
		char *about = strstr(line, "  ");
		if (!about && (about = strrchr(line, ']')))
			about++; /* a long form leaves one blank */
		if (!*line || !about)
			continue;
		buf_adds(out, ".TP\n\\fB");
		add_plain(out, line, (size_t)(about - line));
		buf_adds(out, "\\fR\n");
		add_text(out, about + strspn(about, " "));
	}
}

static void add_key(void *arg, const struct config_key_info *key)
{
	struct buf *out = arg;
	buf_adds(out, ".TP\n\\fB");
	add_plain(out, key->name, strlen(key->name));
	buf_adds(out, "\\fR = \\fI");
	add_plain(out, key->fallback, strlen(key->fallback));
	buf_adds(out, "\\fR\n");
	CLEAN_FREE char *about = xasprintf("%s.", key->about);
	add_text(out, about);
	if (key->values) {
		add_plain(out, key->values, strlen(key->values));
		buf_adds(out, ".\n");
	}
}

/* ---- the whole ---- */

void manual_make(const char *template, struct buf *out)
{
	static const struct {
		const char *mark;
		void (*add)(struct buf *out);
	} parts[] = {{"@TREE@", add_tree}, {"@VERBS@", add_verbs}};
	CLEAN_FREE char *copy = xstrdup(template);
	char *at = copy;
	for (char *line; at && (line = strsep(&at, "\n"));) {
		size_t i = 0;
		while (i < ARRAY_LEN(parts) && strcmp(parts[i].mark, line))
			i++;
		const char *version = strstr(line, "@VERSION@");
		if (i < ARRAY_LEN(parts))
			parts[i].add(out);
		else if (!strcmp(line, "@CONFIG@"))
			config_describe(add_key, out);
		else if (version)
			buf_addf(out, "%.*s%s%s\n", (int)(version - line), line, BERTHFS_VERSION,
				 version + strlen("@VERSION@"));
		else if (*line || at)
			buf_addf(out, "%s\n", line);
	}
}
