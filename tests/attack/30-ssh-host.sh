#!/bin/sh
# The other end of a sandbox of kind ssh:HOST as an enemy: peers that close, flood, lie or say nothing at each step, a host
# that changes our program, its other users. Each has to end in words, in time, with no process left.
# time limit: 900 s
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../e2e/sshd.inc"
# bad HOW: a host of that name with a home and a server of its own, which lets us in and means no good
bad() {
	bad_port=$(free_port)
	mkdir "$T/$1"
	cat >"$T/ssh/$1.forced" <<-END
		#!/bin/sh
		case "$1 \$SSH_ORIGINAL_COMMAND" in
		lie*sftp*) exec python3 "$ROOT/tests/attack/sftp_liar.py" "$T/$1" ;;
		*sftp*) exec /usr/lib/openssh/sftp-server -d "$T/$1" ;;
		uname*uname*) exec yes ;;
		noise*link*) exec cat /dev/urandom ;;
		words*link*) yes these are words >&2 ;;
		said*link*) echo these are words >&2; exit 1 ;;
		mute*link*) exec sleep 300 ;;
		esac
		echo and some noise of a shell first
		exec sh -c "\$SSH_ORIGINAL_COMMAND"
	END
	chmod +x "$T/ssh/$1.forced"
	sshd_start "$1" "$bad_port" "ForceCommand $T/ssh/$1.forced" "Subsystem sftp internal-sftp"
	host "$1" "$bad_port"
}
next=20
# peer NAME MODE [ARGUMENT...]: host NAME is such a peer
peer() {
	peer_name=$1
	shift
	python3 "$ROOT/tests/attack/ssh_peer.py" "$@" >"$T/ssh/$peer_name.port" &
	own $!
	within 60 test -s "$T/ssh/$peer_name.port" || not_ok "the peer $peer_name"
	host "$peer_name" "$(cat "$T/ssh/$peer_name.port")"
}
# attempt NAME HOST: brings a sandbox up and takes it away again, whatever comes of it; words and code in files
attempt() {
	next=$((next + 1))
	(
		timeout 400 "$BOX" up "ssh:$2" $next >"$T/$1.out" 2>&1
		echo $? >"$T/$1.code"
		timeout 400 "$BOX" destroy "ssh:$2" $next >"$T/$1.gone" 2>&1 || echo "destroy failed" >>"$T/$1.code"
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

# ---- all of them at once: peers that do not speak ssh
peers="close banner garbage flood lines drip silent"
for mode in $peers; do
	peer $mode $mode
	attempt $mode $mode
done

# a real server behind somebody who cuts or changes what it says
side_port=$(free_port)
mkdir "$T/side"
sshd_start side "$side_port" "Subsystem sftp internal-sftp -d $T/side"
for n in 0 10 100 1200 1800 2500 4000 6000 9000; do
	peer cut$n cut "$side_port" $n
	peer flip$n flip "$side_port" $n
	attempt cut$n cut$n
	attempt flip$n flip$n
done

# hosts that let us in
hosts="lie uname noise words said mute"
for how in $hosts; do
	bad $how
	attempt $how $how
done
# and in the meantime a good one, but for what its shell says
F=$T/well
bad well
check "a host with a noisy shell" timeout 400 "$BOX" up ssh:well 7
finished

for mode in $peers; do ended $mode "$mode"; done
contains "endless lines: why" "$(cat "$T/lines.out")" "says too much"
for n in 0 10 100 1200 1800 2500; do
	ended cut$n "cut$n"
	# the banner's comment, or a name that is not ours, may be anything
	[ $n -lt 1200 ] || ended flip$n "flip$n"
done
for n in 4000 6000 9000; do
	check "cut and changed after $n bytes: it ends" test -s "$T/cut$n.code" -a -s "$T/flip$n.code"
	equal "cut after $n bytes: taken away" "$(grep -h destroy "$T/cut$n.code" "$T/flip$n.code")" ""
done
ended lie "is not what was put there"
ended uname "says too much"
ended noise "does not answer"
ended words "does not answer: "
ended said "has ended: "
# behind what a shell may say when it starts
for how in words said; do contains "$how: its words" "$(cat "$T/$how.out")" "these are words"; done
ended mute "does not answer"

# ---- our program is changed between two starts: what was put there is put there again
equal "it works" "$("$BOX" run ssh:well 7 'echo "$HOME"')" "$(echo "$F"/.berthfs/*-7/home)"
program=$(echo "$F"/.berthfs/bin/*)
for bridge in $(bridges); do kill -9 "$bridge"; done
for pid in $(far_pids); do kill -9 "$pid"; done
printf '#!/bin/sh\ntouch %s/owned\n' "$T" >"$T/evil" && chmod 700 "$T/evil" && mv "$T/evil" "$program"
check "a changed program is replaced" timeout 400 "$BOX" up ssh:well 7
check "and not started" test ! -e "$T/owned"
equal "its SHA-256 is its name" "$(sha256sum <"$program" | cut -d' ' -f1)" "$(basename "$program")"
equal "the file of a command is still there" "$("$BOX" run ssh:well 7 'pwd')" "$(echo "$F"/.berthfs/*-7/home)"

# ---- kill -9 of the bridge at any moment of its start
for i in 1 2 3 4 5 6 7 8; do
	timeout 400 "$BOX" up ssh:well 8 >/dev/null 2>&1 &
	starting=$!
	python3 -c "import time; time.sleep($i * 0.06)"
	for bridge in $(bridges); do kill -9 "$bridge" 2>/dev/null; done
	wait $starting
done
check "after eight bridges that were killed" timeout 400 "$BOX" up ssh:well 8
equal "one tool daemon serves" "$("$BOX" run ssh:well 8 'echo yes')" yes

# ---- an upload that was cut leaves its half only until the sandbox ends
for bridge in $(bridges); do kill -9 "$bridge"; done
half=$(echo "$F"/.berthfs/bin/*).$(basename "$F"/.berthfs/*-8)
echo half >"$half"
check "destroy with a half program there" timeout 400 "$BOX" destroy ssh:well 8
check "is gone, the other sandbox's program is not" test ! -e "$half" -a -n "$(ls "$F/.berthfs/bin")"
check "that number again" timeout 400 "$BOX" up ssh:well 8

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
within 60 test -S "$T/gateway" || not_ok "a stand-in for the gateway"
"$BOX" up ssh:well 8 "$T/gateway" 2>/dev/null || not_ok "up with a gateway"
url=$("$BOX" url ssh:well 8)
equal "the way to the gateway" "$("$BOX" run ssh:well 8 "curl -s -m 60 $url/")" yes
if [ "$(id -u)" = 0 ]; then
	equal "is not for another user" "$(setpriv --reuid 65534 --regid 65534 --clear-groups curl -s -m 20 "$url/")" ""
fi
for id in 7 8; do timeout 400 "$BOX" destroy ssh:well $id || not_ok "destroy $id"; done
within 120 nothing_runs || not_ok "no process is left"
timeout 400 "$BOX" up ssh:well 9 2>/dev/null && timeout 400 "$BOX" destroy ssh:well 9
equal "nothing is left there" "$(ls -A "$F")" ""
