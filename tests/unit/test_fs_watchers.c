/* Which changes become orders for the poker: those alone that somebody can be watching. No mount and no poker; what
 * would be given to it is looked at. */
#include "check.h"
#include "fs/face.h"
#include "fs/ino.h"
#include "fs/seen.h"
#include "fs/tree.h"
#include "fs/watch_box.h"
#include "fs/watchers.h"

#define SESSION 7

static struct face face;
static struct poke poke = {.fd = -1, .work_fd = -1, .worker = 2};

static uint64_t ino(enum place place, const char *name)
{
	return ino_pack(SESSION, tree_row(tree_find(place, name)));
}

static uint64_t session_ino(void)
{
	return ino_pack(SESSION, tree_row(tree_unnamed(PLACE_SESSIONS, KIND_DIR)));
}

static void begin(bool watch)
{
	face = (struct face){.connected = true};
	list_init(&face.timers);
	watchers_start(&face, &poke);
	face.watchers->poke = watch ? &poke : NULL;
}

static int ready(void)
{
	int n = 0;
	list_each (pos, &face.watchers->ready)
		n++;
	return n;
}

static void end(void)
{
	watchers_release(&face);
	seen_release(&face);
}

TEST(what_nobody_has_looked_up_is_not_poked)
{
	begin(true);
	for (int i = 0; i < 1000; i++) {
		watchers_changed(&face, ino(PLACE_SESSION, "transcript"), true);
		watchers_changed(&face, ino(PLACE_SESSION, "status"), true);
		watchers_changed(&face, ino(PLACE_SETTINGS, "network"), true);
	}
	CHECK_INT(ready(), 0);
	CHECK_INT(face.seen.n, 0); /* nor kept */
	end();
}

TEST(a_watcher_of_the_folder_is_told_of_its_files_once)
{
	begin(true);
	seen_get(&face, session_ino())->lookups = 1;
	for (int i = 0; i < 1000; i++)
		watchers_changed(&face, ino(PLACE_SESSION, "transcript"), true);
	CHECK_INT(ready(), 1);
	watchers_changed(&face, ino(PLACE_SESSION, "status"), true);
	watchers_changed(&face, ino(PLACE_SETTINGS, "network"), true); /* its folder is another one */
	watchers_changed(&face, ino(PLACE_SESSION, "plan"), false);
	CHECK_INT(ready(), 2);
	CHECK(seen_find(&face, ino(PLACE_SESSION, "transcript"))->dirty);
	end();
}

TEST(without_a_poker_there_are_no_orders)
{
	begin(false);
	seen_get(&face, session_ino())->lookups = 1;
	watchers_changed(&face, ino(PLACE_SESSION, "transcript"), true);
	CHECK_INT(ready(), 0);
	end();
}

CHECK_MAIN()
