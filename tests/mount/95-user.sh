#!/bin/sh
# The same as an ordinary user: mounted by fusermount3, other users' processes cannot be looked at. Root runs some of the
# scripts in a mount namespace of its own, where /dev/fuse is open to all as on any desktop. An ordinary user has run
# them already. time limit: 900 s
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" != 0 ]; then
	echo "skip 95-user: all: not root"
	exit 0
fi
if ! unshare -m -p -f --kill-child --mount-proc true 2>/dev/null || ! command -v setpriv >/dev/null || ! command -v fusermount3 >/dev/null; then
	echo "skip 95-user: all: needs unshare -m -p, setpriv and fusermount3"
	exit 0
fi
BERTHFS=${BERTHFS:-$here/../../build/berthfs}
BERTHFS=$(cd "$(dirname "$BERTHFS")" && pwd)/berthfs
[ -x "$BERTHFS" ] || { echo "skip 95-user: all: no program at $BERTHFS"; exit 0; }
uid=65534
box=$(mktemp -d "${TMPDIR:-/tmp}/berthfs-user-XXXXXX")
trap 'rm -rf "$box"' EXIT
chmod 755 "$box"
mkdir "$box/tmp" "$box/bin" "$box/bin/tests"
# The program and the scripts may lie where others cannot go.
cp "$BERTHFS" "$box/bin/berthfs"
cp "$(dirname "$BERTHFS")/tests/berthfs-fake" "$box/bin/tests/"
cp -r "$here/.." "$box/tests"
chown -R $uid:$uid "$box/tmp" "$box/tests"
chmod -R a+rX "$box/tests" "$box/bin"
mknod "$box/fuse" c 10 229
chmod 666 "$box/fuse"
export box uid
# In a pid namespace, too: what root starts for the tests beside it might be the writer's child for all that user may see,
# and then close cannot say what became of the text.
unshare -m -p -f --kill-child --mount-proc sh -c '
mount --make-rprivate / && mount --bind "$box/fuse" /dev/fuse || exit 1
cd / # the folder that the tests were started in may be closed to that user
for t in 10-shapes 12-writers 20-errors 30-waits 40-crash 60-drop 80-slow; do
	TMPDIR=$box/tmp BERTHFS=$box/bin/berthfs setpriv --reuid=$uid --regid=$uid --clear-groups \
		sh "$box/tests/mount/$t.sh" 2>&1
	echo "exit $?"
done
# Others may not look in, root neither; but processes of the user may, also setuid ones.
cd /
' >"$box/out" 2>&1
sed -n -e 's/^ok /ok 95-user: /p' -e 's/^not ok /not ok 95-user: /p' -e 's/^skip /skip 95-user: /p' -e 's/^# /# /p' "$box/out"
! grep -q '^not ok\|^exit [^0]' "$box/out"
