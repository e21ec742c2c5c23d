/* What stands in each file of the tree: the formats that berthfs(5) tells, one entry for each row of tree.c (a test
 * fails if one is missing). The first words about a file are the tree's own; here is what a program that reads or
 * writes it has to know, so that no script has to guess.
 *
 * Constant data; nothing here runs in the daemon. */
#include "formats.h"

#include <string.h>

#include "backend/base/mem.h"

#define COLUMNS(...) ((const char *const[]){__VA_ARGS__, NULL})

const struct format formats[] = {
	{PLACE_NONE, KIND_DIR, NULL, "the root",
	 "The mount point. It cannot be changed but by the files and directories below.", NULL},

	/* ---- the root ---- */

	{PLACE_ROOT, KIND_MADE, "README", NULL, "Plain text.", NULL},
	{PLACE_ROOT, KIND_MADE, "status", NULL,
	 "A line `version`, `pid`, `started` (a time), `mounted` (a path), `sessions` (how many), then how many of "
	 "them "
	 "are `preparing`, `running`, `idle`, `asking`, `down`, `waiting` (for an approval), `shipping` and `failed`, "
	 "`workers` that are busy, `projects`, "
	 "`gateway`: its state, and words where there is something to say, and `config`: `ok`, or `draft:` and words.",
	 NULL},
	{PLACE_ROOT, KIND_CONFIG, "config", NULL,
	 "Lines <key>` = `<value>; `#` begins a comment. A write replaces the whole; a key that is missing has its "
	 "default. Each line is judged in its write. A whole that does not hold stays as a draft to be mended, the old "
	 "one stays in force, and `error` says why. The keys are listed below, under CONFIG.",
	 NULL},
	{PLACE_ROOT, KIND_MADE, "index", NULL, "A table, one row a session.",
	 COLUMNS("id: its number", "name: its name", "state: what its `status` reads", "project: path of the checkout",
		 "branch: that holds its work", "age: such as `5m`, `3h`, `2d`")},
	{PLACE_ROOT, KIND_GROWING, "events", NULL,
	 "A table that only grows, one row an event. Kinds are `created`, `setting`, `sandbox`, `state`, `message`, "
	 "`withdrawn`, `run`, `answer`, `stopped`, `synced`, `checks`, `ship`, `shipped`, `failed`, `retry`, "
	 "`renamed`, `snapshot`, `restored`, "
	 "`destroyed`, `gateway` (what it has to say, of no session), and more as they come.",
	 COLUMNS("seq: counts up from 1, never used again", "time: when", "session: its name then, or `-`",
		 "kind: a word", "detail: words, may be empty")},
	{PLACE_ROOT, KIND_ERRORS, "error", NULL,
	 "A line each, the newest last: time, path and colon where a file is meant, words, and the errno in "
	 "parentheses. "
	 "Truncating clears it.",
	 NULL},
	{PLACE_ROOT, KIND_DIR, "projects", NULL,
	 "Symbolic links to git checkouts. Making one registers a project, removing one forgets it and touches nothing "
	 "else.",
	 NULL},
	{PLACE_PROJECTS, KIND_LINK, NULL, "NAME", "Absolute path of a git checkout.", NULL},
	{PLACE_ROOT, KIND_DIR, "templates", NULL,
	 "A directory a template: a sandbox in which a project was set up at a commit, and which sessions of that "
	 "commit start from. What that means is told below, under TEMPLATES.",
	 NULL},
	{PLACE_TEMPLATES, KIND_DIR, NULL, "PROJECT@COMMIT",
	 "The project's name and 12 hex digits of the commit; the same again gets a number behind it. `rmdir` drops "
	 "it: no session starts from it any more, and its disk goes with the last session that did. EBUSY while it is "
	 "built.",
	 NULL},
	{PLACE_TEMPLATE, KIND_MADE, "status", NULL,
	 "`ready`; `building` and the step `starting`, `cloning`, `installing` or `saving`; or `failed:` and why.",
	 NULL},
	{PLACE_TEMPLATE, KIND_GROWING, "log", NULL,
	 "How it was made, a line each with its time, and between them what the setup said, as it came. It only grows.",
	 NULL},
	{PLACE_TEMPLATE, KIND_MADE, "size", NULL, "Bytes that it takes on the disk; 0 until it is ready.", NULL},
	{PLACE_ROOT, KIND_DIR, "sessions", NULL,
	 "Lists the sessions by their names. `rmdir` ends one: EBUSY while work is not brought over. `mv` renames one.",
	 NULL},

	/* ---- the gateway ---- */

	{PLACE_ROOT, KIND_DIR, "gateway", NULL, "What is meant by all of it is told below, under THE GATEWAY.", NULL},
	{PLACE_GATEWAY, KIND_DIR, "keys", NULL,
	 "A file a provider. Making one and writing a key to it, in one write, hands the key to the gateway and to "
	 "nobody "
	 "else; `rm` takes it away.",
	 NULL},
	{PLACE_KEYS, KIND_KEY, NULL, "PROVIDER",
	 "Reads the key's fingerprint: `sha256:` and 16 hex digits. Emptying it does nothing.", NULL},
	{PLACE_GATEWAY, KIND_CONFIG, "policy", NULL,
	 "What is let through: routes, models, fields, prices, limits, hosts. It explains itself. Written as `config` "
	 "is: "
	 "each line is judged in its write; a whole that does not hold stays as a draft while the old one stays in "
	 "force.",
	 NULL},
	{PLACE_GATEWAY, KIND_GROWING, "ledger", NULL,
	 "Each request, allowed or not, as a line of JSON, chained by hashes. It only grows; `tail -f` follows it, and "
	 "`berthfs ledger verify` checks a copy.",
	 NULL},
	{PLACE_GATEWAY, KIND_MADE, "head", NULL, "Length and hash of the ledger, and the last signed checkpoint.",
	 NULL},
	{PLACE_GATEWAY, KIND_MADE, "tokens", NULL, "A table, one row a token that is good now.",
	 COLUMNS("session: its number", "kind: `engine` or `sandbox`", "hash: of the token, its first 8 hex digits",
		 "age: such as `5m`", "tokens: of the session so far", "dollars: of the session so far",
		 "network: what its proxy reaches")},

	/* ---- the drop box ---- */

	{PLACE_SESSIONS, KIND_DIR, "new", NULL, "The drop box.", NULL},
	{PLACE_DROP, KIND_DIR, NULL, "PROJECT",
	 "The drop box of a registered project: a draft here needs no line `project`. Not listed; ENOENT if there is "
	 "no "
	 "such project.",
	 NULL},
	{PLACE_DROP, KIND_DRAFT, NULL, "NAME",
	 "A draft, as told below under DRAFTS. The session is there when the close of its writer has come back. What "
	 "was "
	 "refused stays to be mended and saved again. On a descriptor that is open for reading and writing, what is "
	 "read "
	 "after the write is the new session's number and a newline.",
	 NULL},
	{PLACE_DROP_PROJECT, KIND_DRAFT, NULL, "NAME", "The same, for that project.", NULL},

	/* ---- a session ---- */

	{PLACE_SESSIONS, KIND_DIR, NULL, "NAME",
	 "A session. The directory is closed: nothing can be made, renamed or removed in it (EPERM), so that editors "
	 "save "
	 "in place.",
	 NULL},
	{PLACE_SESSION, KIND_MADE, "id", NULL, "A decimal number.", NULL},
	{PLACE_SESSION, KIND_MADE, "status", NULL,
	 "One of `preparing` <step>, `running` or `running` <tool>, `idle`, `asking`, `waiting approval` <K>, "
	 "`retrying in` <S>` s: `<why>, "
	 "`checking`, `shipping` <step>, `down`, `failed: `<why>. The first word is enough to tell them apart; text "
	 "after "
	 "it may change."
	 "\n\nWhen nothing runs, a second line counts and names the files that the last sync found uncommitted in the "
	 "sandbox; "
	 "`changes` ends with the same line.",
	 NULL},
	{PLACE_SESSION, KIND_MADE, "sandbox", NULL,
	 "The kind and its state: `running`, `paused`, `hibernated` or `down`, as in `vm running` or `dir down`; `tcg` "
	 "stands after it where a VM is emulated. "
	 "Empty "
	 "until it is known.",
	 NULL},
	{PLACE_SESSION, KIND_MADE, "project", NULL, "An absolute path.", NULL},
	{PLACE_SESSION, KIND_MADE, "branch", NULL, "`sandbox/`<N>, with the session's number. Empty until it is known.",
	 NULL},
	{PLACE_SESSION, KIND_MADE, "base", NULL, "<BRANCH> <COMMIT>, with the whole hash. Empty until it is known.",
	 NULL},
	{PLACE_SESSION, KIND_MESSAGE, "input", NULL,
	 "What is written is told below, under MESSAGES. Reads empty, and its size is 0, so that an editor never sends "
	 "old "
	 "text again.",
	 NULL},
	{PLACE_SESSION, KIND_SNAPSHOT, "queue", NULL, "A table, one row a message that the model has not been given.",
	 COLUMNS("number: K, as `withdraw K` takes it", "time: when it was accepted", "first line: of its text")},
	{PLACE_SESSION, KIND_GROWING, "transcript", NULL,
	 "Markdown. Each entry is a heading of the second level with who speaks and a time; tool calls and results are "
	 "headings below, with fenced text. It is only appended to.",
	 NULL},
	{PLACE_SESSION, KIND_GROWING, "transcript.jsonl", NULL,
	 "One JSON object a line with `seq`, `time`, `kind` and the fields of that kind. `user`: `message` (K), "
	 "`text`, and "
	 "`typed` where an option was picked by number. `assistant`: `model`, `text`, `thinking` if there was any, "
	 "`stop`, "
	 "`calls`, `replay` (what its model alone gets back). `tool_call`: `id`, `name`, `input`. `tool_result`: `id`, "
	 "`name`, `text`, `error` (true or false). "
	 "`notice`, `ship`: `text`. Readers have to skip kinds and fields that they do not know.",
	 NULL},
	{PLACE_SESSION, KIND_SNAPSHOT, "plan", NULL,
	 "Lines `- [x]` <done>, `- [>]` <doing>, `- [ ]` <to do>, as the model wrote them in its newest block `plan`. "
	 "Empty "
	 "if there was none.",
	 NULL},
	{PLACE_SESSION, KIND_SNAPSHOT, "question", NULL,
	 "The block `result` of the last answer. A number written to `input` picks that option. Empty if none is open.",
	 NULL},
	{PLACE_SESSION, KIND_SNAPSHOT, "checks", NULL,
	 "A table, one row a check; after the rows, for each that did not pass, a blank line, a line `--- `<name> and "
	 "the end of its output.",
	 COLUMNS("result: `pass`, `fail`, `error` (it could not tell) or `stale` (there is work since)",
		 "seconds: how long it took", "name: as in .agents/project.json", "commit: that it ran on")},
	{PLACE_SESSION, KIND_SNAPSHOT, "diff", NULL, "A unified diff that `git apply` takes.", NULL},
	{PLACE_SESSION, KIND_SNAPSHOT, "changes", NULL, "A diffstat.", NULL},
	{PLACE_SESSION, KIND_SNAPSHOT, "commits", NULL, "Commits since the base, newest first.", NULL},
	{PLACE_SESSION, KIND_DIR, "files", NULL,
	 "Read from the objects in the checkout. What a sync changes is a new inode; who has the old file open reads "
	 "on in "
	 "the old one.",
	 NULL},
	{PLACE_FILES, KIND_DIR, NULL, "FOLDER", "A folder. A submodule is an empty one.", NULL},
	{PLACE_FILES, KIND_WORK, NULL, "FILE",
	 "The bytes as git has them; mode 0555 for a program. One over 1 GiB cannot be read here (EFBIG).", NULL},
	{PLACE_FILES, KIND_LINK, NULL, "LINK", "A symbolic link.", NULL},
	{PLACE_SESSION, KIND_SNAPSHOT, "usage", NULL, "A table, one row a model and one a tool.",
	 COLUMNS("requests: or calls", "tokens in: cached ones too; `-` for a tool", "tokens out: `-` for a tool",
		 "cached: of those that came in; `-` for a tool",
		 "cost: in dollars; `-` for a tool or if the price is not known", "model: or `tool` <NAME>",
		 "failed: of the requests", "aborted: of the requests")},
	{PLACE_SESSION, KIND_GROWING, "log", NULL, "A line each: time, words. It is only appended to.", NULL},
	{PLACE_SESSION, KIND_ERRORS, "error", NULL, "As `error` of the root.", NULL},
	{PLACE_SESSION, KIND_DIR, "attach", NULL,
	 "Files that are put here go with your next message: images (PNG, JPEG, GIF, WebP, by their bytes and not by "
	 "their "
	 "names) to the model, all others into the sandbox, as ~/attach/<N>/<NAME> there. They are listed until they "
	 "are sent; "
	 "`rm` takes one back. A file has at most 16 MiB, an image 3.9 MB, and 32 may wait. A request has at most 20 "
	 "images and "
	 "18 MiB of them, the newest; the model is told which are left out.",
	 NULL},
	{PLACE_ATTACH, KIND_DRAFT, NULL, "NAME", "A file while it is written: any bytes.", NULL},
	{PLACE_ATTACH, KIND_ATTACHED, NULL, "NAME", "A file that waits for the next message.", NULL},
	{PLACE_SESSION, KIND_DIR, "approvals", NULL, "Lists the call that waits for your word, if there is one.", NULL},
	{PLACE_APPROVALS, KIND_LINE, NULL, "K",
	 "Read what would be done. Write `once`, `session` (its rule, for this session), `project` (for all sessions "
	 "of the "
	 "project) or `no` with a reason if you like.",
	 NULL},
	{PLACE_SESSION, KIND_DIR, "settings", NULL, "A file each; what they may hold is told under CONFIG.", NULL},
	{PLACE_SESSION, KIND_LINE, "ctl", NULL,
	 "Each write is one verb, and is answered in that write. Reading gives the verbs, one a line, with what they "
	 "do; "
	 "they are listed below, under VERBS.",
	 NULL},
	{PLACE_SESSION, KIND_LINE, "ship", NULL,
	 "Each write asks for one ship: an empty line (where `settings/ship` says), `main` (the remote's default "
	 "branch) or "
	 "`branch` <NAME>. Reads `none`, `running` <step>, `landed` <BRANCH> <COMMIT>, `already on` <BRANCH>, "
	 "`blocked: "
	 "`<why>, `moved: ship again`, `check failed: `<NAME> or `refused: `<the remote's words>."
	 "\n\nThe push is made by your own git, with its credential helpers, ssh settings and hooks. It may not ask "
	 "anything: a password that no helper has, or a host key that is not known, ends the ship in words."
	 "\n\n`pr` pushes to the branch `sandbox-`<N>`-`<COMMIT> and opens a pull request with gh(1), whose link is "
	 "the URL. Without gh the gateway opens it at GitHub, GitLab or Gitea, with the access token that was written "
	 "to `gateway/keys/`<HOST> (or `github`, `gitlab`, `gitea`); a forge of your own needs a line `forge` <HOST "
	 "KIND> in `gateway/policy`. Else it is the link that the remote offered when it took the branch.",
	 NULL},
	{PLACE_SESSION, KIND_DIR, "wait", NULL,
	 "Lists nothing, so that nothing that crawls the tree is held up. Reading one of its files blocks until "
	 "something "
	 "is so; a signal ends it, and so do the end of the session (ESHUTDOWN) and of the daemon (ESHUTDOWN). With "
	 "O_NONBLOCK a read is EAGAIN, and poll(2) tells when it will not block.",
	 NULL},

	{PLACE_SETTINGS, KIND_LINE, "model", NULL, "As the key `model`.", NULL},
	{PLACE_SETTINGS, KIND_LINE, "network", NULL, "As the key `network`.", NULL},
	{PLACE_SETTINGS, KIND_LINE, "after-run", NULL,
	 "As the key `after-run`. `ship` and `pr` ship by themselves when the run brought commits, all checks have "
	 "passed and "
	 "nothing is asked.",
	 NULL},
	{PLACE_SETTINGS, KIND_LINE, "agent", NULL,
	 "As the key `agent`. Another one begins a conversation of its own, and is told what is asked from then on.",
	 NULL},
	{PLACE_SETTINGS, KIND_LINE, "ship", NULL, "As the key `ship`.", NULL},
	{PLACE_SETTINGS, KIND_LINE, "approvals", NULL,
	 "As the key `approvals`. Below its value stands what was granted, a row each: number, scope, time, rule; "
	 "`revoke` <N> "
	 "and `revoke all` take it back.",
	 NULL},

	{PLACE_WAIT, KIND_WAIT, "reply", NULL,
	 "Blocks until every message that was accepted before the open is answered, and gives the text of the last "
	 "answer; "
	 "at once, the newest one, if none waits. A failed session gives EIO.",
	 NULL},
	{PLACE_WAIT, KIND_WAIT, "live", NULL, "Gives the text of the run as it streams, until the run ends.", NULL},
	{PLACE_WAIT, KIND_WAIT, "idle", NULL,
	 "Blocks until everything is answered, brought over and checked, and gives the status. A failed session gives "
	 "EIO.",
	 NULL},
	{PLACE_WAIT, KIND_WAIT, "approval", NULL, "Blocks until a call waits for approval, and gives its number.",
	 NULL},
	{PLACE_WAIT, KIND_WAIT, "shipped", NULL,
	 "Blocks until the ship that is under way has ended, and gives what `ship` reads then.", NULL},
	{PLACE_WAIT, KIND_WAIT, "change", NULL,
	 "Blocks until something of the session has changed since the open, and gives the status.", NULL},
};
const size_t formats_n = ARRAY_LEN(formats);

const struct format *format_of(const struct file *file)
{
	for (size_t i = 0; i < formats_n; i++) {
		const struct format *f = &formats[i];
		bool same = f->name && file->name ? !strcmp(f->name, file->name) : f->name == file->name;
		if (same && f->place == file->place && f->kind == file->kind)
			return f;
	}
	return NULL;
}
