#!/bin/sh
# Proves that rules.sh finds what it is there to find: in a small clean tree every rule holds, and each planted fault
# makes its own rule fail and no other.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
failed=0

# A tree in which all is well.
clean() {
	rm -rf "$tree/t"
	mkdir -p "$tree/t/fs" "$tree/t/backend/base" "$tree/t/backend/git" "$tree/t/sandbox/guest" "$tree/t/gateway" "$tree/t/tests/unit" "$tree/t/contrib"
	cd "$tree/t" || exit 1
	cp "$here/../../.clang-format" .
	for h in backend/backend.h backend/db.h backend/base/buf.h backend/git/repo.h sandbox/sandbox.h sandbox/mux.h gateway/gateway.h fs/show.h; do
		echo "/* What $h is for. */" > $h
	done
	printf '/* Loop. */\n#include "backend/backend.h"\n#include "show.h"\n' > fs/loop.c
	printf '/* Main. */\n#include "backend/base/buf.h"\n#include "sandbox/sandbox.h"\n' > fs/main.c
	printf '/* Turn. */\n#include "db.h"\n#include "sandbox/sandbox.h"\n' > backend/turn.c
	printf '/* Init. */\n#include "backend/base/buf.h"\n#include "sandbox/mux.h"\n' > sandbox/guest/init.c
	printf '/* Any. */\n#include "backend/db.h"\n#include "sandbox/mux.h"\n' > tests/unit/test_any.c
	printf '/* A URL is no comment. */\nconst char *url = "http://127.0.0.1/"; /* see `//` */\n' > backend/url.c
	printf '#!/bin/sh\necho fine\n' > contrib/try.sh
}

# expect RULE NAME: rules.sh fails at RULE alone.
expect() {
	out=$(sh "$here/rules.sh" . 2>&1)
	bad=$(printf '%s\n' "$out" | sed -n 's/^not ok //p' | tr '\n' ' ')
	if [ "$bad" = "$1" ]; then
		echo "ok $2"
	else
		printf '%s\n' "$out" | sed 's/^/# /'
		echo "not ok $2"
		failed=1
	fi
}

# plant RULE NAME FILE TEXT...: the clean tree with lines appended to FILE.
plant() {
	rule=$1 name=$2 file=$3
	shift 3
	clean
	printf '%s\n' '' "$@" >> "$file"
	expect "${rule:+$rule }" "$name"
}

clean
expect "" clean_tree_passes

plant arrows fs_may_not_reach_the_store fs/loop.c '#include "backend/db.h"'
plant arrows fs_may_not_reach_the_sandbox fs/loop.c '#include "sandbox/sandbox.h"'
plant arrows main_may_not_reach_inside_the_sandbox fs/main.c '#include "sandbox/mux.h"'
plant arrows backend_may_not_reach_inside_the_sandbox backend/turn.c '#include "sandbox/mux.h"'
plant arrows backend_may_not_reach_up backend/turn.c '#include "fs/show.h"'
plant arrows sandbox_may_not_reach_the_backend sandbox/guest/init.c '#include "backend/backend.h"'
plant arrows base_reaches_nothing backend/base/buf.h '#include "backend/db.h"'
plant arrows git_knows_no_session backend/git/repo.h '#include "backend/db.h"'
plant "" backend_uses_git backend/turn.c '#include "backend/git/repo.h"'
plant arrows fs_may_not_reach_git fs/loop.c '#include "backend/git/repo.h"'
plant arrows no_way_around_by_dots backend/base/buf.h '#include "../db.h"'

plant calls system_is_found backend/turn.c 'int f(void);' 'int f(void)' '{' '	return system("true");' '}'
plant calls strcpy_of_a_variable_is_found backend/turn.c 'int f(char *);' 'int f(char *s)' '{' '	strcpy(s, f(s));' '}'
plant calls sleep_is_found_in_tests tests/unit/test_any.c 'int f(void);' 'int f(void)' '{' '	return sleep(1);' '}'
plant calls links_of_processes_are_found fs/loop.c 'const char *link = "/proc/%d/fd/3";'
plant "" strcpy_of_a_literal_is_fine backend/turn.c 'int f(char *);' 'int f(char *s)' '{' '	strcpy(s, "(");' '}'
plant "" words_in_literals_are_fine backend/turn.c 'const char *a = "system(1) // \" /*";'
plant comments slashes_are_found backend/turn.c 'int a; // why'
plant scripts broken_script_is_found contrib/try.sh 'if true; do'
plant blanks tab_after_spaces_is_found contrib/try.sh 'if true; then' "$(printf '  \techo')" 'fi'
plant kill-points point_without_a_test_is_found backend/turn.c 'int f(void);' 'int f(void)' '{' '	return killpoint("turn.now");' '}'
plant words registry_is_found contrib/try.sh "echo deb.$(echo debian).org"
plant words build_path_is_found contrib/try.sh "cd /$(echo work)/main"

clean
printf '\nint f(void);\nint f(void)\n{\n\treturn killpoint("turn.now") + killpoint("ship.then");\n}\n' >> backend/turn.c
printf 'ship.then\n' > tests/crash.sh
printf 'for point in before now; do\n\tBERTHFS_KILL_AT=turn.$point true\ndone\n' > tests/turn.sh
expect "" points_with_tests_are_fine
clean
mkdir extra
expect "folders " strange_folder_is_found
clean
printf 'int a;\n' > backend/turn.c
expect "opening " missing_opening_is_found
clean
awk 'BEGIN { print "/* Long. */"; for (i = 0; i < 600; i++) print "int a" i ";" }' > backend/turn.c
expect "file-length " long_file_is_found
clean
awk 'BEGIN { print "/* Long. */\nint f(void);\nint f(void)\n{"; for (i = 0; i < 60; i++) print "\tf();"; print "\treturn 1;\n}" }' > backend/turn.c
expect "function-length " long_function_is_found
if command -v clang-format-14 > /dev/null || command -v clang-format > /dev/null; then
	plant format bad_format_is_found backend/turn.c 'int  a   ;'
else
	echo "skip bad_format_is_found: no clang-format here"
fi
exit $failed
