-- The database of one instance. Each "-- migration N" section runs once, in one transaction, and is never edited
-- after a release: a change is a new section. user_version holds the last one that ran.

-- migration 1

CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;

CREATE TABLE projects(name TEXT PRIMARY KEY, path TEXT NOT NULL, changed_ms INTEGER NOT NULL) STRICT;

-- One row a session, also after its end. Ids are never used again.
CREATE TABLE sessions(
	id INTEGER PRIMARY KEY,
	name TEXT NOT NULL,
	project TEXT NOT NULL,              -- absolute path of the checkout
	created_ms INTEGER NOT NULL,
	changed_ms INTEGER NOT NULL,        -- of state or detail
	destroyed_ms INTEGER,               -- NULL while it lives
	state TEXT NOT NULL,                -- session.c: state_names
	detail TEXT NOT NULL,               -- step, or why it failed
	after TEXT NOT NULL,                -- what a finished run still owes: "", "sync" or "sync checks"
	base_branch TEXT NOT NULL,          -- branch and commit that the sandbox's clone started from, after a ship the
	base_commit TEXT NOT NULL,          -- landed ones; diff, changes and commits compare with it
	start_commit TEXT NOT NULL,
	head TEXT NOT NULL,                 -- last commit fetched into sandbox/ID; "" before the first sync
	sandbox TEXT NOT NULL,              -- kind
	sandbox_state TEXT NOT NULL,        -- the `sandbox` file
	size TEXT NOT NULL,
	clone TEXT NOT NULL,                -- path of the clone inside the sandbox; "" until it is there
	model TEXT NOT NULL,
	network TEXT NOT NULL,
	after_run TEXT NOT NULL,
	ship_to TEXT NOT NULL,
	approvals TEXT NOT NULL,
	settings_ms INTEGER NOT NULL,
	accepted INTEGER NOT NULL,          -- number of the newest message
	run INTEGER NOT NULL,               -- number of the newest run
	request INTEGER NOT NULL,           -- number of the newest pinned model request
	attempt INTEGER NOT NULL,           -- failed tries of the request that is due
	retry_ms INTEGER NOT NULL,          -- when the next try is due (CLOCK_REALTIME), 0 = now
	stopping INTEGER NOT NULL,          -- `stop` was written and is not done yet
	unsynced INTEGER NOT NULL,          -- tool calls since the last sync
	check_round INTEGER NOT NULL,
	ship INTEGER NOT NULL,              -- number of the newest ship
	ships_done INTEGER NOT NULL,
	entries INTEGER NOT NULL,           -- seq of the newest entry
	md_size INTEGER NOT NULL,
	json_size INTEGER NOT NULL,
	transcript_ms INTEGER NOT NULL,
	log_size INTEGER NOT NULL,
	log_ms INTEGER NOT NULL,
	plan_seq INTEGER NOT NULL,          -- entry with the newest plan block; the block itself is parsed when read
	plan_size INTEGER NOT NULL,
	answer_seq INTEGER NOT NULL,        -- entry of the newest answer
	answer_size INTEGER NOT NULL,
	question_size INTEGER NOT NULL      -- 0: the newest answer asks nothing
) STRICT;
CREATE UNIQUE INDEX sessions_name ON sessions(name) WHERE destroyed_ms IS NULL;

CREATE TABLE messages(
	session INTEGER NOT NULL,
	k INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	text TEXT NOT NULL,
	held INTEGER NOT NULL,              -- it came while no run could take it: gets a run of its own
	state TEXT NOT NULL,                -- waiting, placed, answered, withdrawn
	run INTEGER NOT NULL,
	PRIMARY KEY(session, k)
) STRICT, WITHOUT ROWID;
CREATE INDEX messages_open ON messages(session, k) WHERE state IN ('waiting', 'placed');

-- The transcript. Immutable. body is the JSON object of transcript.jsonl, md its part of transcript.
CREATE TABLE entries(
	session INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	kind TEXT NOT NULL,
	run INTEGER NOT NULL,
	body TEXT NOT NULL,
	md TEXT NOT NULL,
	md_off INTEGER NOT NULL,
	json_off INTEGER NOT NULL,
	PRIMARY KEY(session, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX entries_md ON entries(session, md_off);
CREATE INDEX entries_json ON entries(session, json_off);

-- System prompts, once each.
CREATE TABLE prompts(id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;

-- Model requests: pinned before they are sent, so that a restart sends the same again.
CREATE TABLE requests(
	session INTEGER NOT NULL,
	n INTEGER NOT NULL,
	run INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	model TEXT NOT NULL,
	prompt INTEGER NOT NULL,
	cutoff INTEGER NOT NULL,            -- entries up to this seq are its context
	state TEXT NOT NULL,                -- pinned, done, failed
	partial TEXT NOT NULL,              -- what has streamed, at most 100 ms old
	PRIMARY KEY(session, n)
) STRICT, WITHOUT ROWID;

-- Tool calls: planned with the answer that asks for them, started (the intent) before they run, done with their result.
CREATE TABLE calls(
	session INTEGER NOT NULL,
	request INTEGER NOT NULL,
	pos INTEGER NOT NULL,
	id TEXT NOT NULL,                   -- the model's id of the call
	name TEXT NOT NULL,
	args TEXT NOT NULL,
	state TEXT NOT NULL,                -- planned, started, done
	note TEXT NOT NULL,                 -- what a tool needs to go on after a restart
	PRIMARY KEY(session, request, pos)
) STRICT, WITHOUT ROWID;

CREATE TABLE checks(
	session INTEGER NOT NULL,
	pos INTEGER NOT NULL,
	name TEXT NOT NULL,
	result TEXT NOT NULL,               -- pass, fail, error
	seconds REAL NOT NULL,
	head TEXT NOT NULL,
	output TEXT NOT NULL,
	PRIMARY KEY(session, pos)
) STRICT, WITHOUT ROWID;

CREATE TABLE ships(
	session INTEGER NOT NULL,
	n INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	target TEXT NOT NULL,               -- "main" or "branch NAME"
	step TEXT NOT NULL,                 -- ship.c: step names; "" once it has ended
	remote TEXT NOT NULL,
	branch TEXT NOT NULL,
	base TEXT NOT NULL,
	head TEXT NOT NULL,
	outcome TEXT NOT NULL,              -- the words of the `ship` file
	PRIMARY KEY(session, n)
) STRICT, WITHOUT ROWID;

-- Generated texts that need git to make: diff, changes, commits; and what is uncommitted, in words.
CREATE TABLE texts(
	session INTEGER NOT NULL,
	kind TEXT NOT NULL,
	body TEXT NOT NULL,
	changed_ms INTEGER NOT NULL,
	PRIMARY KEY(session, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE logs(
	session INTEGER NOT NULL,
	off INTEGER NOT NULL,
	line TEXT NOT NULL,
	PRIMARY KEY(session, off)
) STRICT, WITHOUT ROWID;

CREATE TABLE events(seq INTEGER PRIMARY KEY, off INTEGER NOT NULL, line TEXT NOT NULL) STRICT;
CREATE INDEX events_off ON events(off);

-- The last failures in words, a few for each session.
CREATE TABLE errors(
	id INTEGER PRIMARY KEY,
	session INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	path TEXT NOT NULL,
	code INTEGER NOT NULL,
	text TEXT NOT NULL
) STRICT;
CREATE INDEX errors_session ON errors(session, id);

-- migration 2

ALTER TABLE sessions ADD COLUMN retry_since_ms INTEGER NOT NULL DEFAULT 0; -- when the request that is due first failed, 0 = it did not
ALTER TABLE sessions ADD COLUMN output_bytes INTEGER NOT NULL DEFAULT 0;   -- of tool results in the transcript
ALTER TABLE sessions ADD COLUMN usage_size INTEGER NOT NULL DEFAULT 0;     -- the `usage` file
ALTER TABLE sessions ADD COLUMN usage_ms INTEGER NOT NULL DEFAULT 0;

-- The option of an open question that a message picks by its number; "" if none.
ALTER TABLE messages ADD COLUMN option TEXT NOT NULL DEFAULT '';

-- What a session has used, by model and by tool. Every attempt counts, failed and aborted ones too.
CREATE TABLE usage(
	session INTEGER NOT NULL,
	kind TEXT NOT NULL,                 -- model, tool
	name TEXT NOT NULL,
	requests INTEGER NOT NULL,          -- of a tool: calls
	failed INTEGER NOT NULL,
	aborted INTEGER NOT NULL,           -- by stop or by the end of a daemon
	tokens_in INTEGER NOT NULL,         -- all input, cached or not
	tokens_out INTEGER NOT NULL,
	cached INTEGER NOT NULL,
	cost REAL NOT NULL,                 -- by the prices at that time
	unpriced INTEGER NOT NULL,          -- requests with tokens and no known price
	PRIMARY KEY(session, kind, name)
) STRICT, WITHOUT ROWID;

-- Instructions of the project's folders that the model was given in this session.
CREATE TABLE told(session INTEGER NOT NULL, path TEXT NOT NULL, PRIMARY KEY(session, path)) STRICT, WITHOUT ROWID;

-- migration 3

-- Compaction: what a model is told instead of the entries up to cut. The newest with made <= a request's cutoff counts.
CREATE TABLE summaries(
	session INTEGER NOT NULL,
	made INTEGER NOT NULL,              -- seq of the notice that tells of it
	cut INTEGER NOT NULL,               -- the last entry that it stands for
	text TEXT NOT NULL,
	PRIMARY KEY(session, made)
) STRICT, WITHOUT ROWID;
ALTER TABLE requests ADD COLUMN kind TEXT NOT NULL DEFAULT 'turn';      -- turn, or summary: cutoff is its cut
ALTER TABLE sessions ADD COLUMN compact INTEGER NOT NULL DEFAULT 0;     -- wanted: 0 no, else session.h: COMPACT_*
ALTER TABLE sessions ADD COLUMN compact_tries INTEGER NOT NULL DEFAULT 0; -- tries of this summary that gave none
ALTER TABLE sessions ADD COLUMN compact_row INTEGER NOT NULL DEFAULT 0; -- compactions with hardly a turn between them
ALTER TABLE sessions ADD COLUMN compact_turns INTEGER NOT NULL DEFAULT 0; -- turns since the last one
ALTER TABLE sessions ADD COLUMN overflowed INTEGER NOT NULL DEFAULT 0;  -- the request that is due was too long once
ALTER TABLE sessions ADD COLUMN context_tokens INTEGER NOT NULL DEFAULT 0; -- of the newest request and answer, 0 = not told
ALTER TABLE sessions ADD COLUMN context_off INTEGER NOT NULL DEFAULT 0; -- transcript.jsonl's size at that time

-- migration 4

-- What a person was asked to allow, one call and one rule a row.
CREATE TABLE approvals(
	session INTEGER NOT NULL,
	k INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	request INTEGER NOT NULL,           -- of the call
	pos INTEGER NOT NULL,
	rule TEXT NOT NULL,
	text TEXT NOT NULL,                 -- the file approvals/K
	state TEXT NOT NULL,                -- waiting, once, session, project, no, dropped
	reason TEXT NOT NULL,
	PRIMARY KEY(session, k)
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_call ON approvals(session, request, pos);

-- Rules that need no word any more; session 0: in all sessions of the project.
CREATE TABLE grants(
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	session INTEGER NOT NULL,
	project TEXT NOT NULL,
	rule TEXT NOT NULL,
	at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX grants_project ON grants(project, session);
CREATE INDEX grants_session ON grants(session);
ALTER TABLE sessions ADD COLUMN approval INTEGER NOT NULL DEFAULT 0; -- number of the one that waits, 0 = none
ALTER TABLE sessions ADD COLUMN asked INTEGER NOT NULL DEFAULT 0;    -- number of the newest one

-- migration 5

-- attach/: files that go with a message. Their bytes are in attach/SESSION/FILE of the state folder.
CREATE TABLE attachments(
	session INTEGER NOT NULL,
	n INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	name TEXT NOT NULL,
	media TEXT NOT NULL,                -- of an image that is shown to the model; "": a file for the sandbox
	note TEXT NOT NULL,                 -- why an image is none
	size INTEGER NOT NULL,
	file TEXT NOT NULL,
	state TEXT NOT NULL,                -- waiting, sent (with a message, not in the sandbox yet), there, withdrawn
	message INTEGER NOT NULL,
	PRIMARY KEY(session, n)
) STRICT, WITHOUT ROWID;
ALTER TABLE sessions ADD COLUMN attached INTEGER NOT NULL DEFAULT 0; -- number of the newest one

-- migration 6

-- What a session was at the time of a snapshot; its disk is kept beside the sandbox's own.
CREATE TABLE snapshots(
	session INTEGER NOT NULL,
	k INTEGER NOT NULL,
	at_ms INTEGER NOT NULL,
	entries INTEGER NOT NULL,           -- seq of the newest entry
	head TEXT NOT NULL,
	base_branch TEXT NOT NULL,
	base_commit TEXT NOT NULL,
	unsynced INTEGER NOT NULL,
	plan_seq INTEGER NOT NULL,
	plan_size INTEGER NOT NULL,
	answer_seq INTEGER NOT NULL,
	answer_size INTEGER NOT NULL,
	question_size INTEGER NOT NULL,
	PRIMARY KEY(session, k)
) STRICT, WITHOUT ROWID;

-- Entries that a restore has undone: those behind kept, up to made. They stay in the transcript, and no model is told
-- them. The ranges of a session never overlap.
CREATE TABLE undone(
	session INTEGER NOT NULL,
	kept INTEGER NOT NULL,
	made INTEGER NOT NULL,
	bytes INTEGER NOT NULL,             -- of transcript.jsonl
	PRIMARY KEY(session, kept)
) STRICT, WITHOUT ROWID;
CREATE VIEW told_entries AS SELECT * FROM entries AS e WHERE NOT EXISTS(
	SELECT 1 FROM undone AS u WHERE u.session=e.session AND e.seq>u.kept AND e.seq<=u.made);
CREATE VIEW told_summaries AS SELECT * FROM summaries AS e WHERE NOT EXISTS(
	SELECT 1 FROM undone AS u WHERE u.session=e.session AND e.made>u.kept AND e.made<=u.made);

ALTER TABLE sessions ADD COLUMN cloned_from INTEGER NOT NULL DEFAULT 0; -- id of the session that it began as, 0 = none
ALTER TABLE sessions ADD COLUMN snapshots INTEGER NOT NULL DEFAULT 0;   -- number of the newest one
ALTER TABLE sessions ADD COLUMN restoring INTEGER NOT NULL DEFAULT 0;   -- number of the one that is being restored

-- migration 7

-- Sandboxes that were set up for a project at a commit and saved. Their disks are in templates/NUMBER/ID of the cache (template.c).
CREATE TABLE templates(
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL,                 -- PROJECT@COMMIT in the tree
	project TEXT NOT NULL,              -- path of the checkout
	base TEXT NOT NULL,                 -- commit
	kind TEXT NOT NULL,                 -- of the sandbox
	setup TEXT NOT NULL,                -- object of .agents/setup, "" if there is none
	state TEXT NOT NULL,                -- building, ready, failed, old, dropping
	step TEXT NOT NULL,                 -- of a build: starting, cloning, installing, saving
	detail TEXT NOT NULL,               -- why it failed
	parent INTEGER NOT NULL,            -- template that its disk lies on, 0 = the base image
	origin_ms INTEGER NOT NULL,         -- when its chain left the base image
	step_no INTEGER NOT NULL,           -- of a build: which part of the setup runs, and
	seen INTEGER NOT NULL,              -- how much of its output is in the log
	size INTEGER NOT NULL,              -- bytes on the disk
	created_ms INTEGER NOT NULL,
	changed_ms INTEGER NOT NULL,
	log_size INTEGER NOT NULL,
	log_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX templates_project ON templates(project, kind);
CREATE TABLE template_logs(
	template INTEGER NOT NULL,
	off INTEGER NOT NULL,
	line TEXT NOT NULL,
	PRIMARY KEY(template, off)
) STRICT, WITHOUT ROWID;

-- The template that a session's disk began as.
CREATE TABLE template_uses(session INTEGER PRIMARY KEY, template INTEGER NOT NULL) STRICT;

-- migration 8

-- Agents that run in a session's sandbox. A prompt is a row of requests (kind guest) and one here.
ALTER TABLE sessions ADD COLUMN agent TEXT NOT NULL DEFAULT 'none'; -- none: the engine's own turns
CREATE TABLE guests(
	session INTEGER NOT NULL,
	n INTEGER NOT NULL,                 -- of the request
	agent TEXT NOT NULL,
	first INTEGER NOT NULL,             -- entries behind this one, up to the request's cutoff, are the prompt
	prompts INTEGER NOT NULL,           -- it is this agent's so many-th in the session
	off INTEGER NOT NULL,               -- bytes of its output that are in the transcript
	again INTEGER NOT NULL,             -- it goes on with what an earlier one began
	PRIMARY KEY(session, n)
) STRICT, WITHOUT ROWID;

-- The agents' own conversations, by which they remember.
CREATE TABLE guest_talks(
	session INTEGER NOT NULL,
	agent TEXT NOT NULL,
	talk TEXT NOT NULL,                 -- its id; "": none yet
	since INTEGER NOT NULL,             -- the newest entry when it began
	given INTEGER NOT NULL,             -- the last entry that it has answered
	PRIMARY KEY(session, agent)
) STRICT, WITHOUT ROWID;

-- migration 9

-- Sandboxes that nobody needs: when they are paused, go to disk or are stopped (idle.h). Times are CLOCK_REALTIME in ms.
CREATE TABLE idle(
	session INTEGER PRIMARY KEY,
	quiet_ms INTEGER NOT NULL,          -- the session has asked nothing of it since
	busy_ms INTEGER NOT NULL DEFAULT 0, -- when it last said that it is busy, or could not be asked
	worked_ms INTEGER NOT NULL DEFAULT 0, -- when it last used much processor time
	asked_ms INTEGER NOT NULL DEFAULT 0,
	answer INTEGER NOT NULL DEFAULT 0,  -- idle.h: enum idle_answer
	cpu_ms INTEGER NOT NULL DEFAULT -1, -- processor time that it told then, -1 = none
	words TEXT NOT NULL DEFAULT '',     -- why it is kept awake
	waking INTEGER NOT NULL DEFAULT 0,  -- it was woken, and .agents/resume has not ended yet
	wakes INTEGER NOT NULL DEFAULT 0    -- how often it was
) STRICT;

-- migration 10

-- The agents' conversations as the disk of a snapshot has them.
CREATE TABLE snapshot_talks(
	session INTEGER NOT NULL,
	k INTEGER NOT NULL,
	agent TEXT NOT NULL,
	talk TEXT NOT NULL,
	since INTEGER NOT NULL,
	PRIMARY KEY(session, k, agent)
) STRICT, WITHOUT ROWID;
