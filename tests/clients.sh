#!/bin/sh
# Installs what tests/clients lists, once, into the user's cache, and prints the folder: DIR/bin/PROGRAM, and
# DIR/node_modules for what a program of Node's imports. Several tests may ask at the same time.
set -u
here=$(cd "$(dirname "$0")" && pwd)
case $(uname -m) in
x86_64) arch=x64 opencode=x64-baseline ;;
aarch64) arch=arm64 opencode=arm64 ;;
*) echo "no clients for a $(uname -m)" >&2; exit 1 ;;
esac
command -v npm >/dev/null || { echo "npm is not installed" >&2; exit 1; }
cache=${CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/berthfs-tests
dir=$cache/clients-$(cat "$here/clients" "$0" | cksum | cut -d ' ' -f 1)
mkdir -p "$cache" || exit 1
exec 8>"$cache/lock"
flock 8
if [ ! -e "$dir/done" ]; then
	rm -rf "$cache"/clients-* # of other versions, or cut off
	mkdir -p "$dir/bin" && cd "$dir" && echo '{"private":true}' >package.json || exit 1
	set --
	for package in $(sed "s/^#.*//; s/ARCH/$arch/; s/OPENCODE/$opencode/" "$here/clients" | awk 'NF { print $2 }'); do
		set -- "$@" "$package"
	done
	# No install script runs: each program is in its package as it is.
	for try in 1 2 3; do
		npm install --no-audit --no-fund --ignore-scripts --loglevel error "$@" >npm.log 2>&1 && break
		[ $try != 3 ] || { tail -n 5 npm.log >&2; exit 1; }
	done
	for program in claude opencode codex; do
		found=$(find node_modules -type f -path "*$program*" \( -name "$program" -o -name "$program.exe" \) -size +50M | head -n 1)
		[ -n "$found" ] && chmod +x "$found" && ln -s "../$found" "bin/$program" || { echo "no program $program in its package" >&2; exit 1; }
	done
	ln -s ../node_modules/.bin/pi bin/pi
	touch done
fi
echo "$dir"
