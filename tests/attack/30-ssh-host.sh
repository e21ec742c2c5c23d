#!/bin/sh
# The other end of a sandbox of kind ssh:HOST as an enemy: peers that close, flood, lie or say nothing at each step, a host
# that changes our program, its other users. Each has to end in words, in time, with no process left.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/sshd.inc"
far_port=$(free_port)
cat >"$T/ssh/forced" <<END
#!/bin/sh
case "\$SSH_ORIGINAL_COMMAND" in
*sftp*) [ "\$(cat "$T/ssh/how")" = lie ] && exec python3 "$ROOT/tests/attack/sftp_liar.py" "$F"; exec /usr/lib/openssh/sftp-server -d "$F" ;;
uname*) [ "\$(cat "$T/ssh/how")" = uname ] && exec yes ;;
*link*) case \$(cat "$T/ssh/how") in
	link) exec cat /dev/urandom ;;
	words) yes these are words >&2; exit 1 ;;
	mute) exec sleep 300 ;;
	esac ;;
esac
echo and some noise of a shell first
exec sh -c "\$SSH_ORIGINAL_COMMAND"
END
chmod +x "$T/ssh/forced"
echo well >"$T/ssh/how"
sshd_start far "$far_port" "ForceCommand $T/ssh/forced" "Subsystem sftp internal-sftp"
host far "$far_port"
next=20
# peer NAME MODE [ARGUMENT...]: host NAME is such a peer
peer() {
	peer_name=$1
	shift
	python3 "$ROOT/tests/attack/ssh_peer.py" "$@" >"$T/ssh/$peer_name.port" &
	own $!
	within 30 test -s "$T/ssh/$peer_name.port" || not_ok "the peer $peer_name"
	host "$peer_name" "$(cat "$T/ssh/$peer_name.port")"
}
# attempt NAME HOST: brings a sandbox up and takes it away again, whatever comes of it; words and code in files
attempt() {
	next=$((next + 1))
	(
		timeout 200 "$BOX" up "ssh:$2" $next >"$T/$1.out" 2>&1
		echo $? >"$T/$1.code"
		timeout 200 "$BOX" destroy "ssh:$2" $next >"$T/$1.gone" 2>&1 || echo "destroy failed" >>"$T/$1.code"
	) &
	attempts="${attempts:-} $!"
}
finished() {
	for attempt in $attempts; do wait "$attempt"; done
	attempts=
}
# ended NAME WORDS: an attempt that failed, in words
ended() {
	equal "$1: it fails, and is taken away" "$(cat "$T/$1.code")" 125
	contains "$1: words" "$(cat "$T/$1.out")" "$2"
}

# ---- peers that do not speak ssh, all at once
for mode in close banner garbage flood lines silent; do
	peer $mode $mode
	attempt $mode $mode
done
finished
for mode in close banner garbage flood lines silent; do ended $mode "$mode"; done

# ---- a real server behind somebody who cuts or changes what it says
for n in 0 10 100 1200 1800 2500 4000 6000 9000; do
	peer cut$n cut "$far_port" $n
	peer flip$n flip "$far_port" $n
	attempt cut$n cut$n
	attempt flip$n flip$n
done
finished
for n in 0 10 100 1200 1800 2500; do
	ended cut$n "cut$n"
	# one bit of the banner's comment or of a name that is not ours may be anything
	[ $n -lt 1200 ] || ended flip$n "flip$n"
done
for n in 4000 6000 9000; do
	check "cut and changed after $n bytes: it ends" test -s "$T/cut$n.code" -a -s "$T/flip$n.code"
	equal "cut after $n bytes: taken away" "$(grep -h destroy "$T/cut$n.code" "$T/flip$n.code")" ""
done

# ---- a host that lets us in and means no good
for how in lie uname link words mute; do
	echo $how >"$T/ssh/how"
	attempt $how far
	finished
done
echo well >"$T/ssh/how"
ended lie "is not what was put there"
ended uname "says too much"
ended link "does not answer"
ended words "has ended: these are words"
ended mute "does not answer"
check "a well-meaning one with a noisy shell" timeout 100 "$BOX" up ssh:far 7
# our program is changed between two starts: what was put there is put there again
equal "it works" "$("$BOX" run ssh:far 7 'echo "$HOME"')" "$(echo "$F"/.berthfs/*-7/home)"
program=$(echo "$F"/.berthfs/bin/*)
for bridge in $(bridges); do kill -9 "$bridge"; done
for pid in $(far_pids); do kill -9 "$pid"; done
printf '#!/bin/sh\ntouch %s/owned\n' "$T" >"$T/evil" && chmod 700 "$T/evil" && mv "$T/evil" "$program"
check "a changed program is replaced" timeout 100 "$BOX" up ssh:far 7
check "and not started" test ! -e "$T/owned"
equal "its SHA-256 is its name" "$(sha256sum <"$program" | cut -d' ' -f1)" "$(basename "$program")"
equal "the file of a command is still there" "$("$BOX" run ssh:far 7 'pwd')" "$(echo "$F"/.berthfs/*-7/home)"

# ---- kill -9 of the bridge at any moment of its start
for i in 1 2 3 4 5 6 7 8; do
	timeout 100 "$BOX" up ssh:far 8 >/dev/null 2>&1 &
	starting=$!
	python3 -c "import time; time.sleep($i * 0.06)"
	for bridge in $(bridges); do kill -9 "$bridge" 2>/dev/null; done
	wait $starting
done
check "after eight bridges that were killed" timeout 100 "$BOX" up ssh:far 8
equal "one tool daemon serves" "$("$BOX" run ssh:far 8 'echo yes')" yes

# ---- other users of that machine find the port
python3 -c '
import http.server, socketserver, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.send_header("Content-Length", "3"); self.end_headers(); self.wfile.write(b"yes")
    def address_string(self): return ""
    def log_message(self, *a): pass
class S(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): pass
S(sys.argv[1], H).serve_forever()' "$T/gateway" &
own $!
within 20 test -S "$T/gateway" || not_ok "a stand-in for the gateway"
"$BOX" up ssh:far 8 "$T/gateway" 2>/dev/null || not_ok "up with a gateway"
url=$("$BOX" url ssh:far 8)
equal "the way to the gateway" "$("$BOX" run ssh:far 8 "curl -s -m 20 $url/")" yes
if [ "$(id -u)" = 0 ]; then
	equal "is not for another user" "$(setpriv --reuid 65534 --regid 65534 --clear-groups curl -s -m 20 "$url/")" ""
fi
for id in 7 8; do timeout 100 "$BOX" destroy ssh:far $id || not_ok "destroy $id"; done
within 20 test -z "$(bridges)$(far_pids)" || not_ok "no process is left"
timeout 100 "$BOX" up ssh:far 9 2>/dev/null && timeout 100 "$BOX" destroy ssh:far 9
equal "nothing is left there" "$(ls -A "$F")" ""
