#!/bin/sh
# When a message is there: at once when the command returns, without a look through the mount; and many writers at once.
# Runs the face with tests/unit/fake_backend.c, which appends what it accepts to an ordinary file.
BERTHFS=$(dirname "${BERTHFS:-$(dirname "$0")/../../build/berthfs}")/tests/berthfs-fake
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
start || exit 1
I=$S/s/input
LOG=$T/state/berthfs/messages
export I
: >"$LOG"
count() { wc -l <"$LOG"; }
# early NAME COMMAND: exactly one more message right after it has returned. On a machine so busy that the look for other
# holders of the file takes over 2 s close cannot wait for it: then once more.
came() { [ "$(count)" -gt "$early_before" ]; }
early() {
	for try in 1 2 3 4 5; do
		early_before=$(count)
		bash -c "$2" >/dev/null 2>&1 </dev/null
		early_more=$(($(count) - early_before))
		[ $early_more = 0 ] || break
		within 60 came
	done
	equal "$1: there when it returns" $early_more 1
}
cd "$T" || exit 1
echo text >f
early echo 'echo x >> $I'
early truncate 'echo x > $I'
early heredoc 'cat > $I <<END
a
END'
early group '{ echo a; /bin/echo b; echo err >&2; cat f; } >> $I'
early exec-fd 'exec 3>> $I; echo a >&3; /bin/echo b >&3; exec 3>&-'
early exit-closes 'exec 3>> $I; echo a >&3; /bin/echo b >&3'
early cp 'cp f $I'
early tee 'echo a | tee $I'
early dd 'dd if=f of=$I bs=1'
early python 'python3 -c "open(\"$I\", \"a\").write(\"x\")"'
early perl 'perl -e "open(F, \">>\", \$ENV{I}); print F \"x\"; close F"'
early awk 'awk "BEGIN { print \"x\" > ENVIRON[\"I\"] }"'
early background-wait '{ echo a; (sleep 0.1; echo b) & wait; } >> $I'
early fsync 'python3 -c "
import os
fd = os.open(\"$I\", os.O_WRONLY); os.write(fd, b\"x\"); os.fsync(fd); os._exit(0)"'
early read-back 'python3 -c "
import os, time
fd = os.open(\"$I\", os.O_RDWR); os.write(fd, b\"x\")
assert os.read(fd, 10) == b\"\""'
have vim && early vim 'vim -u NONE -es -c "normal ix" -c wq $I'

# Descriptors that are held open elsewhere do not hold a message up that others have written.
exec 4>>"$I" 5<"$I"
early held-elsewhere 'echo x >> $I'
exec 4>&- 5<&-
# Two opens in one process are two messages.
before=$(count)
bash -c 'exec 3>> $I 4>> $I; echo a >&3; echo b >&4; echo a2 >&3; exec 3>&-; exec 4>&-'
both() { [ $(($(count) - before)) -ge 2 ]; }
within 5 both
equal "two opens of one process" "$(($(count) - before)) $(tail -n 2 "$LOG" | sed 's/.*text//' | tr -d '\n')" \
	'2 ":"a\na2\n"}":"b\n"}'

# ---- many at once: each starts a child that goes on writing after its parent has ended
before=$(count)
for i in $(seq 40); do
	(for j in 1 2 3 4 5; do
		{
			echo "writer $i.$j"
			(
				sleep "0.0$j"
				echo middle
				echo end
			) &
			/bin/echo second
		} >>"$I"
	done) &
done
wait
all() { [ $(($(count) - before)) -ge 200 ]; }
check "200 messages by 40 writers with children" within 30 all
tail -n +$((before + 1)) "$LOG" | python3 -c '
import json, sys
got = [json.loads(l)["text"] for l in sys.stdin]
want = {"writer %d.%d\n" % (i, j) for i in range(1, 41) for j in range(1, 6)}
whole = [t for t in got if t.count("writer") == 1 and sorted(t.split("\n")[1:]) == ["", "end", "middle", "second"]]
print(len(got), len(whole), {t.split("\n")[0] + "\n" for t in whole} == want)' >"$T/py"
equal "each whole, each once" "$(cat "$T/py")" "200 200 True"
before=$(count)
for i in $(seq 20); do (for j in $(seq 20); do echo "m $i.$j" >>"$I"; done) & done
wait
all() { [ $(($(count) - before)) -ge 400 ]; } # under such a load some come with the RELEASE
within 5 all
equal "400 by 20 writers" "$(($(count) - before)) $(tail -n 400 "$LOG" | sort -u | wc -l)" "400 400"
python3 - "$LOG" <<'END' >"$T/py"
import json, re, sys
last = {}
ok = True
for l in open(sys.argv[1]):
    m = re.match(r"m (\d+)\.(\d+)\n$", json.loads(l)["text"])
    if m:
        i, j = map(int, m.groups())
        ok &= j == last.get(i, 0) + 1
        last[i] = j
print(ok)
END
equal "each writer's in order" "$(cat "$T/py")" True
few() { [ "$(ls "/proc/$DAEMON/fd" | wc -l)" -lt 20 ]; } # the last scans may still be looking
check "the daemon holds no file open for all that" within 10 few
