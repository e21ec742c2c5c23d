#!/bin/sh
# The tests' own library: what a test has started is ended with it, and nobody else. A number of a process that has ended
# is soon another's, on a busy machine within a minute, and once it was the daemon of a test beside it.
. "$(dirname "$0")/../lib.sh"
have python3 || { skip all "no python3"; exit 0; }
lives() { kill -0 "$1" 2>/dev/null; }

sleep 1000 &
mine=$!
own $mine
sleep 1000 &
gone=$!
own $gone
kill -9 $gone
wait $gone 2>/dev/null

# Somebody gets the number: clone3() lets root say which.
python3 - $gone >"$T/heir" 2>&1 <<'END' &
import ctypes, os, struct, sys
number = ctypes.c_int(int(sys.argv[1]))
args = struct.pack("11Q", 0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(number), 1, 0)
if os.geteuid() or os.uname().machine not in ("x86_64", "aarch64"):
    print("cannot", flush=True)
    sys.exit()
got = ctypes.CDLL(None, use_errno=True).syscall(435, args, len(args))
if got == 0:
    os.execvp("sleep", ["sleep", "1000"])
print("there" if got == number.value else "cannot: " + os.strerror(ctypes.get_errno()), flush=True)
if got > 0:
    print("ended by", os.waitstatus_to_exitcode(os.waitpid(got, 0)[1]), flush=True)
END
heir=$!
within 60 test -s "$T/heir"
end_owned
wait $mine 2>/dev/null
check "what is ours is ended" is_gone $mine
case $(cat "$T/heir") in
there*)
	check "who got the number of one that has gone lives on" lives $gone
	own $gone
	end_owned
	wait $heir
	equal "and is ended if he is ours" "$(tail -n 1 "$T/heir")" "ended by -9"
	;;
*) skip "who got the number of one that has gone" "$(cat "$T/heir")" ;;
esac
equal "no birth of nobody" "$(born 999999999)" ""
start || exit 1
check "the daemon is known as ours" is_ours "$DAEMON"
