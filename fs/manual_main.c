/* Prints berthfs(5) at build time, from the template whose name is given. */
#include <stdio.h>
#include <sysexits.h>

#include "backend/base/fd.h"
#include "manual.h"

int main(int argc, char **argv)
{
	struct err err = ERR_INIT;
	CLEAN_BUF struct buf template = BUF_INIT;
	CLEAN_BUF struct buf page = BUF_INIT;
	if (argc != 2 || file_read(argv[1], &template, 1 << 20, &err)) {
		fprintf(stderr, "manual: %s\n", argc == 2 ? err.text : "usage: manual TEMPLATE");
		return EX_USAGE;
	}
	manual_make(buf_str(&template), &page);
	return fputs(buf_str(&page), stdout) < 0 || fflush(stdout) ? EX_IOERR : EX_OK;
}
