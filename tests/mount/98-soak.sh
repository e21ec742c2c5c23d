#!/bin/sh
# Eight random clients that write, read, watch, rename and are killed, while the daemon is ended, killed and mounted
# again: SOAK seconds of it (30). See soak.py. time limit: 400 s
. "$(dirname "$0")/../lib.sh"
have python3 && have inotifywait || { skip all "needs python3 and inotifywait"; exit 0; }
SOAK=${SOAK:-30} SEED=${SEED:-$(date +%s)}
note "seed $SEED"
if [ -z "${SOAK_RSS_KIB:-}" ] && grep -qE '__(asan|tsan)_init' "$BERTHFS"; then
	SOAK_RSS_KIB=2000000 # their shadow and quarantine count
	export SOAK_RSS_KIB
fi
: >"$T/script" # each request is answered "(script ended)"
mkdir "$T/soak" "$M"
timeout $((SOAK * 2 + 300)) python3 "$(dirname "$0")/soak.py" run "$M" "$T/soak" "$P" "$SOAK" "$SEED" "$BERTHFS" >"$T/out" 2>&1
code=$?
while read -r word rest; do
	case $word in
	ok) ok "$rest" ;;
	not) not_ok "${rest#ok }" ;;
	*) note "${word#\#} $rest" ;;
	esac
done <"$T/out"
equal "the soak ends" "$code" 0
# Clients have been told to end; what they started has to go with them.
left() { ps -e -o pid=,args= | awk -v t="$T/" 'index($0, t) && !/tool-daemon|awk/ && (/soak.py/ || /cat / || /inotifywait/) { print }'; }
none_left() { [ -z "$(left)" ]; }
within 10 none_left || {
	not_ok "no process is left"
	left | sed 's/^/# /'
	for pid in $(left | awk '{ print $1 }'); do kill -9 "$pid" 2>/dev/null; done
}
