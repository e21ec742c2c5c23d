#!/bin/sh
# The daemon killed at full poking speed, 40 times (KILLS): nobody is left behind, least of all unkillable, and nothing is
# mounted. Runs the face with tests/unit/fake_backend.c. time limit: 900 s
BERTHFS=$(dirname "${BERTHFS:-$(dirname "$0")/../../build/berthfs}")/tests/berthfs-fake
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/watch.inc"
KILLS=${KILLS:-40}
fake "sessions 200 0" "changes 20000 200"
bad= cut=0 # cut: in how many the poker was in a request
for i in $(seq "$KILLS"); do
	start || { bad="$bad start$i"; break; }
	J=$(janitor)
	within 5 has_poker "$J"
	W=$(poker "$J")
	looked_at
	sleep "0.$((i * 37 % 9))$i"
	timeout 5 sh -c "while :; do stat $S/s-$i/status; done" >"$T/out" 2>&1 &
	client=$!
	own $client
	grep -q "request_wait_answer" "/proc/$W/stack" 2>/dev/null && cut=$((cut + 1))
	kill -9 "$DAEMON"
	within 8 gone "$DAEMON" "$J" "$W" || bad="$bad $i:$(stuck "$DAEMON" "$J" "$W")"
	kill $client 2>/dev/null
	wait $client 2>/dev/null
done
equal "$KILLS kills at full speed: nobody is stuck" "$bad" ""
note "in a request at the kill: $cut"
