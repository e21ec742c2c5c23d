/* Words for a failure. Functions return 0 or -errno and fill the struct err that is passed last;
 * the words say what is wrong and what to do next. A NULL struct err is accepted everywhere. */
#pragma once

struct err {
	int code;	/* errno value, 0 = none */
	char text[600]; /* one line, no newline at its end, cut at a UTF-8 boundary */
};

#define ERR_INIT ((struct err){0})

/* Sets code (positive errno) and words; returns -code, so that `return err_set(...)` works. */
__attribute__((format(printf, 3, 4))) int err_set(struct err *e, int code, const char *fmt, ...);
/* As err_set(), and appends ": " and strerror(code). */
__attribute__((format(printf, 3, 4))) int err_sys(struct err *e, int code, const char *fmt, ...);
/* Puts words before those that are already there; returns -code of e. */
__attribute__((format(printf, 2, 3))) int err_prefix(struct err *e, const char *fmt, ...);
