/* Protected files and secrets, through whole runs: what the model asks for, what is committed. */
#include "face.h"

#define TOOL(name, input) "{\"tools\":[{\"name\":\"" name "\",\"input\":{" input "}}]}\n"
#define TOKEN                                                                                                          \
	"gh"                                                                                                           \
	"p_0123456789abcdefghijABCDEFGHIJ012345"

/* How often a text stands in everything that was committed of the session, in each form of it. */
static int count(int64_t id, const char *needle)
{
	static const enum text_kind kinds[] = {TEXT_TRANSCRIPT, TEXT_JSONL, TEXT_LOG, TEXT_CHECKS, TEXT_ANSWER};
	int n = 0;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		for (const char *p = face_text(id, kinds[i]); (p = strstr(p, needle)); p += strlen(needle))
			n++;
	return n;
}

TEST(read_write_and_edit_refuse_a_protected_file_by_every_name)
{
	int64_t id = face_session(
		"gate",
		BASH("echo TOP=hidden-value > .env; ln -s .env link; ln .env hard; mkdir -p .ssh sub; echo "
		     "hidden-value > .ssh/x; "
		     "ln -s ../.env sub/up; echo fine > .env.example") TOOL("read", "\"path\":\".env\"")
			TOOL("read", "\"path\":\"link\"") TOOL("read", "\"path\":\"hard\"") TOOL(
				"read", "\"path\":\"sub/../.env\"") TOOL("read",
									 "\"path\":\"/proc/self/cwd/../../../../proc/"
									 "self/task/../environ\"")
				TOOL("read", "\"path\":\"sub/up\"") TOOL("read", "\"path\":\".ssh/x\"") TOOL(
					"edit",
					"\"path\":\"hard\",\"edits\":[{\"oldText\":\"TOP\",\"newText\":\"LOW\"}]")
					TOOL("edit",
					     "\"path\":\".env\",\"edits\":[{\"oldText\":\"TOP\",\"newText\":\"LOW\"}]")
						TOOL("write", "\"path\":\"link\",\"content\":\"x\"") TOOL(
							"write", "\"path\":\"sub/.env.local\",\"content\":\"x\"")
							TOOL("write", "\"path\":\".env\",\"content\":\"x\"")
								TOOL("read", "\"path\":\".env.example\"")
									BASH("grep -c TOP=hidden-valu[e] .env; ls sub")
										SAY("done"),
		"go");
	CHECK(face_wait_idle(id));
	CHECK_INT(count(id, "hidden-value"),
		  4); /* the first command's own words, twice in transcript and in transcript.jsonl */
	CHECK_INT(count(id, "protected"), 2 * 12);
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK(strstr(t, "#### read gave\n\n```\nfine\n") != NULL);
	CHECK(strstr(t, "#### bash gave\n\n```\n1\nup\n```") != NULL);
}

TEST(the_list_is_config)
{
	face_config("protected = *.hidden !open.hidden\n");
	int64_t id = face_session("list",
				  BASH("echo one > a.hidden; echo two > open.hidden; echo three > .env")
					  TOOL("read", "\"path\":\"a.hidden\"") TOOL("read", "\"path\":\"open.hidden\"")
						  TOOL("read", "\"path\":\".env\"") SAY("done"),
				  "go");
	CHECK(face_wait_idle(id));
	const char *t = face_text(id, TEXT_TRANSCRIPT);
	CHECK(!strstr(t, "#### read gave\n\n```\none\n") && strstr(t, "```\ntwo\n") && strstr(t, "```\nthree\n"));
	CHECK_INT(face_do(REQ_CONFIG_LINE, 0, "protected = /"), -EINVAL);
	face_config("");
}

TEST(secrets_in_output_are_taken_out_before_they_are_committed)
{
	setenv("BERTHFS_TEST_API_KEY", "a-key-of-this-very-machine", 1);
	int64_t id = face_session("secrets",
				  BASH("echo token " TOKEN "; echo a-key-of-this-very-machine | tr y y; printf 'x" TOKEN
				       "'; cat no-" TOKEN) BASH("for i in $(seq 20000); do echo line $i; done; printf "
								"-- '-----BEGIN RSA PRIVATE KEY-----\\\\nMIIhidden\\\\n"
								"-----END RSA PRIVATE KEY-----\\\\n'; echo " TOKEN
								" > f") TOOL("read", "\"path\":\"f\"")
					  TOOL("read", "\"path\":\"no-" TOKEN "\"") SAY("done"),
				  "go");
	CHECK(face_wait_idle(id));
	const char *t = face_text(id, TEXT_TRANSCRIPT), *result = strstr(t, "#### bash");
	CHECK(result && strstr(result, "token [redacted: GitHub token]\n[redacted: a key of this machine]"));
	CHECK(result && strstr(result, "x" TOKEN)); /* inside a word: no token */
	CHECK(strstr(t, "[redacted: private key]") && !strstr(t, "```\n" TOKEN) && !strstr(t, "MIIhidden\n"));
	CHECK(strstr(t, "```\n[redacted: GitHub token]\n"));
	unsetenv("BERTHFS_TEST_API_KEY");
}

/* The window of a long output begins inside a key; then a read that begins inside one. */
TEST(a_limit_that_cuts_a_secret_shows_no_piece_of_it)
{
	int64_t id = face_session("cut",
				  BASH("(head -c 60000 /dev/zero | tr '\\\\0' a; echo; echo -----BEGIN PRIVATE "
				       "KEY-----; for i in $(seq 60); do echo QUJDREVG$i"
				       "hiddenhiddenhiddenhiddenhiddenhiddenhidden; done; echo -----END PRIVATE "
				       "KEY-----; head -c 49000 /dev/zero | tr '\\\\0' b; echo) > out; cat out")
					  TOOL("read", "\"path\":\"out\",\"offset\":10,\"limit\":20") BASH(
						  "head -c 51190 /dev/zero | tr '\\\\0' . > long; printf '" TOKEN
						  "' >> long; cat long") TOOL("read", "\"path\":\"long\"") SAY("done"),
				  "go");
	CHECK(face_wait_idle(id));
	const char *t = face_text(id, TEXT_JSONL);
	int pieces = 0;
	for (const char *p = t; (p = strstr(p, "\"kind\":\"tool_result\"")); p++) {
		const char *end = strchr(p, '\n'), *hid = strstr(p, "hiddenhidden"),
			   *tok = strstr(p, "gh"
					    "p_0123");
		pieces += (hid && hid < end) + (tok && tok < end);
		CHECK(memmem(p, (size_t)(end - p), "[redacted: ", 11) != NULL);
	}
	CHECK_INT(pieces, 0);
}

TEST(checks_hide_secrets_too)
{
	int64_t id = face_session(
		"checks",
		BASH("mkdir -p .agents; echo '{\\\"checks\\\":[{\\\"name\\\":\\\"t\\\",\\\"command\\\":\\\"echo " TOKEN
		     "; false\\\"}]}' > .agents/project.json; git add .; git commit -qm c") SAY("done"),
		"go");
	CHECK(face_wait_idle(id));
	CHECK(strstr(face_text(id, TEXT_CHECKS), "[redacted: GitHub token]") &&
	      !strstr(face_text(id, TEXT_CHECKS), TOKEN));
}

FACE_MAIN()
