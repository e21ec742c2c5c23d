/* Instructions of the project to agents: the root's in the prompt, a folder's with the first file below it. */
#include "backend/db.h"
#include "face.h"

#define READ(path)  "{\"tools\":[{\"name\":\"read\",\"input\":{\"path\":\"" path "\"}}]}\n"
#define WRITE(path) "{\"tools\":[{\"name\":\"write\",\"input\":{\"path\":\"" path "\",\"content\":\"x\"}}]}\n"

/* Commits files to the project before the next session is made: name, text, name, text..., NULL. */
static void commit(const char *const *files)
{
	sh("cd project && git rm -qr --cached . && find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} + && "
	   "echo a > a.txt");
	for (; *files; files += 2)
		sh("cd project && mkdir -p \"$(dirname %s)\" && printf '%s\\n' > %s", files[0], files[1], files[0]);
	sh("cd project && git add -A -f && git commit -qm files");
}

/* The system prompt of a session's newest request. */
static bool prompt_has(int64_t id, const char *text)
{
	struct db *db;
	struct rows r;
	CLEAN_FREE char *path = at("state/berthfs.db");
	CHECK_INT(db_open(path, false, &db, NULL), 0);
	db_query(db, &r, NULL,
		 "SELECT text FROM prompts WHERE id=(SELECT prompt FROM requests WHERE session=? ORDER BY n DESC LIMIT "
		 "1)",
		 "i", id);
	bool has = rows_next(&r) && strstr(row_text(&r, 0), text);
	rows_end(&r);
	db_close(db);
	return has;
}

TEST(the_roots_file_is_in_the_prompt)
{
	static const char *const both[] = {"AGENTS.md", "use-tabs", "CLAUDE.md", "use-blanks", NULL},
				 *const one[] = {"CLAUDE.md", "use-blanks", NULL},
				 *const blank[] = {"AGENTS.md", " ", "CLAUDE.md", "use-blanks", NULL},
				 *const none[] = {"b", "b", NULL};
	commit(both);
	int64_t id = face_session("both", SAY("x"), "go");
	CHECK(face_wait_idle(id) && prompt_has(id, "use-tabs") && !prompt_has(id, "use-blanks"));
	commit(one);
	id = face_session("one", SAY("x"), "go");
	CHECK(face_wait_idle(id) && prompt_has(id, "use-blanks"));
	commit(blank);
	id = face_session("blank", SAY("x"), "go");
	CHECK(face_wait_idle(id) && prompt_has(id, "use-blanks"));
	commit(none);
	id = face_session("no", SAY("x"), "go");
	CHECK(face_wait_idle(id) && !prompt_has(id, "instructions for agents say"));
}

TEST(a_folders_file_is_told_once_with_the_first_file_below)
{
	static const char *const files[] = {"AGENTS.md",
					    "root-words",
					    "sub/AGENTS.md",
					    "sub-words",
					    "sub/deep/CLAUDE.md",
					    "deep-words",
					    "sub/deep/f",
					    "f",
					    "sub/g",
					    "g",
					    "other/AGENTS.md",
					    "other-words",
					    "other/h",
					    "h",
					    "node_modules/p/AGENTS.md",
					    "foreign-words",
					    "node_modules/p/i",
					    "i",
					    NULL};
	commit(files);
	int64_t id = face_session("nested",
				  READ("a.txt") READ("sub/deep/../deep/f") READ("sub/g") READ("sub/deep/f")
					  WRITE("other/new") READ("other/AGENTS.md") READ("node_modules/p/i")
						  READ("sub/missing") READ("../../sub/g") SAY("one") READ("sub/g")
							  READ("other/h") SAY("two"),
				  "go");
	CHECK(face_wait_idle(id));
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK_INT(face_count(t, "sub-words"), 1);
	CHECK_INT(face_count(t, "deep-words"), 1);
	CHECK_INT(face_count(t, "root-words"), 0);
	CHECK_INT(face_count(t, "foreign-words"), 0);
	CHECK_INT(face_count(t, "other-words"), 2); /* told with the write, and read as a file */
	const char *f = strstr(t, "\nf\n"), *sub = strstr(t, "sub-words"), *deep = strstr(t, "deep-words");
	CHECK(f && f < sub && sub < deep); /* behind the file's own text, outer folders first */
	face_stop();
	CHECK_INT(face_start(), 0);
	face_drain(100);
	CHECK_INT(face_do(REQ_MESSAGE, id, "more"), 0);
	CHECK(face_wait_idle(id));
	CHECK_INT(face_count(face_text(id, TEXT_TRANSCRIPT), "sub-words"),
		  1); /* once in a session, also after a restart */
	CHECK_INT(face_count(face_text(id, TEXT_TRANSCRIPT), "other-words"), 2);
}

TEST(reading_the_file_itself_is_enough)
{
	int64_t id = face_session("itself", READ("sub/AGENTS.md") READ("sub/g") SAY("x"), "go");
	CHECK(face_wait_idle(id));
	CHECK_INT(face_count(face_text(id, TEXT_TRANSCRIPT), "sub-words"), 1);
}

FACE_MAIN()
