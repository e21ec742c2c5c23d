/* The busy probe: what a sandbox says of itself. */
#include "env_box.h"

static struct env_busy look(void)
{
	struct env_busy b = {0};
	struct err err = ERR_INIT;
	int rc = env_busy(&box.paths, box.kind, BOX_ID, 60000, &b, &err);
	CHECK_INT(rc, 0);
	if (rc)
		printf("# %s\n", err.text);
	return b;
}

static const char *folder(void)
{
	return box.dir ? "../busy" : "/run/berthfs/busy";
}

/* A file of the folder as a shell of the sandbox would write it. */
static void put(const char *job, const char *line)
{
	CLEAN_FREE char *script = xasprintf("mkdir -p %s; cd %s; %s", folder(), folder(), line);
	CHECK_INT(run(job, script), 0);
}

TEST(quiet_until_somebody_says_so)
{
	struct env_busy b = look();
	CHECK(!b.busy && !*b.words);
	CHECK(box.dir ? b.cpu_ms == -1 : b.cpu_ms > 0);
	put("q1", "rm -f *; touch .hidden");
	CHECK(!look().busy);
}

TEST(a_file_counts_for_a_while)
{
	put("f1", "echo building > build");
	struct env_busy b = look();
	CHECK(b.busy && strstr(b.words, "build"));
	put("f2", "touch -d '11 minutes ago' build");
	CHECK(!look().busy);
	put("f3", "touch build");
	CHECK(look().busy);
	put("f4", "rm build; : > empty");
	CHECK(look().busy);
	put("f5", "rm empty");
	CHECK(!look().busy);
}

TEST(a_number_counts_while_its_process_lives)
{
	CHECK_INT(run("p1", "setsid sleep 1000 >/dev/null 2>&1 & echo $! >pid"), 0);
	pid_t pid = pid_in("pid");
	put("p2", "cp ~/pid work; touch -d '2 days ago' work");
	CHECK(look().busy);
	CHECK_INT(run("p3", "kill -9 $(cat pid)"), 0);
	CHECK(ends(pid));
	for (int64_t end = clock_mono_ms() + 60000; look().busy && clock_mono_ms() < end;)
		clock_sleep_ms(10); /* until it has been waited for */
	CHECK(!look().busy);
	put("p4", "rm work");
}

/* What cannot be told counts, and nothing in there can hold the probe up. */
TEST(odd_things)
{
	put("o1", "mkfifo fifo");
	CHECK(look().busy);
	put("o2", "rm fifo; ln -s /dev/zero link");
	CHECK(look().busy);
	put("o3", "rm link; mkdir sub; touch -d '1 hour ago' sub");
	CHECK(!look().busy);
	put("o4", "rmdir sub; echo 99999999999999999999 > big; touch -d '1 hour ago' big");
	CHECK(!look().busy);
	put("o5", "rm big; echo 4000000000 > big");
	CHECK(look().busy); /* no process's number: it counts as any other text */
	put("o6", "rm big; touch -d '1 hour' ahead");
	CHECK(look().busy);
	put("o7", "rm ahead; touch \"$(printf 'bad\\377\\nname')\"");
	struct env_busy b = look();
	CHECK(b.busy && !strchr(b.words, '\n') && !strchr(b.words, '\377'));
	put("o8", "rm bad*; touch $(printf '%0200d' 7)");
	CHECK(look().busy);
	put("o9", "rm 0*");
	CHECK(!look().busy);
	if (!box.dir)
		return;
	CHECK_INT(run("o10", "rm -rf ../busy; echo file > ../busy"), 0);
	CHECK(look().busy);
	CHECK_INT(run("o11", "rm ../busy"), 0);
	CHECK(!look().busy);
}

TEST(a_running_command_counts)
{
	struct err err = ERR_INIT;
	CHECK_INT(start(box.env, "long", "sleep 1000", 0, &err), 0);
	struct env_busy b = look();
	CHECK(b.busy && strstr(b.words, "long"));
	CHECK_INT(env_kill(box.env, "long", &err), 0);
	wait_job(box.env, "long");
	CHECK(!look().busy);
	CHECK_INT(env_ack(box.env, "long", false, NULL, &err), 0);
}
