/* Texts that are made from memory, and the sizes and times of all files. Sizes are true: tar, rsync and mmap read as
 * many bytes as stat promises, and take a file of size 0 for empty. Loop thread only; memory only. */
#include "show.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "drop.h"
#include "face.h"
#include "files.h"
#include "keys.h"
#include "node.h"
#include "refuse.h"
#include "templates.h"

#define AGES_MS 60000 /* ages in the index are told in minutes */

/* ---- of a session ---- */

static void line(struct buf *out, const char *value)
{
	if (value && value[0]) /* not known yet: an empty file, no empty line */
		buf_addf(out, "%s\n", value);
}

void show_id(const struct spot *at, struct buf *out)
{
	buf_addf(out, "%" PRId64 "\n", at->session->id);
}

void show_value(const struct spot *at, struct buf *out)
{
	const struct view *v = at->session->view;
	line(out, v->value[at->file->value]);
	if (at->file->value == VALUE_STATUS && v->uncommitted && *v->uncommitted)
		line(out, v->uncommitted);
}

void show_setting(const struct spot *at, struct buf *out)
{
	line(out, at->session->view->setting[at->file->setting]);
}

void show_approvals(const struct spot *at, struct buf *out)
{
	show_setting(at, out);
	buf_adds(out, at->session->view->grants ? at->session->view->grants : "");
}

void show_approval(const struct spot *at, struct buf *out)
{
	buf_adds(out, at->session->view->approval_text ? at->session->view->approval_text : "");
}

int64_t changed_approval(const struct spot *at)
{
	return at->session->view->approval_ms;
}

void show_verbs(const struct spot *at, struct buf *out)
{
	ctl_verbs(out);
}

int64_t changed_birth(const struct spot *at)
{
	return at->session->view->created_ms;
}

int64_t changed_value(const struct spot *at)
{
	return at->session->view->value_ms[at->file->value];
}

int64_t changed_setting(const struct spot *at)
{
	return at->session->view->setting_ms[at->file->setting];
}

/* ---- of the whole ---- */

static bool made_is_fresh(const struct face *f, const struct made *m)
{
	return m->text.p && m->version == f->version && clock_real_ms() < m->until_ms;
}

static const char *first_word_end(const char *s)
{
	return s + strcspn(s, " :");
}

static void make_status(struct face *f, struct buf *out)
{
	static const char *const words[] = {"preparing", "running", "idle",	"asking",
					    "down",	 "waiting", "shipping", "failed"};
	size_t count[ARRAY_LEN(words)] = {0};
	char when[CLOCK_TEXT];
	for (size_t i = 0; i < f->n_sessions; i++) {
		const char *state = f->sessions[i]->view->value[VALUE_STATUS];
		size_t len = state ? (size_t)(first_word_end(state) - state) : 0;
		for (size_t w = 0; w < ARRAY_LEN(words); w++)
			count[w] += len == strlen(words[w]) && !memcmp(state, words[w], len);
	}
	buf_addf(out, "version %s\npid %d\nstarted %s\nmounted %s\n", BERTHFS_VERSION, (int)getpid(),
		 clock_rfc3339(f->started_ms, when), f->mount);
	buf_addf(out, "sessions %zu\n", f->n_sessions);
	for (size_t w = 0; w < ARRAY_LEN(words); w++)
		buf_addf(out, "%s %zu\n", words[w], count[w]);
	buf_addf(out, "workers %zu\nprojects %zu\n", f->root->workers, f->root->n_projects);
	buf_addf(out, "config %s\n", f->root->draft ? "draft: what was written does not hold; see error" : "ok");
	const struct gateway_view *g = gateway_of(f);
	buf_addf(out, "gateway %s%s\n", g->state ? g->state : "off",
		 g->draft ? "; policy is a draft: what was written does not hold; see error" : "");
}

static void make_index(struct face *f, struct buf *out)
{
	int64_t now = clock_real_ms();
	for (size_t i = 0; i < f->n_sessions; i++) {
		const struct view *v = f->sessions[i]->view;
		char age[CLOCK_TEXT];
		const char *const column[] = {v->name, v->value[VALUE_STATUS], v->value[VALUE_PROJECT],
					      v->value[VALUE_BRANCH], clock_age(now - v->created_ms, age)};
		buf_addf(out, "%" PRId64, v->id);
		for (size_t c = 0; c < ARRAY_LEN(column); c++) {
			CLEAN_FREE char *text = xstrdup(column[c] ? column[c] : "");
			text_one_line(text, SIZE_MAX); /* a path may hold tabs and newlines */
			buf_addf(out, "\t%s", text);
		}
		buf_addc(out, '\n');
	}
}

/* Makes the text anew if something has happened, and notes when it came out different. */
static const struct made *made_now(const struct spot *at, struct made *m, void (*make)(struct face *, struct buf *))
{
	struct face *f = at->f;
	if (made_is_fresh(f, m) || (at->rough && m->text.p))
		return m;
	struct buf text = BUF_INIT;
	make(f, &text);
	buf_reserve(&text, 1);
	if (!m->text.p || text.n != m->text.n || memcmp(text.p, m->text.p, text.n))
		m->changed_ms = m->text.p ? clock_real_ms() : f->version_ms;
	buf_release(&m->text);
	m->text = text;
	m->version = f->version;
	m->until_ms = clock_real_ms() + AGES_MS;
	return m;
}

void show_status(const struct spot *at, struct buf *out)
{
	const struct made *m = made_now(at, &at->f->status, make_status);
	buf_add(out, m->text.p, m->text.n);
}

int64_t changed_status(const struct spot *at)
{
	return made_now(at, &at->f->status, make_status)->changed_ms;
}

void show_index(const struct spot *at, struct buf *out)
{
	const struct made *m = made_now(at, &at->f->index, make_index);
	buf_add(out, m->text.p, m->text.n);
}

int64_t changed_index(const struct spot *at)
{
	return made_now(at, &at->f->index, make_index)->changed_ms;
}

void show_readme(const struct spot *at, struct buf *out)
{
	if (!at->f->readme.n)
		readme_make(&at->f->readme);
	buf_add(out, at->f->readme.p, at->f->readme.n);
}

/* A config that did not hold is shown as it was written, so that an editor can mend it; `status` says so. */
void show_config(const struct spot *at, struct buf *out)
{
	const struct root_view *root = at->f->root;
	buf_adds(out, root->draft ? root->draft : root->config ? root->config : "");
}

int64_t changed_config(const struct spot *at)
{
	return at->f->root->config_ms;
}

/* ---- of the gateway ---- */

/* Until it has been seen for the first time its files are empty, and as old as the mount. */
static int64_t gateway_ms(const struct spot *at, int64_t ms)
{
	return ms ? ms : at->f->started_ms;
}

void show_policy(const struct spot *at, struct buf *out)
{
	const struct gateway_view *g = gateway_of(at->f);
	buf_adds(out, g->draft ? g->draft : g->policy ? g->policy : "");
}

int64_t changed_policy(const struct spot *at)
{
	return gateway_ms(at, gateway_of(at->f)->policy_ms);
}

void show_head(const struct spot *at, struct buf *out)
{
	const char *head = gateway_of(at->f)->head;
	buf_adds(out, head ? head : "");
}

int64_t changed_head(const struct spot *at)
{
	return gateway_ms(at, gateway_of(at->f)->head_ms);
}

void show_tokens(const struct spot *at, struct buf *out)
{
	const char *tokens = gateway_of(at->f)->tokens;
	buf_adds(out, tokens ? tokens : "");
}

int64_t changed_tokens(const struct spot *at)
{
	return gateway_ms(at, gateway_of(at->f)->tokens_ms);
}

/* ---- refusals ---- */

static const struct ring *ring_of(const struct spot *at)
{
	return at->session ? at->session->errors : at->f->errors;
}

void show_errors(const struct spot *at, struct buf *out)
{
	ring_print(ring_of(at), out);
}

int64_t changed_errors(const struct spot *at)
{
	int64_t ms = ring_changed(ring_of(at));
	return ms ? ms : at->session ? at->session->view->created_ms : at->f->started_ms;
}

/* ---- for any row ---- */

const struct text_info *show_text_info(const struct spot *at)
{
	if (at->session)
		return &at->session->view->text[at->file->text];
	const struct template_info *t = file_of_template(at->file) ? template_by_id(at->f, at->number) : NULL;
	if (t)
		return &t->log;
	return at->file->text == TEXT_LEDGER ? &gateway_of(at->f)->ledger : &at->f->root->events;
}

int64_t changed_text(const struct spot *at)
{
	int64_t ms = show_text_info(at)->changed_ms;
	return ms ? ms : at->session ? at->session->view->created_ms : at->f->started_ms;
}

uint64_t show_size(const struct spot *at)
{
	const struct file *file = at->file;
	const struct project_info *project;
	switch (file->kind) {
	case KIND_DIR: return 0;
	case KIND_WORK: return at->node->work->file.size;
	case KIND_ATTACHED: return attach_of(at) ? attach_of(at)->size : 0;
	case KIND_LINK:
		if (at->node)
			return at->node->work->file.size;
		project = project_by_number(at->f, at->number);
		return project ? strlen(project->path) : 0;
	case KIND_SNAPSHOT:
	case KIND_GROWING: return show_text_info(at)->size;
	case KIND_MESSAGE:
	case KIND_WAIT: return 0;
	case KIND_DRAFT: return draft_size(at->node->draft);
	default: break;
	}
	if (file->show == show_index)
		return made_now(at, &at->f->index, make_index)->text.n;
	CLEAN_BUF struct buf text = BUF_INIT;
	file->show(at, &text);
	return text.n;
}

int64_t show_changed(const struct spot *at)
{
	const struct file *file = at->file;
	const struct project_info *project;
	if (file->changed)
		return file->changed(at);
	if (at->node && at->node->draft)
		return draft_changed(at->node->draft);
	if (at->node && at->node->attach && attach_of(at))
		return attach_of(at)->changed_ms;
	if (at->node && at->node->work)
		return at->node->work->file.changed_ms;
	if (file->kind == KIND_DIR && file->inside == PLACE_FILES)
		return at->session->view->text[TEXT_COMMITS].changed_ms;
	if (file->kind == KIND_DIR && file->inside == PLACE_APPROVALS && at->session->view->approval)
		return at->session->view->approval_ms;
	if (file->kind == KIND_DIR && file->inside == PLACE_SESSIONS)
		return at->f->sessions_ms;
	if (file->kind == KIND_DIR && file->inside == PLACE_DROP)
		return at->f->drop_ms;
	if (file->kind == KIND_DIR && file->inside == PLACE_PROJECTS)
		return at->f->root->projects_ms;
	if (file->kind == KIND_DIR && file->inside == PLACE_TEMPLATES)
		return at->f->root->templates_ms;
	if (file->kind == KIND_DIR && file->inside == PLACE_TEMPLATE)
		return changed_template(at);
	if (file->kind == KIND_DIR && file->inside == PLACE_KEYS && gateway_of(at->f)->keys_ms)
		return gateway_of(at->f)->keys_ms;
	if (at->session)
		return at->session->view->changed_ms;
	project = project_by_number(at->f, at->number);
	return project ? project->changed_ms : at->f->started_ms;
}

double show_stays(const struct spot *at)
{
	if (at->file->show != show_index)
		return 1e9;
	int64_t left = at->f->index.until_ms - clock_real_ms(); /* ages in it */
	return left > 0 ? (double)left / 1000 : 0;
}

mode_t show_mode(const struct spot *at)
{
	if (at->node && at->node->draft && draft_session(at->node->draft))
		return 0444; /* what has become a session cannot be written any more */
	if (at->file->kind == KIND_WORK && at->node->work->file.mode & 0111)
		return 0555;
	return at->file->mode;
}
