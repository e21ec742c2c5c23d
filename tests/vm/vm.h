/* What the tests with real VMs share: an instance of its own in a temporary folder that uses the machine's base image,
 * and short forms of what they do again and again. Everything that is started is ended by instance_end(). */
#pragma once
#include "backend/base/buf.h"
#include "sandbox/sandbox.h"

struct instance {
	char root[64]; /* temporary folder */
	struct paths paths;
	struct buf progress; /* the lines that sandbox_up() gave */
	pid_t cleaner;	     /* ends what is left, should the test be killed */
	int cleaner_fd;
};

extern struct instance here;

int instance_begin(void); /* 0 or 1 with words on standard output; builds the base image if there is none */
void instance_end(void);
int up(int64_t id, int timeout_ms, struct err *err);
int up_from(int64_t id, const char *template, int timeout_ms, struct err *err); /* see sandbox_spec.template */
/* Makes the disk of a sandbox from an image of its own that is broken: its ramdisk has no modules, so that the guest
 * waits for its disk, or its kernel is an empty file. */
bool broken_image(int64_t id, bool empty_kernel);
bool came_up(int64_t id); /* within five minutes; else its words are printed */
#define must_up(id) CHECK(came_up(id))
/* Pauses or hibernates it. On a busy machine the guest takes its time to close its end of the last connection, and
 * until then it is refused: it is asked again for five minutes. 0, or -errno in words. */
typedef int rest_fn(const struct paths *paths, const char *kind, int64_t id, struct err *err);
int put_to_rest(rest_fn *rest, int64_t id, struct err *err);
/* Runs a shell line in the sandbox and returns its exit code; out is made anew. */
int shell(int64_t id, const char *line, struct buf *out);
/* Waits until one that is paused has given memory back and does nothing any more; false after five minutes. */
bool gave_back(int64_t id);
/* How many processes of QEMU (true) or keepers (false) of this instance there are; the first one's pid in *pid. */
int count(bool qemu, int64_t id, int *pid);
/* Waits until there is none (id 0: of any sandbox); false after two minutes. */
bool gone(int64_t id);
/* The main function of such a program, which is its own keeper: tests between instance_begin() and instance_end(). */
int vm_main(int argc, char **argv, int (*tests)(void));
#define VM_MAIN(tests)                                                                                                 \
	int main(int argc, char **argv)                                                                                \
	{                                                                                                              \
		return vm_main(argc, argv, tests);                                                                     \
	}
