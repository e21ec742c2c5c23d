#!/bin/sh
# contrib/try.sh: twice, under a changed HOME, as an ordinary user, interrupted, and where it cannot work.
# KIND=vm: as root and as an ordinary user, in VMs. time limit: 900 s
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
kind=${KIND:-dir}
BERTHFS=${BERTHFS:-$root/build/berthfs}
BERTHFS=$(cd "$(dirname "$BERTHFS")" && pwd)/berthfs
[ -x "$BERTHFS" ] || { echo "skip 30-try: no program at $BERTHFS; build first"; exit 0; }
images=${XDG_CACHE_HOME:-$HOME/.cache}/berthfs
box=$(mktemp -d "${TMPDIR:-/tmp}/berthfs-try-XXXXXX") || exit 1
# However it ends: what the script under test has left is ended, too.
end() {
	trap '' INT TERM HUP
	trap - EXIT
	for pid in $(left); do kill -9 "$pid" 2>/dev/null; done
	for dir in $(awk -v box="$box/" 'index($5, box) == 1 { print $5 }' /proc/self/mountinfo); do umount -l "$dir"; done
	rm -rf "$box"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
failed=0
uid=65534

ok() { echo "ok 30-try: $1"; }
not_ok() {
	echo "not ok 30-try: $1"
	sed 's/^/# /' "$box/out"
	failed=1
}
# The program and the scripts where everybody may go, and a home and a folder for temporary files.
chmod 755 "$box"
mkdir "$box/bin" "$box/home" "$box/tmp" "$box/src"
cp "$BERTHFS" "$box/bin/berthfs"
cp -r "$root/contrib" "$box/src/contrib"
chmod -R a+rX "$box/bin" "$box/src"
chmod 1777 "$box/tmp"

# try COMMAND...: runs it with nothing of this environment but what is given here.
try() { env -i PATH="$PATH" TERM=dumb TMPDIR="$box/tmp" BERTHFS="$box/bin/berthfs" TRY_SANDBOX="$kind" "$@" >"$box/out" 2>&1 </dev/null; }
# good NAME: the last run told the whole story and left nothing.
good() {
	if [ "$2" = 0 ] && grep -q '^landed main' "$box/out" && grep -q '^pass	' "$box/out" &&
		[ "$(grep -c 'total: count the first price too' "$box/out")" -ge 3 ] && grep -q 'That was all' "$box/out"; then
		ok "$1"
	else
		not_ok "$1 (code $2)"
	fi
	clean "$1"
}
left() { for p in /proc/[0-9]*; do { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -q "$box/tmp/" && echo "${p#/proc/}"; done; }
clean() {
	tries=0
	while [ -n "$(left)" ] && [ $tries -lt 600 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	if [ -z "$(ls -A "$box/tmp")" ] && ! grep -q "$box/tmp" /proc/self/mountinfo && [ -z "$(left)" ]; then
		ok "$1: nothing is left"
	else
		{ ls -AR "$box/tmp"; cat "$box/tmp"/*/state/berthfs/log; grep "$box/tmp" /proc/self/mountinfo; left; } >"$box/out"
		not_ok "$1: nothing is left"
		for pid in $(left); do kill -9 "$pid" 2>/dev/null; done
		rm -rf "$box/tmp"/*
	fi
}

if [ "$kind" = vm ]; then
	mkdir -p "$box/home/.cache"
	ln -s "$images" "$box/home/.cache/berthfs"
fi
try HOME="$box/home" sh "$box/src/contrib/try.sh"
good "a changed HOME" $?
try HOME="$box/home" sh "$box/src/contrib/try.sh"
good "and again" $?
[ "$(ls -A "$box/home")" = "$([ "$kind" = vm ] && echo .cache)" ] || [ "$(ls -A "$box/home")" = .cache ] && ok "HOME has the cache and nothing else" ||
	not_ok "HOME has the cache and nothing else"

# ---- an ordinary user, in a mount namespace where /dev/fuse is open to all, as udev makes it
if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
	echo "skip 30-try: as an ordinary user: not root, so this was one"
else
	mkdir -p "$box/user/.cache"
	# its own copy of the image: another user's folder is closed to it
	if [ "$kind" = vm ]; then cp -r "$images" "$box/user/.cache/berthfs"; fi
	chown -R $uid:$uid "$box/user"
	mknod "$box/fuse" c 10 229
	chmod 666 "$box/fuse"
	try HOME="$box/user" unshare -m sh -c "mount --make-rprivate / && mount --bind '$box/fuse' /dev/fuse &&
		exec setpriv --reuid=$uid --regid=$uid --clear-groups --inh-caps=-all sh '$box/src/contrib/try.sh'"
	good "as an ordinary user" $?
	if [ "$kind" = dir ]; then
		try HOME="$box/user" setpriv --reuid=$uid --regid=$uid --clear-groups sh "$box/src/contrib/try.sh"
		code=$?
		if [ -w /dev/fuse ] && [ "$(stat -c %a /dev/fuse)" = 666 ]; then
			good "as an ordinary user of this machine" $code
		elif [ $code != 0 ] && grep -q /dev/fuse "$box/out"; then
			ok "where /dev/fuse is closed it says so"
			clean "where /dev/fuse is closed"
		else
			not_ok "where /dev/fuse is closed it says so"
		fi
	fi
fi
[ "$kind" = dir ] || exit $failed

# ---- interrupted at some moments: by Ctrl-C, that is SIGINT to the whole group
for after in 'berthfs mount berth' 'wait/idle' '  [.][.][.] ' 'wait/shipped'; do
	: >"$box/out"
	env -i PATH="$PATH" HOME="$box/home" TMPDIR="$box/tmp" BERTHFS="$box/bin/berthfs" TRY_SANDBOX=dir \
		setsid python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp("sh", ["sh", sys.argv[1]])' "$box/src/contrib/try.sh" >"$box/out" 2>&1 </dev/null &
	pid=$!
	tries=0
	while ! grep -q "$after" "$box/out" && [ $tries -lt 600 ]; do
		tries=$((tries + 1))
		sleep 0.02
	done
	kill -INT -$pid
	wait $pid
	code=$?
	if [ $code = 130 ]; then ok "interrupted at $after"; else not_ok "interrupted at $after (code $code)"; fi
	clean "interrupted at $after"
done

# ---- the words of what is missing
mkdir "$box/few"
for p in sh dirname awk id cat mktemp rm sed tail ls env; do ln -s "$(command -v $p)" "$box/few/$p"; done
cat >"$box/few/dpkg-query" <<'END'
#!/bin/sh
case $* in *libfuse3-dev*) echo "deinstall ok config-files" ;; *) echo "install ok installed" ;; esac
END
chmod +x "$box/few/dpkg-query"
env -i PATH="$box/few" HOME="$box/home" TMPDIR="$box/tmp" "$(command -v setpriv)" --reuid=$uid --regid=$uid --clear-groups \
	sh "$box/src/contrib/packages.sh" build vm >"$box/out" 2>&1
if [ $? = 1 ] && grep -q '^  apt-get install libfuse3-dev$' "$box/out"; then
	ok "without root and sudo it says what is missing"
else
	not_ok "without root and sudo it says what is missing"
fi
env -i PATH="$PATH" HOME="$box/home" TRY_SANDBOX=moon sh "$box/src/contrib/try.sh" >"$box/out" 2>&1
if [ $? = 64 ]; then ok "an unknown sandbox"; else not_ok "an unknown sandbox"; fi
exit $failed
