#!/bin/sh
# Builds berthfs and runs its tests: every suite, or those that are named, or single tests of them.
#
#   sh tests/run.sh                      all of the default suites
#   sh tests/run.sh unit mount           two suites
#   sh tests/run.sh unit/test_engine     one test; more: mount/20-reads e2e/10-main
#   sh tests/run.sh sanitize long bench  suites that are not in the default set
#
# A test is a program that prints lines `ok NAME`, `not ok NAME` or `skip NAME: why`. One that ends with an error and has
# not said what was wrong counts as failed, and so does one that runs longer than its limit (600 s, or what the line
# "time limit: N s" in its source says). Tests run side by side, JOBS at once (default: one more than there are processors, at
# most 4, for many of them mostly wait), those of VMs three at once, and those with the line "runs alone" alone. The last
# line is `N passed, N failed, N skipped`.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
default="lint unit gateway mount e2e attack crash vm fuzz"
all="$default sanitize long bench"
default_limit=600
grace=45 # seconds between SIGTERM and SIGKILL: a test tidies up in them

usage() {
	echo "usage: tests/run.sh [SUITE | SUITE/TEST]...   suites: $all" >&2
	exit 64
}
[ $# -gt 0 ] || set -- $default
for word; do
	case " $all " in
	*" ${word%%/*} "*) ;;
	*) usage ;;
	esac
done

passed=0 failed=0 skipped=0
cores=$(nproc)
most=${JOBS:-$((cores < 3 ? cores + 1 : 4))} # tests at once
jobs=$most running=0 started=0
TMPDIR=$(mktemp -d /tmp/bt.XXXXXX) || exit 1 # also the mark by which the processes of this run are known
export TMPDIR
mkdir "$TMPDIR/run"
mkdir "$TMPDIR/reports" # of sanitizers, from daemons too
chmod 1777 "$TMPDIR/reports"
chmod 755 "$TMPDIR" # tests of an ordinary user have to get in
mkfifo "$TMPDIR/run/ended" # numbers of tests that have ended
exec 9<>"$TMPDIR/run/ended"
tidy() {
	trap - EXIT INT TERM HUP
	for file in "$TMPDIR"/run/[0-9]*/pid; do
		[ ! -f "$file" ] || kill -TERM "$(cat "$file")" 2>/dev/null
	done
	wait
	rm -rf --one-file-system "$TMPDIR"
}
trap 'tidy' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- one test ----

count() { grep -c "^$1 " "$2"; }

limit_of() {
	limit=$(sed -n 's/.*time limit: \([0-9]*\) s.*/\1/p' "$1" 2>/dev/null | head -n 1)
	echo $((${limit:-$default_limit} * ${slower:-1}))
}

# run_one NAME LIMIT DIR COMMAND...: in a session of its own, so that a hanging one ends with all that it started. Output and
# verdict are left in DIR.
run_one() {
	name=$1 limit=$2 dir=$3
	shift 3
	out=$dir/out
	from=$(date +%s)
	setsid timeout -k $grace "$limit" "$@" >"$out" 2>&1 </dev/null 9>&- &
	runner=$!
	echo $runner >"$dir/pid"
	wait $runner
	code=$?
	rm -f "$dir/pid"
	echo $(($(date +%s) - from)) >"$dir/seconds"
	for pid in $(ps -s $runner -o pid= 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
	for report in "$TMPDIR"/reports/*; do
		[ -f "$report" ] || continue
		sed 's/^/# /' "$report" | head -n 80 >>"$out"
		echo "not ok $name: a sanitizer's report" >>"$out"
		rm -f "$report"
	done
	bad=$(count "not ok" "$out")
	if [ $code = 124 ] || [ $code = 137 ]; then
		echo "not ok $name: it did not end within $limit s" >>"$out"
	elif [ $code != 0 ] && [ "$bad" = 0 ]; then
		echo "not ok $name: it ended with code $code" >>"$out"
	elif [ "$bad" = 0 ] && ! grep -qE '^(ok|skip) ' "$out"; then
		echo "not ok $name: it printed no result" >>"$out"
	fi
}

# Waits for the end of any test that runs, and counts it.
reap() {
	read -r ended <&9
	running=$((running - 1))
	note_result "$(cat "$TMPDIR/run/$ended/name")" "$(cat "$TMPDIR/run/$ended/seconds")" "$TMPDIR/run/$ended/out"
	rm -rf "$TMPDIR/run/$ended"
}
drain() { while [ $running -gt 0 ]; do reap; done; }

# run_test NAME SOURCE COMMAND...: begins a test as soon as there is room for it.
run_test() {
	alone=
	if grep -q "runs alone" "$2" 2>/dev/null; then
		alone=1
		drain
	fi
	[ $running -lt $jobs ] || reap
	started=$((started + 1)) running=$((running + 1))
	mkdir "$TMPDIR/run/$started"
	echo "$1" >"$TMPDIR/run/$started/name"
	test_name=$1 limit=$(limit_of "$2")
	shift 2
	(
		trap - EXIT INT TERM HUP
		run_one "$test_name" "$limit" "$TMPDIR/run/$started" "$@"
		echo $started >&9
	) &
	[ -z "$alone" ] || drain
}

# note_result NAME SECONDS OUT: shows and counts.
note_result() {
	bad=$(count "not ok" "$3")
	echo "--- $1, $2 s"
	if [ "$bad" = 0 ]; then grep -aE '^(ok|skip) ' "$3"; else cat "$3"; fi
	passed=$((passed + $(count ok "$3")))
	failed=$((failed + bad))
	skipped=$((skipped + $(count skip "$3")))
	echo "$2 $1" >>"$TMPDIR/run/times"
	[ "$bad" = 0 ] || grep -a "^not ok " "$3" | sed "s,^not ok ,$1: ," >>"$TMPDIR/run/failures"
}

# wanted SUITE/TEST: is it the suite's turn as a whole, or this test's?
wanted() { [ -z "$only" ] || [ "$only" = "${1#*/}" ]; }

# scripts SUITE: each script of tests/SUITE, by the shell that its first line names.
scripts() {
	for file in tests/"$1"/*.sh; do
		test_name=$1/$(basename "$file" .sh)
		[ -f "$file" ] && wanted "$test_name" || continue
		found=1
		case $(head -n 1 "$file") in
		*bash*) run_test "${label:-}$test_name" "$file" bash "$file" ;;
		*) run_test "${label:-}$test_name" "$file" sh "$file" ;;
		esac
	done
}

# programs SUITE BUILD: each tests/SUITE/test_*.c, as built.
programs() {
	for file in tests/"$1"/test_*.c; do
		test_name=$1/$(basename "$file" .c)
		[ -f "$file" ] && wanted "$test_name" || continue
		found=1
		run_test "${label:-}$test_name" "$file" "$2/tests/$(basename "$file" .c)"
	done
}

# ---- builds ----

# build DIR [OPTION...]: sets it up once, compiles; its output is shown if it fails. Warnings are errors in the plain
# build alone: with sanitizers the compiler warns of code that it has itself put in.
build() {
	dir=$1
	shift
	log=$TMPDIR/run/build
	from=$(date +%s)
	if { [ -f "$dir/build.ninja" ] || meson setup "$dir" "$@" >"$log" 2>&1; } &&
		meson compile -C "$dir" >"$log" 2>&1; then
		echo "built $dir, $(($(date +%s) - from)) s"
		return 0
	fi
	cat "$log"
	echo "not ok build of $dir"
	failed=$((failed + 1))
	echo "build of $dir" >>"$TMPDIR/run/failures"
	return 1
}

# ---- suites ----

suite_lint() { scripts lint; }
suite_unit() { programs unit build; }
# Clients from npm are fetched before the tests' clocks run, once for all (they stay in the user's cache).
fetch_clients() {
	command -v npm >/dev/null || return
	from=$(date +%s)
	sh tests/clients.sh >/dev/null && echo "the clients are there, $(($(date +%s) - from)) s"
}
suite_gateway() {
	if wanted gateway/70-clients || wanted gateway/72-agents; then fetch_clients; fi
	scripts gateway
}
suite_mount() { scripts mount; }
suite_e2e() { scripts e2e; }
suite_crash() { scripts crash; }
suite_attack() {
	programs attack build
	scripts attack
}
suite_long() { scripts long; }

# Figures are for reading: they are shown as they come, and only a program that fails counts.
suite_bench() {
	drain
	for file in tests/bench/bench_*.c tests/bench/*.sh; do
		test_name=bench/$(basename "${file%.*}")
		[ -f "$file" ] && wanted "$test_name" || continue
		found=1
		from=$(date +%s)
		case $file in
		*.c) build/tests/"$(basename "$file" .c)" ;;
		*) sh "$file" ;;
		esac && echo "ok $test_name" >"$TMPDIR/run/out" || echo "not ok $test_name" >"$TMPDIR/run/out"
		note_result "$test_name" $(($(date +%s) - from)) "$TMPDIR/run/out"
	done
}

# The base image is made before the tests' clocks run, once for all (it stays in the user's cache).
suite_vm() {
	found=1
	from=$(date +%s)
	if ! build/berthfs image build; then
		echo "not ok the base image cannot be built" >"$TMPDIR/run/out"
		note_result vm/image $(($(date +%s) - from)) "$TMPDIR/run/out"
		return
	fi
	echo "the base image is there, $(($(date +%s) - from)) s"
	drain
	[ $most -lt 3 ] || jobs=3 # a VM keeps a processor busy, and its test waits at times
	programs vm build
	scripts vm
	drain
	jobs=$most
}

# Some seconds each: by the fuzzing engine where clang has it, else the seeds alone.
suite_fuzz() {
	fuzz_build=build
	if echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return !p && n; }' >"$TMPDIR/run/f.c" &&
		clang -fsanitize=fuzzer,address "$TMPDIR/run/f.c" -o "$TMPDIR/run/f" 2>/dev/null; then
		CC=clang build build-fuzz -Db_sanitize=address,undefined -Db_lundef=false \
			-Dc_args=-fsanitize=fuzzer-no-link || return
		fuzz_build=build-fuzz
	fi
	for file in tests/fuzz/fuzz_*.c; do
		target=$(basename "$file" .c)
		[ -f "$file" ] && wanted "fuzz/$target" || continue
		found=1
		run_test "fuzz/$target" "$file" sh tests/fuzz/run-one.sh "$fuzz_build/tests/$target" "$target" \
			"$([ $fuzz_build = build ] && echo replay || echo fuzz)"
	done
}

# The unit and mount suites again, with checks compiled in.
suite_sanitize() {
	found=1
	drain
	slower=3 jobs=1 # a report belongs to the test that runs
	for kind in asan tsan; do
		case $kind in
		asan) build build-asan -Db_sanitize=address,undefined || continue ;;
		tsan) build build-tsan -Db_sanitize=thread || continue ;;
		esac
		label="$kind/"
		export BERTHFS="$root/build-$kind/berthfs"
		report=log_path=$TMPDIR/reports/san
		export ASAN_OPTIONS=$report:detect_stack_use_after_return=1:fast_unwind_on_malloc=0
		export UBSAN_OPTIONS=$report:halt_on_error=1:print_stacktrace=1
		export TSAN_OPTIONS=$report:second_deadlock_stack=1
		[ $kind = tsan ] || export SOAK="${SOAK:-600}"
		programs unit "build-$kind"
		# A daemon under load is unwound by frame pointers, or each malloc costs more than the work that it is for.
		ASAN_OPTIONS=$ASAN_OPTIONS:fast_unwind_on_malloc=1
		scripts mount
		drain
		unset BERTHFS SOAK
	done
	label= slower= jobs=$most
}

# ---- what is left ----

# Processes that carry the mark of this run, and those whose parent does.
marked() {
	for proc in /proc/[0-9]*; do
		pid=${proc#/proc/}
		words=$(cat "$proc/cmdline" 2>/dev/null | tr '\0' ' ')
		case $(cat "$proc/comm" 2>/dev/null):$words in
		berthfs* | qemu-system* | *" vm-keeper "* | *" box-keeper "* | *" tool-daemon "*) ;;
		*) continue ;;
		esac
		parent=$(sed -n 's/^PPid:[^0-9]*//p' "$proc/status" 2>/dev/null)
		for who in "$pid" "$parent"; do
			cat "/proc/$who/environ" 2>/dev/null | tr '\0' '\n' | grep -qx "TMPDIR=$TMPDIR" && echo "$pid $words" && break
		done
	done
}

check_leftovers() {
	out=$TMPDIR/run/out
	: >"$out"
	# What has been told to end gets time for it, which on a busy machine is more than a moment.
	until=$(($(date +%s) + 60))
	while marked >"$TMPDIR/run/left"; [ -s "$TMPDIR/run/left" ] && [ "$(date +%s)" -lt $until ]; do sleep 0.5; done
	if [ -s "$TMPDIR/run/left" ]; then
		sed 's/^/# still runs: /' "$TMPDIR/run/left" >>"$out"
		echo "not ok no process is left" >>"$out"
		for pid in $(cut -d' ' -f1 "$TMPDIR/run/left"); do kill -9 "$pid" 2>/dev/null; done
	else
		echo "ok no process is left" >>"$out"
	fi
	if grep " $TMPDIR/" /proc/self/mountinfo >"$TMPDIR/run/left"; then
		sed 's/^/# still mounted: /' "$TMPDIR/run/left" >>"$out"
		echo "not ok no mount is left" >>"$out"
		awk '{ print $5 }' "$TMPDIR/run/left" | while read -r dir; do umount -l "$dir" 2>/dev/null || fusermount3 -uz "$dir"; done
	else
		echo "ok no mount is left" >>"$out"
	fi
	note_result leftovers 0 "$out"
}

# ---- the run ----

case " $* " in *" bench"*) bench=bench ;; *) bench= ;; esac
sh contrib/packages.sh build vm test $bench || echo "# going on without them; tests that need them fail or are skipped"
needs_build() { case " $* " in " lint ") return 1 ;; esac; }
if ! needs_build "$@" || build build -Dwerror=true; then
	for word; do
		suite=${word%%/*} only=
		[ "$suite" = "$word" ] || only=${word#*/}
		echo "=== $word"
		found=
		suite_"$suite"
		[ -n "$found" ] || [ -z "$only" ] || { echo "no test $word" && failed=$((failed + 1)); }
	done
	drain
	check_leftovers
fi

echo
if [ -f "$TMPDIR/run/times" ] && [ "$(awk '$1 >= 10' "$TMPDIR/run/times" | wc -l)" -gt 0 ]; then
	echo "slowest:"
	sort -rn "$TMPDIR/run/times" | awk '$1 >= 10' | head -n 8 | sed 's/^\([0-9]*\) \(.*\)/  \1 s  \2/'
fi
if [ -f "$TMPDIR/run/failures" ]; then
	echo "failed:"
	sed 's/^/  /' "$TMPDIR/run/failures"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
