#!/bin/sh
# time limit: 1200 s
# The recipes of contrib/agents, each as it stands: with npm's global folder in the test's own, and a sudo that only runs.
. "$(dirname "$0")/../lib.sh"
have npm || { skip recipes "there is no npm on this machine"; exit 0; }
[ "$(node -p 'parseInt(process.versions.node)')" -ge 20 ] || { skip recipes "they are tried on Node 20"; exit 0; }
mkdir "$T/bin"
printf '#!/bin/sh\nexec "$@"\n' >"$T/bin/sudo"
chmod +x "$T/bin/sudo"
PATH=$T/bin:$T/npm/bin:$PATH npm_config_prefix=$T/npm
export PATH npm_config_prefix
for recipe in "$ROOT"/contrib/agents/*; do
	name=$(basename "$recipe")
	version=$(sed -n 's/.*npm install.*@\([0-9.]*\)$/\1/p' "$recipe" | head -n 1)
	out=$(timeout 600 sh "$recipe" 2>&1) || note "$out"
	contains "$name is installed, $version" "$out" "$version"
	equal "$name is what a session starts" "$(command -v "$name")" "$T/npm/bin/$name"
done
