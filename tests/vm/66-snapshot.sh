#!/bin/sh
# time limit: 900 s
# Snapshots and clones of sessions whose sandbox is a VM: one that hibernates, one that runs; and what hibernates goes on.
. "$(dirname "$0")/../lib.sh"
look='{"tools":[{"name":"bash","input":{"command":"cat loose; cat /etc/machine-id; hostname; readlink /proc/$(cat ~/pid)/exe || echo no process"}}]}
{"text":"seen"}'
{
	echo '{"tools":[{"name":"bash","input":{"command":"echo one >loose; (setsid sleep 100000 >/dev/null 2>&1 & echo $! >~/pid); sleep 0.2"}}]}'
	echo '{"text":"written"}'
	echo "$look"
	echo '{"tools":[{"name":"bash","input":{"command":"echo two >loose"}}]}'
	echo '{"text":"written"}'
	echo "$look"
	echo "$look"
} >"$T/script"
echo "$look" >"$T/look"
use_vm
start || exit 1
idle() { timeout 300 cat "$S/$1/wait/idle" >/dev/null || { not_ok "$1 is idle"; cat "$S/$1/log"; exit 1; }; }
sandbox_is() { [ "$(cat "$S/$1/sandbox")" = "$2" ]; }
# result NAME: what the newest tool call printed
result() { python3 -c 'import json, sys
print([e["text"] for e in map(json.loads, open(sys.argv[1])) if e["kind"] == "tool_result"][-1])' "$S/$1/transcript.jsonl"; }

(cd "$P" && echo hello >"$S/new/a")
idle a
check "ctl hibernate" sh -c "echo hibernate >'$S/a/ctl'"
hibernates() { # refused while the guest has not closed its end of the last connection, so it is asked again
	sandbox_is a "vm hibernated" || echo hibernate >"$S/a/ctl"
	idle a
	sandbox_is a "vm hibernated"
}
check "it hibernates" within 120 hibernates
printf -- '---\nfrom: a\nmodel: script:%s\n---\nlook\n' "$T/look" >"$S/new/b"
idle b
b=$(result b)
contains "a clone of one that hibernates has its files" "$b" one
contains "and a name of its own" "$b" "
b
"
contains "but not its processes" "$b" "no process"
echo look >>"$S/a/input"
idle a
a=$(result a)
contains "the other one goes on as it was" "$a" /sleep
check "they are two machines" [ "$(printf '%s\n' "$a" | sed -n 2p)" != "$(printf '%s\n' "$b" | sed -n 2p)" ]
echo snapshot >"$S/a/ctl"
idle a
echo change >>"$S/a/input"
idle a
echo look >>"$S/a/input"
idle a
contains "work goes on after a snapshot" "$(result a)" two
contains "in the same machine" "$(result a)" /sleep
echo restore 1 >"$S/a/ctl"
idle a
check "after a restore it is down" sandbox_is a "vm down"
echo look >>"$S/a/input"
idle a
contains "and has the files of then" "$(result a)" one
equal "in the same machine" "$(result a | sed -n 2p)" "$(printf '%s\n' "$a" | sed -n 2p)"
for name in a b; do echo destroy force >"$S/$name/ctl"; done
gone() { [ -z "$(ls "$T/state/berthfs/sandboxes")" ]; }
check "and leaves nothing" within 60 gone
