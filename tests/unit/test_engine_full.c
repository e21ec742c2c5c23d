/* A full disk: the state folder is a small tmpfs of this process' own mount namespace. What cannot be kept is refused
 * in words, verbs still work out of the reserve, and work goes on when there is room. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "face.h"

/* Fills the disk to the last byte. */
static void fill(void)
{
	CLEAN_FREE char *path = at("state/filler");
	CLEAN_FREE char *block = xcalloc(1, 4096);
	CLEAN_FD int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	while (write(fd, block, 4096) == 4096)
		;
	while (write(fd, block, 1) == 1)
		;
}

static void room(void)
{
	CLEAN_FREE char *path = at("state/filler");
	unlink(path);
}

static bool reserve(void)
{
	CLEAN_FREE char *path = at("state/reserve");
	return file_exists(path);
}

static int64_t held(const char *name, const char *rest)
{
	CLEAN_FREE char *go = at("go");
	CLEAN_FREE char *script = xasprintf("{\"text\":\"w\",\"tools\":[{\"name\":\"bash\",\"input\":{\"command\":"
					    "\"while [ ! -e %s ]; do sleep 0.02; done; "
					    "echo ran >> ../count; cat ../count\"}}]}\n%s",
					    go, rest);
	unlink(go);
	int64_t id = face_session(name, script, "begin");
	CHECK(face_wait(id, "running bash"));
	return id;
}

/* Sends messages until the disk is found to be full. */
static int until_full(int64_t id)
{
	int sent = 0;
	CLEAN_FREE char *big = xcalloc(1, 50001);
	memset(big, 'm', 50000);
	while (!face_do(REQ_MESSAGE, id, big) && sent < 1000)
		sent++;
	return sent;
}

TEST(verbs_and_words_work_on_a_full_disk)
{
	int64_t id = held("full", SAY("first") SAY("second")), other = face_session("other", SAY("x"), "go");
	CHECK(face_wait_idle(other));
	CHECK(reserve());
	fill();
	int sent = until_full(id);
	CHECK(strstr(face.last_error.text, "full") != NULL);
	CHECK(!reserve());
	for (int k = 2; k < 2 + sent; k++) {
		CLEAN_FREE char *verb = xasprintf("withdraw %d", k);
		CHECK_INT(face_do(REQ_CTL, id, verb), 0);
	}
	CHECK_INT(face_do(REQ_CTL, id, "stop"), 0);
	CHECK_INT(face_do(REQ_CTL, other, "destroy force"), 0);
	CHECK_INT(face_do(REQ_MESSAGE, id, "refused"),
		  -ENOSPC); /* no new work, even if a little is free in the reserve */
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS;
	     !strncmp(face_value(id, VALUE_STATUS), "running bash", 12) && clock_mono_ms() < end;)
		face_drain(20);
	CHECK(strncmp(face_value(id, VALUE_STATUS), "running bash", 12) != 0); /* it is stopped, on a full disk */
	room();
	CHECK(face_wait_idle(id));
	CHECK(!strstr(face_text(id, TEXT_JSONL), "mmmm") && !strstr(face_text(id, TEXT_JSONL), "refused"));
	CHECK_INT(face_do(REQ_MESSAGE, id, "again"), 0);
	CHECK(face_wait_idle(id));
	CHECK(reserve());
	CHECK_STR(face_text(id, TEXT_ANSWER), "first\n");
}

TEST(a_result_waits_for_room_and_the_tool_runs_once)
{
	int64_t id = held("waits", SAY("after"));
	fill();
	until_full(id);
	CLEAN_FREE char *go = at("go");
	CHECK_INT(file_write(go, "", 0, 0600, NULL), 0); /* not on the full disk */
	for (int64_t end = clock_mono_ms() + 1500; clock_mono_ms() < end;)
		face_drain(100);
	CHECK(!strstr(face_text(id, TEXT_TRANSCRIPT), "\nran\n"));
	CHECK(!strncmp(face_value(id, VALUE_STATUS), "running", 7));
	room();
	CHECK(face_wait_idle(id));
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK(strstr(t, "\nran\n") && !strstr(t, "ran\nran") && strstr(t, "after"));
}

TEST(a_start_on_a_full_disk)
{
	int64_t id = face_session("begin", SAY("one") SAY("two"), "go");
	CHECK(face_wait_idle(id));
	face_stop();
	fill();
	int started = face_start();
	CHECK_INT(started, 0);
	if (started)
		exit(1);
	face_drain(100);
	CHECK_INT(face_do(REQ_MESSAGE, id, "x"), -ENOSPC);
	room();
	int rc = -ENOSPC;
	for (int64_t end = clock_mono_ms() + FACE_WAIT_MS; rc == -ENOSPC && clock_mono_ms() < end; face_drain(20))
		rc = face_do(REQ_MESSAGE, id, "now");
	CHECK_INT(rc, 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(face_text(id, TEXT_ANSWER), "two\n");
}

/* How often the setup began. */
static int setups(void)
{
	return atoi(sh("touch setups; wc -l <setups"));
}

static int64_t begin_failing(const char *name, const char *why)
{
	int64_t id = face_session(name, SAY("done"), "go");
	CHECK(face_wait(id, "failed: "));
	const char *status = face_value(id, VALUE_STATUS);
	CHECK(strstr(status, why) != NULL);
	if (check_failed)
		printf("# %s\n", status);
	CHECK_STR(sh("ls state/sandboxes | awk 'length($0) > 6'; ls -d cache/templates/*/[0-9]*/* 2>/dev/null || :"),
		  "");
	return id;
}

static void goes_on(int64_t id)
{
	CHECK_INT(face_do(REQ_CTL, id, "retry"), 0);
	CHECK(face_wait_idle(id));
	CHECK_STR(sh("ls cache/templates/*/[0-9]*"), "home");
	CHECK_STR(sh("stat -c %%s cache/templates/*/[0-9]*/home/project/big"), "8000000");
	CHECK_INT(face_do(REQ_CTL, id, "destroy force"), 0);
}

/* The setup fills the disk: its own words say so. */
TEST(a_template_whose_setup_finds_no_room)
{
	sh("cd project && mkdir .agents && cat >.agents/setup <<'END'\n"
	   "echo begun >>%s/setups\n"
	   "rm -f big\n"
	   "head -c 8000000 /dev/urandom >big\n"
	   "END\n"
	   "git add . && git commit -qm setup; cd .. && mkdir -p cache",
	   fixture_root);
	CLEAN_FREE char *filler = at("state/filler");
	CLEAN_FREE char *cache = at("cache");
	sh("head -c 14000000 /dev/zero >%s", filler); /* the records still find room */
	int64_t id = begin_failing("setup", "is full: free some space");
	CHECK(strstr(face_value(id, VALUE_STATUS), "setting the project up failed: .agents/setup") != NULL);
	room();
	goes_on(id);
	CHECK_INT(setups(), 2);
}

/* The cache is on another disk, and that is full: nothing half is left there. */
TEST(a_template_that_finds_no_room_in_the_cache)
{
	CLEAN_FREE char *cache = at("cache");
	CHECK_INT(mount("none", cache, "tmpfs", 0, "size=4m"), 0);
	sh("cd project && echo more >>a.txt && git commit -qam more");
	int64_t id = begin_failing("cache", "there is no room for ");
	CHECK_INT(mount(NULL, cache, NULL, MS_REMOUNT, "size=24m"), 0);
	goes_on(id);
	umount2(cache, MNT_DETACH);
}

static int small_disk(void)
{
	CLEAN_FREE char *state = at("state");
	dir_make(state, 0700, NULL);
	if (!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	    !mount("none", state, "tmpfs", 0, "size=24m"))
		return 0;
	printf("skip all: no tmpfs can be mounted here\n");
	return -1;
}

int main(int argc, char **argv)
{
	int rc = face_main(argc, argv, small_disk);
	CLEAN_FREE char *state = at("state");
	umount2(state, MNT_DETACH);
	return rc;
}
