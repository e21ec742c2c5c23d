/* Limits of output: the session's budget, and the files that are kept in the sandbox. */
#include <dirent.h>

#include "backend/base/utf8.h"
#include "face.h"

TEST(past_the_budget_only_the_ends_of_a_result_are_kept)
{
	face_config("output.limit = 1\n");
	CLEAN_BUF struct buf script = BUF_INIT;
	for (int i = 0; i < 40; i++)
		buf_addf(&script,
			 BASH("echo begin%d; head -c 45000 /dev/zero | tr '\\\\0' '\\\\303'; echo; head -c 200 "
			      "/dev/zero | tr '\\\\0' x | fold -w 40; echo; echo end%d"),
			 i, i);
	buf_adds(&script, BASH("echo a short one") SAY("done"));
	int64_t id = face_session("budget", buf_str(&script), "go");
	CHECK(face_wait_idle(id));
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK(strstr(t, "begin0\n") && strstr(t, "begin39\n") && strstr(t, "\nend39\n") && strstr(t, "a short one"));
	CHECK(strstr(t, "output.limit") != NULL);
	CHECK(utf8_valid(t, strlen(t)));
	CHECK(face.view[id]->text[TEXT_TRANSCRIPT].size < (1 << 20) + 40 * 8192 + 100000);
	face_config("");
}

static int kept(int64_t id)
{
	CLEAN_FREE char *folder = xasprintf("%s/sandboxes/%" PRId64 "/jobs/kept", face.paths.state, id);
	DIR *d = opendir(folder);
	int n = 0;
	for (struct dirent *e; d && (e = readdir(d));)
		n += *e->d_name != '.';
	if (d)
		closedir(d);
	return n;
}

TEST(old_outputs_leave_the_sandbox)
{
	CLEAN_BUF struct buf script = BUF_INIT;
	for (int i = 0; i < 70; i++)
		buf_adds(&script, BASH("seq 3000"));
	buf_adds(&script, SAY("done"));
	int64_t id = face_session("spill", buf_str(&script), "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(kept(id), 64);
	CLEAN_FREE char *last =
		xasprintf("%s/sandboxes/%" PRId64 "/jobs/kept/s%" PRId64 ".70.1.log", face.paths.state, id, id);
	CLEAN_FREE char *old =
		xasprintf("%s/sandboxes/%" PRId64 "/jobs/kept/s%" PRId64 ".6.1.log", face.paths.state, id, id);
	CHECK(file_exists(last) && !file_exists(old));
}

FACE_MAIN()
