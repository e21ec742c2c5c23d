/* README of the mounted tree: a few words and then the table of tree.c, so that it cannot say what is not so. Pure. */
#include <string.h>

#include "show.h"
#include "tree.h"

static const char begin[] =
	"Every coding-agent session is a directory of plain files.\n"
	"\n"
	"  start      printf 'Fix the login test.\\n' > sessions/new/fix-login     (from inside a git checkout)\n"
	"  answer     cat sessions/fix-login/wait/reply                           (blocks until the model is done)\n"
	"  go on      echo 'And add a test.' >> sessions/fix-login/input\n"
	"  look       cat sessions/fix-login/transcript sessions/fix-login/diff\n"
	"  push       echo > sessions/fix-login/ship; cat sessions/fix-login/wait/shipped\n"
	"  end        rmdir sessions/fix-login\n"
	"  refused?   cat error\n"
	"\n"
	"A new session's file may begin with lines `project: ~/code/app`, `model: ...`, `sandbox: ...` between two --- "
	"lines.\n";

static void rows(struct buf *out, enum place place, const char *prefix)
{
	for (unsigned i = 1; i < tree_rows; i++) {
		const struct file *file = &tree[i];
		if (file->place != place || !file->about)
			continue;
		size_t n = strlen(prefix) + strlen(file->name) + (file->kind == KIND_DIR);
		buf_addf(out, "  %s%s%s%*s %s\n", prefix, file->name, file->kind == KIND_DIR ? "/" : "",
			 n < 16 ? 16 - (int)n : 0, "", file->about);
	}
}

void readme_make(struct buf *out)
{
	buf_adds(out, begin);
	rows(out, PLACE_ROOT, "");
	rows(out, PLACE_SESSIONS, "sessions/");
	buf_adds(out, "In sessions/NAME:\n");
	rows(out, PLACE_SESSION, "");
}
