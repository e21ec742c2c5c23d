/* The console keeper: its tail in memory and its bounded file, whatever a guest prints. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/fd.h"
#include "backend/base/mem.h"
#include "check.h"
#include "sandbox/console.h"
#include "sandbox/keeper.h"

TEST(keeps_tail_and_bounds)
{
	char dir[] = "/tmp/test-console-XXXXXX";
	CHECK(mkdtemp(dir) != NULL);
	CLEAN_FREE char *path = xasprintf("%s/console.log", dir);
	struct console c;
	int pair[2];
	struct stat st;
	CHECK_INT(pipe(pair), 0);
	console_init(&c, pair[0], path);
	console_read(&c); /* nothing there: does not block */
	CHECK_INT(fd_write_full(pair[1], "first\n", 6), 0);
	console_read(&c);
	CHECK_STR(buf_str(&c.tail), "first\n");
	CLEAN_BUF struct buf text = BUF_INIT;
	for (int i = 0; i < 100000; i++) { /* 1.1 MB */
		CLEAN_FREE char *line = xasprintf("line %05d\n", i);
		CHECK_INT(fd_write_full(pair[1], line, strlen(line)), 0);
		if (i % 1000 == 0)
			console_read(&c);
	}
	console_read(&c);
	CHECK(c.tail.n >= KEEPER_CONSOLE_TAIL && c.tail.n <= 4 * KEEPER_CONSOLE_TAIL);
	CHECK(buf_ends(&c.tail, "line 99999\n"));
	CHECK_INT(stat(path, &st), 0);
	CHECK(st.st_size > KEEPER_CONSOLE_TAIL && st.st_size <= 320 * 1024);
	CHECK_INT(file_read(path, &text, 1 << 20, NULL), 0);
	CHECK(buf_ends(&text, "line 99998\nline 99999\n"));
	close(pair[1]);
	console_read(&c);
	CHECK_INT(c.fd, -1);
	console_release(&c);
	CHECK_INT(dir_remove(dir, NULL), 0);
}

CHECK_MAIN()
