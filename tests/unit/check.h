/* The whole unit-test frame: TEST(name) { ... CHECK(...) } and one CHECK_MAIN() a file. A failed check prints its place
 * and lets the other tests run; the exit code is 1 if any failed. Each test prints "ok NAME" or "not ok NAME". */
#pragma once
#include <stdio.h>
#include <string.h>

struct check_test {
	const char *name;
	void (*run)(void);
	struct check_test *next;
};
/* unused: some programs take CHECK or the tests alone */
__attribute__((unused)) static struct check_test *check_tests, **check_tail = &check_tests;
__attribute__((unused)) static int check_failed;

#define TEST(id)                                                                                                       \
	static void test_##id(void);                                                                                   \
	__attribute__((constructor)) static void reg_##id(void)                                                        \
	{                                                                                                              \
		static struct check_test t = {.name = #id, .run = test_##id};                                          \
		*check_tail = &t;                                                                                      \
		check_tail = &t.next;                                                                                  \
	}                                                                                                              \
	static void test_##id(void)

#define CHECK(cond)                                                                                                    \
	do {                                                                                                           \
		if (!(cond)) {                                                                                         \
			check_failed = 1;                                                                              \
			printf("# %s:%d: not true: %s\n", __FILE__, __LINE__, #cond);                                  \
		}                                                                                                      \
	} while (0)

#define CHECK_INT(a, b)                                                                                                \
	do {                                                                                                           \
		long long a_ = (a), b_ = (b);                                                                          \
		if (a_ != b_) {                                                                                        \
			check_failed = 1;                                                                              \
			printf("# %s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #a, a_, b_);                     \
		}                                                                                                      \
	} while (0)

#define CHECK_STR(a, b)                                                                                                \
	do {                                                                                                           \
		const char *a_ = (a), *b_ = (b);                                                                       \
		if (!a_ || !b_ || strcmp(a_, b_)) {                                                                    \
			check_failed = 1;                                                                              \
			printf("# %s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, #a, a_ ? a_ : "(null)",      \
			       b_ ? b_ : "(null)");                                                                    \
		}                                                                                                      \
	} while (0)

#define CHECK_MAIN() CHECK_RUN(main)
/* The same as a function of another name. */
#define CHECK_RUN(fn)                                                                                                  \
	int fn(void);                                                                                                  \
	int fn(void)                                                                                                   \
	{                                                                                                              \
		int bad = 0;                                                                                           \
		for (struct check_test *t = check_tests; t; t = t->next) {                                             \
			check_failed = 0;                                                                              \
			t->run();                                                                                      \
			printf("%s %s\n", check_failed ? "not ok" : "ok", t->name);                                    \
			fflush(stdout);                                                                                \
			bad |= check_failed;                                                                           \
		}                                                                                                      \
		return bad;                                                                                            \
	}
