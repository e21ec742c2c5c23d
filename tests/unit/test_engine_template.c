/* Templates with the engine on kind dir: what is made, who uses it, what is dropped, and what happens when it fails. */
#include "face.h"

static const struct template_info *template_of(const char *part)
{
	for (size_t i = 0; face.root && i < face.root->n_templates; i++)
		if (strstr(face.root->templates[i].name, part))
			return &face.root->templates[i];
	return NULL;
}

static const struct template_info *at_commit(const char *ref)
{
	return template_of(sh("cd project && git rev-parse --short=12 %s", ref));
}

static bool wait_status(const char *ref, const char *status)
{
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end; face_drain(100)) {
		const struct template_info *t = at_commit(ref);
		if (status ? t && !strncmp(t->status, status, strlen(status)) : !t)
			return true;
	}
	printf("# the template of %s is not %s\n", ref, status ? status : "gone");
	return false;
}

static int folders(void)
{
	return atoi(sh("ls -d cache/templates/*/[0-9]* 2>/dev/null | wc -l"));
}

static bool wait_folders(int want)
{
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end; face_drain(50))
		if (folders() == want)
			return true;
	printf("# there are %d folders of templates, not %d\n", folders(), want);
	return false;
}

/* The setup counts how often it ran on this chain, and on this machine. */
static void setup(const char *more, const char *message)
{
	sh("cd project && mkdir -p .agents && cat >.agents/setup <<'END'\n"
	   "echo setting up\n"
	   "echo run >>%s/runs\n"
	   "echo run >>made\n"
	   "%s\n"
	   "END\n"
	   "git add . && git commit -qm '%s'",
	   fixture_root, more, message);
}

static int runs(void)
{
	return atoi(sh("touch runs; wc -l <runs"));
}

#define LOOK                                                                                                           \
	"{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"echo made $(grep -c run made); git log --oneline | "  \
	"wc -l; git branch; git status --porcelain\"}}]}\n{\"text\":\"seen\"}\n"

TEST(a_project_without_setup_needs_none)
{
	int64_t id = face_session("plain", LOOK, "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(face.root->n_templates, 0);
	CHECK_INT(folders(), 0);
}

TEST(two_sessions_wait_for_one_build)
{
	setup("while [ ! -e ../../../../../go ]; do sleep 0.05; done", "setup");
	sh("rm -f go");
	int64_t one = face_session("one", LOOK, "go"), two = face_session("two", LOOK, "go");
	CHECK(wait_status("HEAD", "building installing"));
	CHECK(face_wait(one, "preparing"));
	CHECK(face_wait(two, "preparing"));
	sh("touch go");
	CHECK(face_wait_idle(one));
	CHECK(face_wait_idle(two));
	CHECK_INT(runs(), 1);
	CHECK(wait_status("HEAD", "ready"));
	const struct template_info *t = at_commit("HEAD");
	CHECK(t && t->size > 0 && !strncmp(t->name, "project@", 8));
	uint64_t size = t ? t->log.size : 0; /* t goes with the next view of the root */
	const char *log = face_text(t ? t->id : 0, TEXT_TEMPLATE_LOG);
	CHECK_INT(strlen(log), size);
	CHECK(strstr(log, "\nsetting up\n") && strstr(log, " ready\n") && strstr(log, "from the base image"));
	for (int i = 0; i < 2; i++) {
		int64_t id = i ? two : one;
		CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 1\n2\n* main\n?? made"));
	}
	CHECK(strstr(face_text(one, TEXT_LOG), "template: "));
}

TEST(the_next_session_builds_nothing)
{
	int64_t id = face_session("three", LOOK, "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(runs(), 1);
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 1\n"));
}

/* What is not in git stays for the next one; what git has is the new commit's. The branch is the session's. */
TEST(a_new_commit_starts_from_the_newest_one)
{
	sh("cd project && git checkout -q -b other && echo new >b.txt && git rm -q a.txt && git add . && git commit "
	   "-qm next");
	int64_t id = face_session(
		"next",
		"{\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":\"echo made $(grep -c run made); ls; "
		"git branch; git status --porcelain; git rev-parse refs/berthfs/base\"}}]}\n{\"text\":\"seen\"}\n",
		"go");
	CHECK(face_wait_idle(id));
	CHECK_INT(runs(), 2);
	CLEAN_FREE char *want =
		xasprintf("made 2\nb.txt\nmade\n* other\n?? made\n%s", sh("cd project && git rev-parse HEAD"));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), want));
	const struct template_info *t = at_commit("HEAD");
	CHECK(t && strstr(face_text(t->id, TEXT_TEMPLATE_LOG), "from that of an earlier commit"));
	CHECK(!at_commit("main")); /* no session starts from it any more */
	CHECK_INT(folders(), 2);   /* but some have begun as it */
}

TEST(another_setup_is_a_new_beginning)
{
	setup("", "another setup");
	int64_t id = face_session("anew", LOOK, "go");
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 1\n"));
	const struct template_info *t = at_commit("HEAD");
	CHECK(t && strstr(face_text(t->id, TEXT_TEMPLATE_LOG), "from the base image"));
}

/* The setup works on a fresh clone only: the attempt on the older template fails, the one after does not. */
TEST(what_fails_on_an_older_one_begins_anew)
{
	setup("[ $(grep -c run made) = 1 ]", "picky");
	int64_t id = face_session("picky", LOOK, "go");
	CHECK(face_wait_idle(id));
	sh("cd project && echo more >>b.txt && git commit -qam more");
	id = face_session("picky2", LOOK, "go");
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 1\n"));
	const struct template_info *t = at_commit("HEAD");
	const char *log = t ? face_text(t->id, TEXT_TEMPLATE_LOG) : "";
	CHECK(strstr(log, "from that of an earlier commit") && strstr(log, "beginning anew from the base image"));
}

TEST(a_setup_that_fails_is_said_and_can_be_tried_again)
{
	CLEAN_FREE char *more = xasprintf("[ -e %s/repaired ] || { echo it is broken; exit 3; }", fixture_root);
	setup(more, "broken");
	int64_t id = face_session("broken", LOOK, "go");
	CHECK(face_wait(id,
			"failed: setting the project up failed: .agents/setup ended with exit code 3: it is broken"));
	CHECK(wait_status("HEAD", "failed: "));
	CHECK(strstr(face_text(id, TEXT_LOG), "it is broken"));
	const struct template_info *t = at_commit("HEAD");
	CHECK(t && strstr(face_text(t->id, TEXT_TEMPLATE_LOG), "\nit is broken\n"));
	sh("touch repaired");
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 1\n"));
	CHECK(wait_status("HEAD", "ready"));
}

static int drop(int64_t id)
{
	struct request *r = face_request(REQ_TEMPLATE_DROP, 0, "");
	r->number = (uint64_t)id;
	int rc = face_ask(r);
	if (rc)
		face.last_error = r->err;
	request_free(r);
	return rc;
}

TEST(a_dropped_one_goes_with_its_last_user)
{
	const struct template_info *t = at_commit("HEAD");
	int64_t id = t ? t->id : 0;
	CHECK_INT(drop(id), 0);
	CHECK(wait_status("HEAD", NULL));
	CHECK_INT(drop(id), -ENOENT);
	CHECK_INT(atoi(sh("ls -d cache/templates/*/%d | wc -l", (int)id)), 1);
	for (int i = 1; i < FACE_SESSIONS; i++)
		if (face.view[i] && !face.view[i]->destroyed)
			CHECK_INT(face_do(REQ_CTL, i, "destroy force"), 0);
	CHECK(wait_folders(0));
}

/* A build that nobody waits for any more is put away, sandbox and all; one that somebody waits for goes on. */
TEST(a_build_ends_with_those_who_wait_for_it)
{
	setup("while [ ! -e ../../../../../goon ]; do sleep 0.05; done", "slow");
	int before = runs() + 1;
	int64_t one = face_session("wait1", LOOK, "go");
	CHECK(wait_status("HEAD", "building installing"));
	CHECK_INT(drop(at_commit("HEAD")->id), -EBUSY);
	int64_t two = face_session("wait2", LOOK, "go");
	CHECK(face_wait(two, "preparing waiting"));
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end && runs() < before;)
		face_drain(50);
	CHECK_INT(face_do(REQ_CTL, one, "destroy force"), 0);
	sh("touch goon");
	CHECK(face_wait_idle(two));
	CHECK_INT(runs(), before); /* the same run of the setup */
	CHECK_INT(face_do(REQ_CTL, two, "destroy force"), 0);
	sh("rm goon && cd project && echo again >>b.txt && git commit -qam again");
	one = face_session("wait3", LOOK, "go");
	CHECK(wait_status("HEAD", "building installing"));
	CHECK_INT(face_do(REQ_CTL, one, "destroy force"), 0);
	CHECK(wait_status("HEAD", NULL));
	int64_t end = clock_mono_ms() + FACE_WAIT_MS;
	while (clock_mono_ms() < end && *sh("ls state/sandboxes | awk 'length($0) > 6'"))
		face_drain(50);
	CHECK_STR(sh("ls state/sandboxes | awk 'length($0) > 6'"), "");
}

/* The daemon ends in the middle and comes back: the setup's own job has gone on. */
TEST(a_restarted_daemon_goes_on_with_a_build)
{
	sh("rm -f goon; cd project && echo restart >>b.txt && git commit -qam restart");
	int before = runs() + 1;
	int64_t id = face_session("restart", LOOK, "go");
	CHECK(wait_status("HEAD", "building installing"));
	int64_t end = clock_mono_ms() + FACE_WAIT_MS;
	while (clock_mono_ms() < end && !strstr(face_text(at_commit("HEAD")->id, TEXT_TEMPLATE_LOG), "setting up"))
		face_drain(50);
	while (clock_mono_ms() < end && runs() < before)
		face_drain(50);
	face_stop();
	CHECK_INT(face_start(), 0);
	sh("touch goon");
	CHECK(face_wait_idle(id));
	CHECK_INT(runs(), before);
	const char *log = face_text(at_commit("HEAD")->id, TEXT_TEMPLATE_LOG), *first = strstr(log, "setting up");
	CHECK(first && !strstr(first + 1, "setting up")); /* its output stands once */
}

/* Nothing runs yet that `stop` could end, and a setup of an hour must not begin anew for it. */
TEST(stop_leaves_a_build_alone)
{
	sh("rm -f goon; cd project && echo stop >>b.txt && git commit -qam stop");
	int before = runs() + 1;
	int64_t id = face_session("stopped", LOOK, "go");
	CHECK(wait_status("HEAD", "building installing"));
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end && runs() < before;)
		face_drain(50);
	int64_t t = at_commit("HEAD")->id;
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	for (int64_t end = clock_mono_ms() + 1500; clock_mono_ms() < end;) /* it would be seen within a second */
		face_drain(50);
	sh("touch goon");
	CHECK(face_wait_idle(id));
	CHECK_INT(runs(), before);
	CHECK(at_commit("HEAD") && at_commit("HEAD")->id == t);
}

/* The tool daemon of the build is killed: nobody can say what its setup has done. */
TEST(a_build_whose_sandbox_dies_begins_anew)
{
	sh("rm -f goon; cd project && echo dies >>b.txt && git commit -qam dies");
	int64_t id = face_session("dies", LOOK, "go");
	CHECK(wait_status("HEAD", "building installing"));
	int64_t end = clock_mono_ms() + FACE_WAIT_MS;
	while (clock_mono_ms() < end && !strstr(face_text(at_commit("HEAD")->id, TEXT_TEMPLATE_LOG), "setting up"))
		face_drain(50);
	int64_t box = ((int64_t)1 << 40) + at_commit("HEAD")->id;
	CLEAN_FREE char *pid = xasprintf("%s/sandboxes/%" PRId64 "/tools.pid", face.paths.state, box);
	CLEAN_BUF struct buf b = BUF_INIT;
	CHECK_INT(file_read(pid, &b, 100, NULL), 0);
	CHECK(atoi(buf_str(&b)) > 1 && !kill(atoi(buf_str(&b)), SIGKILL));
	sh("touch goon");
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(at_commit("HEAD")->id, TEXT_TEMPLATE_LOG), "beginning anew"));
	CHECK(wait_status("HEAD", "ready"));
}

/* The age counts from the base image, not from the newest one. */
TEST(a_chain_of_a_day_is_not_extended)
{
	face_stop();
	sh("python3 -c \"import sqlite3; c = sqlite3.connect('state/berthfs.db'); "
	   "c.execute('UPDATE templates SET origin_ms=origin_ms-86400000'); c.commit()\"");
	CHECK_INT(face_start(), 0);
	sh("cd project && echo old >>b.txt && git commit -qam old");
	int64_t id = face_session("old", LOOK, "go");
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 1\n"));
	const struct template_info *t = at_commit("HEAD");
	CHECK(t && strstr(face_text(t->id, TEXT_TEMPLATE_LOG), "from the base image"));
	sh("cd project && echo young >>b.txt && git commit -qam young");
	id = face_session("young", LOOK, "go");
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 2\n"));
}

/* An earlier program had them in the state folder, where they stay. */
TEST(one_in_the_state_folder_is_used)
{
	face_stop();
	sh("mkdir state/templates && mv cache/templates/*/[0-9]* state/templates");
	CHECK_INT(face_start(), 0);
	int before = runs();
	int64_t id = face_session("there", LOOK, "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(runs(), before);
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 2\n"));
	sh("cd project && echo here >>b.txt && git commit -qam here");
	id = face_session("here", LOOK, "go");
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 3\n"));
	CHECK_INT(folders(), 1);
}

TEST(a_cleared_cache_is_no_more_than_work)
{
	int before = runs();
	sh("rm -r cache/templates");
	int64_t id = face_session("cleared", LOOK, "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(runs(), before + 1);
	CHECK(strstr(face_text(id, TEXT_TRANSCRIPT), "made 1\n"));
	CHECK(wait_status("HEAD", "ready"));
	CHECK_INT(folders(), 1);
}

TEST(nothing_is_left)
{
	for (int i = 1; i < FACE_SESSIONS; i++)
		if (face.view[i] && !face.view[i]->destroyed)
			face_do(REQ_CTL, i, "destroy force");
	const struct template_info *t = at_commit("HEAD");
	CHECK_INT(t ? drop(t->id) : -1, 0);
	CHECK(wait_folders(0));
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; clock_mono_ms() < end && *sh("ls state/templates");)
		face_drain(50);
	CHECK_STR(sh("ls state/templates"), "");
}

FACE_MAIN()
