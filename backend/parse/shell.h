/* What a line of bash runs, as far as it can be told by reading it. Any thread; no I/O. It is no boundary: a program
 * may run any other. It is meant to be honest: what cannot be told is said to be so. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum shell_sight {
	SHELL_NO,     /* it runs nothing of the kind by itself */
	SHELL_UNSURE, /* it may: names that are made while it runs, scripts, code in other languages... */
	SHELL_YES,
};

/* One simple command of a line. */
struct shell_word {
	char *text; /* without its quotes */
	bool open;  /* a part of it is only known when it runs */
};
struct shell_command {
	struct shell_word *word;
	size_t n;
};
struct shell_line {
	struct shell_command *command; /* each one in it: of pipes, lists, subshells, substitutions, functions */
	size_t n, cap;
	bool unsure; /* some part could not be read */
};
void shell_parse(const char *text, struct shell_line *out);
void shell_release(struct shell_line *l);

/* Does the line run a command that begins with these words (shell patterns; options between them do not count)? */
enum shell_sight shell_runs(const char *line, const char *const *words, size_t n);
/* Does it reach one of these hosts by ssh, scp, sftp, rsync or git (space-separated patterns)? */
enum shell_sight shell_reaches(const char *line, const char *hosts);
