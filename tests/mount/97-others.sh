#!/bin/sh
# Who may use the tree: the mounting user alone, or others to read with allow_other.
. "$(dirname "$0")/../lib.sh"
if [ "$(id -u)" != 0 ] || ! have setpriv; then
	skip all "needs root and setpriv"
	exit 0
fi
chmod 755 "$T"
mkdir -p "$T/state/berthfs" # as an administrator would make it
chmod 755 "$T/state/berthfs"
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
start || exit 1
equal "others may not enter" "$(errno_of nobody ls "$M") $(errno_of nobody cat "$M/README")" "EACCES EACCES"
equal "nor read what is kept" "$(cd "$T/state" && stat -c '%a' berthfs berthfs/berthfs.db berthfs/berthfs.db-wal | tr '\n' ' ')" \
	"700 600 600 "
stop
start -o allow_other || exit 1
session s hello
check "allow_other: others may read" nobody grep -q hello "$S/s/transcript"
check "and list" nobody ls "$S" >/dev/null
equal "but not send" "$(errno_of nobody sh -c "exec 3>> $S/s/input")" EACCES
equal "nor command" "$(errno_of nobody sh -c "exec 3> $S/s/ctl")" EACCES
equal "nor change settings" "$(errno_of nobody sh -c "exec 3> $S/s/settings/network")" EACCES
equal "nor config" "$(errno_of nobody truncate -s 0 "$M/config")" EACCES
equal "nor give a key" "$(errno_of nobody sh -c "exec 3> $M/gateway/keys/x") $(errno_of nobody ls "$M/gateway/keys")" "EACCES EACCES"
equal "nor change the policy" "$(errno_of nobody sh -c "exec 3>> $M/gateway/policy")" EACCES
equal "nor create" "$(cd / && errno_of nobody touch "$S/new/x")" EACCES
equal "nor end" "$(errno_of nobody rmdir "$S/s")" EACCES
equal "nor rename" "$(errno_of nobody mv "$S/s" "$S/t")" EACCES
equal "nor register" "$(errno_of nobody ln -s / "$M/projects/x")" EACCES
equal "nor clear errors" "$(errno_of nobody sh -c ": > $M/error")" EACCES
equal "access(2) tells the same" "$(nobody sh -c "test -w $S/s/input || test -w $S/new || test -r $S/s/plan && echo r")" r
equal "nothing has changed" "$(ls "$S" | tr '\n' ' ')" "new s "
