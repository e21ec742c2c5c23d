/* An agent's prompt as a durable job in the sandbox: pinned, started, read as it goes, collected. The job has an id and
 * the place in its output up to which everything is committed is committed with it, so a daemon that was killed reads
 * on from there. Worker threads. Must never tell the agent a key: what it needs is in the sandbox's environment. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agents.h"
#include "attach.h"
#include "backend/base/clock.h"
#include "backend/base/mem.h"
#include "backend/base/text.h"
#include "backend/base/utf8.h"
#include "context.h"
#include "gate_link.h"
#include "guest.h"
#include "guest_kinds.h"
#include "guest_take.h"
#include "killpoint.h"
#include "providers.h"
#include "tool.h"

#define FOLDER	   ".cache/berthfs/agent" /* below home: prompts, and what agents say on standard error */
#define READ_MAX   (256 << 10)		  /* bytes of output at once */
#define TAKE_MS	   100			  /* what was said is committed at most so often (spec) */
#define POLL_MS	   500
#define STOP_MS	   5000 /* `stop` waits no longer than this for a sandbox to end the agent */
#define CUTS_MAX   3	/* times in a row that a prompt is begun anew because its sandbox went away */
#define ERROR_TAIL 2000 /* bytes of standard error that tell why */

struct guest {
	struct worker *w;
	struct guest_run *run;
	const struct guest_kind *kind;
	struct guest_reader reader;
	struct buf said;
	struct buf fault; /* what it said last of a failure, "" after a text */
	bool talked;	  /* its conversation was there, or has begun */
	bool heard;	  /* it has said or done anything */
	char *job;
	int64_t taken_ms; /* CLOCK_MONOTONIC of the last commit */
	session_fn *final;
};

/* ---- judging ---- */

bool guest_is(const char *agent)
{
	return *agent && strcmp(agent, GUEST_NONE) != 0;
}

static bool speaks(const struct guest_kind *k, const char *kind)
{
	const char *p = strstr(k->speaks, kind);
	return p && strchr(" ", p[strlen(kind)]);
}

static int check_model(const struct config *c, const struct guest_kind *k, const char *model, struct model_info *m,
		       struct err *err)
{
	if (!*model)
		return err_set(
			err, EINVAL,
			"no model is set for %s: write a key to gateway/keys/anthropic or gateway/keys/openai, or "
			"`model = NAME` to config (berthfs models lists what there is)",
			k->name);
	int rc = models_find(c, model, m, err);
	if (rc)
		return err_prefix(err, "agent: %s needs a model that the gateway serves", k->name);
	if (!speaks(k, m->provider.kind))
		return err_set(err, EINVAL,
			       "%s speaks to providers of kind %s, and %s is served by %s, which is of kind %s",
			       k->name, k->speaks, model, m->provider.name, m->provider.kind);
	return 0;
}

int guest_check(const struct config *c, const char *agent, const char *model, const char *sandbox,
		const char *approvals, struct err *err)
{
	struct model_info m;
	const struct guest_kind *k = guest_kind(agent);
	if (!guest_is(agent))
		return 0;
	if (!strcmp(sandbox, "host"))
		return err_set(err, EINVAL,
			       "an agent of its own runs only in a sandbox that holds it; sandbox: host is none");
	if (!strcmp(approvals, "on"))
		return err_set(
			err, EINVAL,
			"approvals cannot be asked for an agent of its own: nobody sees its calls before they run; "
			"set approvals to off");
	return k->name ? check_model(c, k, model, &m, err) : 0;
}

/* ---- the prompt ---- */

/* What a user sees of the engine's system prompt holds for any agent; it is told once in a conversation. */
static int preamble(struct guest *g, struct buf *out, struct err *err)
{
	CLEAN_BUF struct buf agents = BUF_INIT;
	int rc = g->kind->reads_agents ? 0 : agents_root(g->w, &agents, err);
	if (rc)
		return rc;
	struct config *c = backend_config(g->w->b);
	CLEAN_FREE char *words = context_prompt(g->w->s->clone, false, c->value[CONFIG_PROTECTED], buf_str(&agents));
	config_put(c);
	buf_addf(out, "%s\nThis is what the user asks:\n\n", words);
	return 0;
}

static int prompt(struct guest *g, struct buf *out, struct err *err)
{
	struct rows r;
	struct context c = {0};
	int rc = g->kind->name && !*g->run->talk ? preamble(g, out, err) : 0;
	if (!rc && g->run->again && *g->run->talk)
		buf_adds(out, "You were interrupted while you worked on this. Look at what is done already, then go on "
			      "with it:\n\n");
	rc = rc ? rc
		: db_query(g->w->db, &r, err,
			   "SELECT kind, body FROM entries WHERE session=? AND seq>? AND seq<=? AND kind IN "
			   "('user','ship') ORDER BY seq",
			   "iii", g->w->id, g->run->from, g->run->cutoff);
	if (rc)
		return rc;
	while (rows_next(&r))
		context_words(&c, row_text(&r, 0), row_text(&r, 1));
	rc = rows_end(&r);
	for (size_t i = 0; i < c.n; i++) {
		while (c.items[i].n_images) /* an agent is given text alone */
			context_image_lost(&c.items[i], 0, "this agent is given text alone");
		buf_addf(out, "%s%s", i ? "\n\n" : "", c.items[i].text);
	}
	context_release(&c);
	if (!buf_ends(out, "\n"))
		buf_addc(out, '\n');
	return rc;
}

/* ---- starting ---- */

static char *path_of(const struct guest *g, const char *what)
{
	return xasprintf("%s/" FOLDER "/%" PRId64 ".%s", env_home(g->w->env), g->run->n, what);
}

/* The gateway has to know the model's provider before the agent asks. name: what it is called there. */
static int tell_gateway(struct guest *g, const struct config *c, const struct model_info *m, char name[PROVIDER_POLICY],
			struct err *err)
{
	int rc = g->w->b->link ? gate_sandbox(g->w, err) : 0;
	return rc || !g->w->b->link ? rc : providers_tell(g->w->b, c, &m->provider, name, err);
}

/* bash puts the streams in their places; standard error is apart, so that it never stands inside a line. */
static void command_line(const struct guest *g, const struct guest_start *s, const char *in, const char *errors,
			 struct guest_words *argv)
{
	guest_words_add(argv, "/bin/bash");
	guest_words_add(argv, "-c");
	if (g->kind->filter)
		guest_words_add(argv,
				"set -o pipefail; i=$1 e=$2 f=$3; shift 3; \"$@\" <\"$i\" 2>\"$e\" | sed -uE \"$f\"");
	else
		guest_words_add(argv, "i=$1 e=$2; shift 3; exec \"$@\" <\"$i\" 2>\"$e\"");
	guest_words_add(argv, "bash");
	guest_words_add(argv, "%s", in);
	guest_words_add(argv, "%s", errors);
	guest_words_add(argv, "%s", g->kind->filter ? g->kind->filter : "");
	g->kind->argv(s, argv);
}

static int launch(struct guest *g, const struct guest_start *s, struct err *err)
{
	struct env *env = g->w->env;
	CLEAN_FREE char *in = path_of(g, "in"), *errors = path_of(g, "err");
	CLEAN_BUF struct buf text = BUF_INIT;
	CLEAN_BUF struct buf file = BUF_INIT;
	struct guest_words argv = {0}, pairs = {0};
	int rc = prompt(g, &text, err);
	rc = rc ? rc : env_write(env, in, buf_str(&text), text.n, ENV_WRITE_PARENTS, err);
	if (!rc && g->kind->file) {
		CLEAN_FREE char *path = xasprintf("%s/%s", s->home, g->kind->file);
		g->kind->file_text(s, &file);
		rc = env_write(env, path, buf_str(&file), file.n, ENV_WRITE_PARENTS, err);
	}
	command_line(g, s, in, errors, &argv);
	g->kind->environ(s, &pairs);
	struct env_exec exec = {.job = g->job,
				.argv = (const char *const *)argv.p,
				.cwd = g->w->s->clone,
				.environ = (const char *const *)pairs.p};
	rc = rc ? rc : env_start(env, &exec, err);
	guest_words_release(&argv);
	guest_words_release(&pairs);
	return rc;
}

static int start(struct guest *g, struct err *err)
{
	struct model_info m;
	char provider[PROVIDER_POLICY] = "";
	struct worker *w = g->w;
	struct config *c = backend_config(w->b);
	bool served = models_find(c, g->run->model, &m, NULL) == 0;
	int rc = guest_check(c, g->run->agent, g->run->model, w->s->sandbox, w->s->setting[SETTING_APPROVALS], err);
	if (!rc && served)
		rc = tell_gateway(g, c, &m, provider, err);
	config_put(c);
	const char *url = env_gateway_url(w->env);
	if (!rc && g->kind->name && !url)
		rc = err_set(err, EOPNOTSUPP, "%s needs the gateway, which this sandbox cannot reach", g->kind->name);
	struct guest_start s = {.url = url ? url : "",
				.home = env_home(w->env),
				.m = served ? &m : NULL,
				.provider = provider,
				.talk = g->run->talk,
				.n = g->run->prompts,
				.command = g->run->agent};
	killpoint("guest.pinned");
	rc = rc ? rc : launch(g, &s, err);
	if (!rc)
		killpoint("guest.started");
	return rc;
}

/* ---- reading ---- */

/* A failure that is followed by text was none: agents try again by themselves. */
static void note_faults(struct guest *g, size_t from)
{
	for (size_t i = from; i < g->reader.n; i++)
		for (size_t k = 0; k < g->reader.lines[i].n; k++) {
			const struct guest_event *e = &g->reader.lines[i].events[k];
			if (e->what == GUEST_FAULT || e->what == GUEST_TEXT)
				buf_reset(&g->fault);
			if (e->what == GUEST_FAULT)
				buf_adds(&g->fault, e->text);
			g->talked = g->talked || e->what == GUEST_TALK;
			g->heard = g->heard || e->what != GUEST_NOTE;
		}
}

static int take_lines(struct guest *g, size_t n, enum guest_end end, const char *why, struct err *err)
{
	struct guest_take t = {.b = g->w->b,
			       .run = g->run,
			       .lines = g->reader.lines,
			       .n = n,
			       .offset = guest_offset(&g->reader, n),
			       .pending = end == GUEST_GOES_ON ? guest_pending(&g->reader) : "",
			       .said = &g->said,
			       .end = end,
			       .final = g->final,
			       .lost = end == GUEST_FAILED && *g->run->talk && !g->talked,
			       .why = why};
	killpoint("guest.take");
	int rc = worker_commit(g->w, guest_take_fn, &t, err);
	if (!rc)
		killpoint("guest.taken");
	if (!rc)
		guest_drop(&g->reader, n);
	g->taken_ms = clock_mono_ms();
	return rc;
}

/* All output that is there. more: some was. */
static int read_output(struct guest *g, bool *more, struct err *err)
{
	CLEAN_BUF struct buf part = BUF_INIT;
	size_t before = g->reader.n;
	int rc = env_output(g->w->env, g->job, guest_fed(&g->reader), READ_MAX, &part, err);
	*more = !rc && part.n;
	if (*more)
		guest_feed(&g->reader, part.p, part.n);
	note_faults(g, before);
	return rc;
}

/* The connection is opened again; the job may have gone on meanwhile. */
static int again(struct guest *g, const char *why, struct err *err)
{
	worker_log(g->w, "the connection to the sandbox was lost (%s); taking it up again", why);
	worker_env_drop(g->w);
	return worker_env(g->w, err);
}

/* Until the job does not run any more and all that it said is fed. */
static int follow(struct guest *g, struct env_job *job, struct err *err)
{
	bool more = false, dirty = false;
	for (int lost = 0;;) {
		if (atomic_load(&g->w->cancel))
			return -ECANCELED;
		int rc = env_poll(g->w->env, g->job, guest_fed(&g->reader), dirty ? TAKE_MS : POLL_MS, job, err);
		rc = rc || job->state == ENV_JOB_UNKNOWN ? rc : read_output(g, &more, err);
		if (tool_env_lost(rc) && rc != -ECANCELED && lost++ < CUTS_MAX) {
			struct err why = *err;
			rc = again(g, why.text, err);
			if (!rc)
				continue;
		}
		if (rc)
			return rc;
		dirty = dirty || more;
		if (dirty && clock_mono_ms() - g->taken_ms >= TAKE_MS) {
			rc = take_lines(g, guest_ready(&g->reader), GUEST_GOES_ON, "", err);
			dirty = false;
			lost = 0;
		}
		if (rc || (job->state != ENV_JOB_RUNNING && !more))
			return rc;
	}
}

/* ---- the end ---- */

static void error_tail(struct guest *g, struct buf *out)
{
	struct env_stat st = {0};
	CLEAN_BUF struct buf raw = BUF_INIT;
	CLEAN_FREE char *path = path_of(g, "err");
	if (env_stat(g->w->env, path, &st, NULL))
		return;
	free(st.real);
	uint64_t from = st.size > ERROR_TAIL ? st.size - ERROR_TAIL : 0;
	if (env_read(g->w->env, path, from, ERROR_TAIL, &raw, NULL))
		return;
	utf8_clean(out, buf_str(&raw), raw.n);
}

/* Its own words, or the last line that it printed on standard error. */
static void own_words(struct guest *g, struct buf *out)
{
	CLEAN_BUF struct buf tail = BUF_INIT;
	const char *words = buf_str(&g->fault);
	if (!*words) {
		error_tail(g, &tail);
		while (tail.n && strchr("\r\n \t", tail.p[tail.n - 1]))
			buf_cut(&tail, tail.n - 1);
		const char *line = strrchr(buf_str(&tail), '\n');
		words = line ? line + 1 : buf_str(&tail);
	}
	CLEAN_FREE char *one = xstrndup(words, utf8_prefix(words, strnlen(words, 400), NULL));
	text_one_line(one, SIZE_MAX);
	if (*one)
		buf_addf(out, ": %s", one);
}

/* NULL: it has done its work. malloc'd. A known agent begins with an event whatever it does: one that ends well without
 * any has not looked at the prompt (pi does so when its conversation belongs to another folder). */
static char *failure(struct guest *g, const struct env_job *job)
{
	CLEAN_BUF struct buf b = BUF_INIT;
	const char *name = g->kind->name ? g->kind->name : "the agent's command";
	bool silent = g->kind->name && !g->heard;
	if (job->state == ENV_JOB_EXITED && !job->exit_code && !job->killed && !g->fault.n && !silent)
		return NULL;
	if (job->overflow)
		buf_addf(&b, "%s was ended: its output grew too large", name);
	else if (job->full)
		buf_addf(&b, "%s was ended: " ENV_FULL, name);
	else if (job->killed || job->timed_out)
		buf_addf(&b, "%s was ended from outside", name);
	else if (job->exit_code == 127 && g->kind->name)
		buf_addf(&b, "%s is not installed in the sandbox: contrib/agents/%s says how", name, name);
	else if (job->exit_code)
		buf_addf(&b, "%s has ended with exit code %d", name, job->exit_code);
	else
		buf_addf(&b, silent ? "%s has ended without a word of the prompt" : "%s has failed", name);
	if (job->exit_code != 127 || !g->kind->name)
		own_words(g, &b);
	return buf_take(&b);
}

static char *more(char *words, const char *and)
{
	char *all = xasprintf("%s%s", words, and);
	free(words);
	return all;
}

static int finish(struct guest *g, const struct env_job *job, enum turn_end *end, struct err *err)
{
	struct worker *w = g->w;
	size_t before = g->reader.n;
	guest_feed_end(&g->reader);
	note_faults(g, before);
	if (job->state == ENV_JOB_LOST || job->state == ENV_JOB_UNKNOWN) {
		int rc = take_lines(g, g->reader.n, GUEST_CUT,
				    "the sandbox was restarted while the agent ran; it is told to go on", err);
		*end = TURN_MORE;
		if (!rc)
			env_ack(w->env, g->job, false, NULL, NULL);
		if (!rc && w->s->attempt + 1 >= CUTS_MAX)
			rc = err_set(err, EIO, "the sandbox went away %d times while the agent worked on this",
				     CUTS_MAX);
		return rc;
	}
	CLEAN_FREE char *why = failure(g, job);
	if (why && *g->run->talk && !g->talked && g->kind->name)
		why = more(why, "; its conversation was not taken up, so the next try begins a new one");
	int rc = take_lines(g, g->reader.n, why ? GUEST_FAILED : GUEST_ANSWERED, why, err);
	if (rc)
		return rc;
	killpoint("guest.done");
	env_ack(w->env, g->job, false, NULL, NULL); /* if it is lost, the job stays until the sandbox ends */
	*end = TURN_ANSWERED;
	return why ? err_set(err, EIO, "%s", why) : 0;
}

/* What it has said is kept, also when the user stops it. */
static int cancelled(struct guest *g, int rc)
{
	if (!atomic_load(&g->w->halt)) {
		struct err why = ERR_INIT;
		take_lines(g, g->reader.n, GUEST_GOES_ON, "", &why);
	}
	return rc;
}

static int work(struct guest *g, enum turn_end *end, struct err *err)
{
	struct env_job job = {0};
	int rc = worker_env(g->w, err);
	rc = rc ? rc : env_poll(g->w->env, g->job, 0, 0, &job, err);
	if (!rc && job.state == ENV_JOB_UNKNOWN)
		rc = start(g, err);
	rc = rc ? rc : follow(g, &job, err);
	if (rc == -ECANCELED || (rc && atomic_load(&g->w->cancel)))
		return cancelled(g, -ECANCELED);
	return rc ? rc : finish(g, &job, end, err);
}

int guest_run(struct worker *w, session_fn *final, enum turn_end *end, struct err *err)
{
	struct guest_pin p = {.w = w};
	int rc = worker_env(w, err);
	rc = rc ? rc : attach_deliver(w, err);
	rc = rc ? rc : worker_commit(w, guest_pin_fn, &p, err);
	*end = p.nothing ? TURN_STOPPED : TURN_MORE;
	if (!rc && !p.nothing && !p.again) {
		struct guest g = {.w = w,
				  .run = &p.run,
				  .kind = guest_kind(p.run.agent),
				  .talked = p.run.offset > 0,
				  .heard = p.run.offset > 0,
				  .final = final};
		g.job = xasprintf("s%" PRId64 ".a%" PRId64, w->id, p.run.n);
		guest_reader_init(&g.reader, g.kind->format, p.run.offset);
		rc = work(&g, end, err);
		guest_reader_release(&g.reader);
		buf_release(&g.said);
		buf_release(&g.fault);
		free(g.job);
	}
	guest_run_release(&p.run);
	return rc;
}

int guest_kill(struct worker *w, struct err *err)
{
	int64_t n = db_int(
		w->db, 0,
		"SELECT requests.n FROM requests JOIN guests USING(session, n) WHERE session=? AND state='pinned'", "i",
		w->id);
	CLEAN_FREE char *job = xasprintf("s%" PRId64 ".a%" PRId64, w->id, n);
	struct err why = ERR_INIT;
	if (n && sandbox_state(w->b->paths, w->s->sandbox, w->id) == SANDBOX_RUNNING &&
	    env_end_job(w->b->paths, w->s->sandbox, w->id, job, STOP_MS, &why))
		worker_log(w, "the agent may still run in the sandbox: %s", why.text);
	return 0;
}

static int forget_fn(struct tx *tx, struct session *s, void *arg, struct err *err)
{
	return db_run(tx->db, err, "UPDATE guest_talks SET talk='' WHERE session=?", "i", s->id);
}

int guest_forget(struct worker *w, struct err *err)
{
	return worker_commit(w, forget_fn, NULL, err);
}
