#!/bin/sh
# Installs what contrib/packages lists for the uses that are named, as far as it is missing: as root or by sudo. An
# ordinary user without sudo is told what to ask for.
# usage: packages.sh [build] [vm] [test] [bench]
set -u
here=$(cd "$(dirname "$0")" && pwd)
export DEBIAN_FRONTEND=noninteractive

if ! command -v dpkg-query >/dev/null; then
	echo "This is no Debian system. Install what $here/packages lists by your own means." >&2
	exit 0
fi

missing=
for package in $(awk -v uses=" $* " '!/^#/ && NF && index(uses, " " $1 " ") { print $2 }' "$here/packages"); do
	case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
	*"ok installed") ;;
	*) missing="$missing $package" ;;
	esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
	root=
elif command -v sudo >/dev/null; then
	root=sudo
else
	echo "Missing packages, and neither root nor sudo to install them. Ask for:" >&2
	echo "  apt-get install$missing" >&2
	exit 1
fi
log=$(mktemp) || exit 1
watcher=
trap 'rm -f "$log"; [ -z "$watcher" ] || kill $watcher 2>/dev/null' EXIT
trap 'exit 130' INT TERM HUP
echo "Installing (and what they need):$missing"
(
	while sleep 5; do
		awk '/^Get:/ { got++ } /^Unpacking / { un++ } /^Setting up / { up++ }
			END { printf "  ... %d downloaded, %d unpacked, %d set up\n", got, un, up }' "$log"
	done
) &
watcher=$!
install() { $root apt-get -y -q --no-install-recommends -o DPkg::Lock::Timeout=600 install $missing >"$log" 2>&1; }
# The lists of a new machine are empty or old: then they are fetched, and it is tried once more. Once more again, for a new
# machine fetches some by itself meanwhile.
for pause in 0 15; do
	install && exit 0
	sleep $pause
	$root apt-get -q update >"$log" 2>&1
done
install && exit 0
tail -n 20 "$log" >&2
echo "apt-get could not install them; its last lines stand above." >&2
exit 1
