# Reads C files (paths relative to the root) and prints findings: RULE TAB FILE:LINE TAB WORDS.
# It knows no C but this: comments and literals are blanked first, a function's braces stand in column one (clang-format
# sees to that), and a call is a word before a parenthesis.

BEGIN {
	why["system"] = why["popen"] = "runs a shell; use child_run()"
	why["gets"] = "has no bound"
	why["sprintf"] = why["vsprintf"] = "has no bound; use snprintf or buf_addf"
	why["strcat"] = "has no bound; use struct buf"
	why["strtok"] = "keeps hidden state; use strtok_r or strsep"
	why["gmtime"] = why["localtime"] = why["asctime"] = why["ctime"] = "shares one buffer; use the _r form"
	why["rand"] = why["srand"] = "is no source of chance; use getrandom, or a generator with a seed of its own"
	why["tmpnam"] = why["tempnam"] = why["mktemp"] = "races; use mkstemp or mkdtemp"
	why["sleep"] = why["usleep"] = "hopes; wait for the thing itself, or clock_sleep_ms()"
	why["alarm"] = "signals the whole process; use poll() with a time"
	longest_file = 600
	longest_function = 60
}

function found(rule, line, words)
{
	printf "%s\t%s:%d\t%s\n", rule, file, line, words
}

# The line without comments, and with empty literals. in_comment goes on from line to line.
function strip(s,    out, at, c)
{
	out = ""
	while (s != "") {
		if (in_comment) {
			at = index(s, "*/")
			if (!at)
				return out
			s = substr(s, at + 2)
			in_comment = 0
			continue
		}
		if (!match(s, /["'\/]/))
			return out s
		out = out substr(s, 1, RSTART - 1)
		s = substr(s, RSTART)
		c = substr(s, 1, 2)
		if (c == "/*") {
			in_comment = 1
			s = substr(s, 3)
		} else if (c == "//") {
			found("comments", FNR, "`//` comment; write /* */")
			return out
		} else if (match(s, /^"([^"\\]|\\.)*"/) || match(s, /^'([^'\\]|\\.)[^']*'/)) {
			c = substr(s, 1, 1)
			out = out c c
			s = substr(s, RLENGTH + 1)
		} else {
			out = out substr(s, 1, 1)
			s = substr(s, 2)
		}
	}
	return out
}

function area(path)
{
	if (match(path, /^backend\/(base|git|parse)\//))
		return substr(path, 9, RLENGTH - 9)
	return substr(path, 1, index(path, "/") - 1)
}

function arrow_ok(to,    from, into)
{
	from = area(file)
	into = area(to)
	if (from == "tests" || from == into || (into == "base" && from != "base"))
		return 1
	if (from == "backend")
		return to == "sandbox/sandbox.h" || to == "gateway/gateway.h" || into == "git" || into == "parse"
	if (from == "fs" && file == "fs/main.c" && (to == "sandbox/sandbox.h" || to == "gateway/gateway.h"))
		return 1
	return from == "fs" && to == "backend/backend.h"
}

function include(line,    to)
{
	to = line
	sub(/^#[ \t]*include[ \t]*"/, "", to)
	sub(/".*/, "", to)
	if (to ~ /\.\.\//) {
		found("arrows", FNR, "include " to ": write the path from the root")
		return
	}
	if (to !~ /^(fs|backend|sandbox|gateway|tests)\//) {
		sub(/[^\/]*$/, "", dir)
		to = dir to
	}
	if (!arrow_ok(to))
		found("arrows", FNR, area(file) " may not include " to)
}

function calls(code, raw,    word, rest)
{
	rest = code
	while (match(rest, /[A-Za-z_][A-Za-z_0-9]*\(/)) {
		word = substr(rest, RSTART, RLENGTH - 1)
		if ((word in why) && substr(rest, RSTART - 1, 1) !~ /[.>]/)
			found("calls", FNR, word "() " why[word])
		rest = substr(rest, RSTART + RLENGTH)
	}
	if (code ~ /(^|[^A-Za-z_0-9])strcpy\(.*[^"]\)/ && code !~ /strcpy\([^"]*""\)/ && code !~ /\?[^"]*"" : ""\)/)
		found("calls", FNR, "strcpy() of what is no literal; use snprintf or memcpy with a length")
}

# A link under /proc/PID may be read by no thread that a FLUSH waits for: it deadlocks. The one reader of cwd is known.
function proc_links(raw)
{
	if (file !~ /^(fs|backend)\// || raw !~ /"\/proc\/%[^\/]*\/(fd|exe|root|cwd)["\/]/)
		return
	if (file == "backend/clerk.c" && raw ~ /\/cwd"/)
		return
	found("calls", FNR, "a link under /proc/PID; reading it can deadlock with a writer that waits in the mount")
}

function file_end()
{
	if (file != "" && last > longest_file)
		found("file-length", last, last " lines; at most " longest_file)
}

FNR == 1 {
	file_end()
	file = FILENAME
	in_comment = open_at = 0
	if ($0 !~ /^\/\*/)
		found("opening", 1, "no comment that says what the file is responsible for")
}

{
	last = FNR
	code = strip($0)
	dir = file
	if ($0 ~ /^#[ \t]*include[ \t]*"/)
		include($0)
	else if (code !~ /^#/)
		calls(code, $0)
	proc_links($0)
	if (code ~ /^\{/)
		open_at = FNR
	if (code ~ /^\}/ && open_at) {
		if (FNR - open_at - 1 > longest_function)
			found("function-length", open_at, FNR - open_at - 1 " lines; at most " longest_function)
		open_at = 0
	}
}

END { file_end() }
