# Repositories of every kind that a checkout may be. Source it after lib.sh. `zoo_make KIND` makes $Z/KIND/app, a checkout
# beside its remote $Z/KIND/remote.git, as that kind; zoo_kinds lists them. Programs that no git of ours may run leave a
# file of their name in $Z/canary.

Z=$T/zoo
zoo_kinds="plain shallow worktree submodule nested lfs sha256 packed rebase merge cherry bisect detached empty bare unborn
	branch-sandbox replace grafts alternates partial case-names odd-names odd-path link-top gitfile huge crlf filter-in
	filter-out drivers hooks-in hooks-out hooks-path fsmonitor include-in include-out sparse index-lock hidden skipped
	missing-blob missing-commit torn-pack many-refs no-remote two-remotes conflicts rewritten read-only-refs"

# A program that tells that it has run, and goes on as a filter would.
zoo_canary() { # FILE NAME
	mkdir -p "$(dirname "$1")"
	printf '#!/bin/sh\necho "$0 $*" >>"%s/canary/%s"\n[ "${1:-}" != filter ] || exec cat\n' "$Z" "$2" >"$1"
	chmod +x "$1"
}

zoo_begin() {
	mkdir -p "$Z/canary" "$Z/base/app/.agents" && cd "$Z/base" || return
	git config --global protocol.file.allow always
	git init -q --bare -b main remote.git
	(
		cd app && git init -q --template= -b main && mkdir .git/hooks .git/info
		echo '{"checks":[{"name":"made","command":"test -f made.txt"}]}' >.agents/project.json
		mkdir dir && echo one >one.txt && echo two >dir/two.txt && git add . && git commit -qm first
		echo more >>one.txt && git commit -qam second
		git remote add origin ../remote.git && git push -q -u origin main
	)
}

zoo_make() {
	mkdir "$Z/$1" && cd "$Z/$1" || return
	cp -a "$Z/base/app" "$Z/base/remote.git" . || return
	"zoo_$(echo "$1" | tr - _)" >"$Z/$1.log" 2>&1
	zoo_made=$?
	cd / || return
	return $zoo_made
}

# Everything of the user's: HEAD, index, refs, reflogs, stash, settings, and the work tree, byte for byte. What is ours by
# contract stays out: sandbox/N with its reflog, refs/berthfs, objects, and what git notes of the remote when it pushes.
zoo_picture() {
	(
		cd "$1" && git_dir=$(cd "$(git rev-parse --git-dir)" && pwd) && common=$(cd "$(git rev-parse --git-common-dir)" && pwd)
		for dir in "$git_dir" "$common"; do
			cd "$dir" && find . \( -path ./objects -o -path ./refs/berthfs -o -path ./logs/refs/berthfs -o -path ./refs/heads/sandbox \
				-o -path ./logs/refs/heads/sandbox -o -path ./refs/remotes -o -path ./logs/refs/remotes -o -path ./worktrees -o -path ./shallow \) -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0r cksum
		done
		cd "$1" && find . -path ./.git -prune -o -printf '%y %m %s %T@ %l %p\n' | LC_ALL=C sort
		find . -path ./.git -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 cat | cksum
	)
}

# ---- history and how it is kept

zoo_plain() { (cd app && echo dirty >>one.txt && git stash -q && echo untracked >untracked.txt); }
zoo_shallow() {
	git clone -q --bare remote.git full.git && rm -rf app && git clone -q --depth 1 "file://$PWD/remote.git" app
}
zoo_worktree() { mv app main && git -C main worktree add -q ../app -b side && git -C main push -q origin side && git -C app branch -q -u origin/side; }
zoo_submodule() {
	git clone -q --bare remote.git lib.git &&
		(cd app && git submodule --quiet add ../lib.git lib && git commit -qm lib && git push -q)
}
zoo_nested() { (cd app && git init -q inner && cd inner && echo x >x && git add x && git commit -qm inner); }
zoo_lfs() {
	(
		cd app && echo '*.bin filter=lfs diff=lfs merge=lfs -text' >.gitattributes &&
			printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 9\n' 0 >large.bin &&
			git add . && git commit -qm lfs && git push -q
	)
}
zoo_sha256() { rm -rf app && git init -q --object-format=sha256 -b main app && (cd app && echo x >x && git add x && git commit -qm x); }
zoo_packed() { (cd app && git branch other && git tag -am note v1 && git gc -q --aggressive --prune=now && git pack-refs --all); }
zoo_replace() {
	(cd app && new=$(git commit-tree -m replaced 'HEAD~^{tree}') && git replace "$(git rev-parse HEAD~)" "$new")
}
zoo_grafts() { (cd app && mkdir -p .git/info && git rev-parse HEAD >.git/info/grafts); }
zoo_alternates() { git clone -q --bare app store.git && rm -rf app && git clone -q --reference store.git remote.git app && rm -f app/.git/objects/pack/*; }
zoo_partial() {
	git -C remote.git config uploadpack.allowFilter true && git -C remote.git config uploadpack.allowAnySHA1InWant true &&
		rm -rf app && git clone -q --filter=blob:none "file://$PWD/remote.git" app
}
zoo_many_refs() {
	(
		cd app && head=$(git rev-parse HEAD) && { echo "# pack-refs with: peeled fully-peeled sorted" && seq -f "$head refs/heads/many/%06g" 20000; } >.git/packed-refs
	)
}
zoo_gitfile() { (cd app && mv .git ../elsewhere && echo "gitdir: ../elsewhere" >.git); }
zoo_rewritten() { # upstream was forced since
	git clone -q remote.git other && (cd other && git commit -q --amend -m "other second" && git push -qf)
}
zoo_conflicts() { # upstream went on, elsewhere
	git clone -q remote.git other && (cd other && echo theirs >theirs.txt && git add . && git commit -qm theirs && git push -q)
}

# ---- a state that the user is in the middle of

zoo_divided() { (cd app && git checkout -q -b side HEAD~ && echo side >one.txt && git commit -qam side && git checkout -q main); }
zoo_rebase() { zoo_divided && (cd app && git checkout -q side && ! git rebase -q main); }
zoo_merge() { zoo_divided && (cd app && ! git merge -q side); }
zoo_cherry() { zoo_divided && (cd app && ! git cherry-pick side); }
zoo_bisect() { (cd app && git bisect start && git bisect bad && git bisect good HEAD~); }
zoo_detached() { (cd app && git checkout -q --detach); }
zoo_empty() { rm -rf app && git init -q -b main app; }
zoo_bare() { rm -rf app && git clone -q --bare remote.git app; }
zoo_unborn() { (cd app && git checkout -q --orphan fresh); }
zoo_branch_sandbox() { (cd app && git branch sandbox); }
zoo_index_lock() { (cd app && cp .git/index .git/index.lock); }
# changes that git was told not to see
zoo_secret() { (cd app && echo old >made.txt && git add . && git commit -qm old && git push -q && git update-index "$1" made.txt && echo mine >made.txt); }
zoo_hidden() { zoo_secret --assume-unchanged; }
zoo_skipped() { zoo_secret --skip-worktree; }
zoo_sparse() { (cd app && git sparse-checkout set --cone dir); }
zoo_no_remote() { (cd app && git remote remove origin); }
zoo_two_remotes() { (cd app && git remote rename origin one && git remote add two ../remote.git && git branch --unset-upstream); }
zoo_read_only_refs() { (cd app && : >.git/refs/heads/sandbox.lock && mkdir -p .git/refs/heads/sandbox && : >.git/packed-refs.lock); }

# ---- names and contents

zoo_case_names() { (cd app && echo a >README && echo b >readme && echo c >ReadMe && git add . && git commit -qm case && git push -q); }
zoo_odd_names() {
	(
		cd app && echo 1 >"$(printf 'new\nline')" && echo 2 >"$(printf 'tab\there')" && echo 3 >'quo"te' && echo 4 >' lead' && echo 5 >'-dash' &&
			echo 6 >"$(printf 'latin\344')" && echo 7 >'back\slash' && echo 8 >"$(printf '%0250d' 0)" && echo 9 >':(top)x' && echo 10 >'*' &&
			mkdir -p '[x]' && echo 11 >'[x]/?' && git add -A && git commit -qm odd && git push -q
	)
}
zoo_odd_path() { mv app "$(printf 'a b\n"c" \303\244')" && ln -s "$(printf 'a b\n"c" \303\244')" app; }
zoo_link_top() { mv app real && ln -s real app; }
zoo_huge() { (cd app && head -c 40000000 /dev/urandom >huge.bin && git add . && git commit -qm huge && git push -q); }
zoo_crlf() { (cd app && git config core.autocrlf true && printf '* text=auto\n*.bat eol=crlf\n' >.gitattributes && printf 'a\r\nb\r\n' >x.bat && git add . && git commit -qm crlf && git push -q && rm x.bat && git checkout -q x.bat); }

# ---- settings that run programs

zoo_filter_in() { # the program lies in the work tree, where a commit can change it
	(
		cd app && zoo_canary tools/filter filter-in && echo 'made.txt filter=own' >.gitattributes && git add . && git commit -qm filter && git push -q &&
			git config filter.own.smudge "tools/filter filter smudge" && git config filter.own.clean "tools/filter filter clean"
	)
}
zoo_filter_out() { # the user's own
	(
		cd app && echo 'made.txt filter=own' >.gitattributes && git add . && git commit -qm filter && git push -q &&
			git config filter.own.smudge "sed s/filter-out/smudged/" && git config filter.own.clean "sed s/smudged/filter-out/"
	)
}
zoo_drivers() {
	(
		cd app && zoo_canary "$PWD/tools/driver" drivers && echo '* diff=own merge=own' >.gitattributes && git add . && git commit -qm driver && git push -q &&
			git config diff.own.command "$PWD/tools/driver" && git config diff.own.textconv "$PWD/tools/driver" && git config merge.own.driver "$PWD/tools/driver" &&
			git config diff.external "$PWD/tools/driver" && git config core.pager "$PWD/tools/driver" && git config core.editor "$PWD/tools/driver" &&
			git config interactive.diffFilter "$PWD/tools/driver"
	)
}
zoo_all_hooks="pre-push post-merge reference-transaction post-index-change post-checkout pre-merge-commit pre-auto-gc commit-msg post-rewrite"
zoo_hooks_in() {
	(
		cd app && for hook in $zoo_all_hooks; do zoo_canary ".husky/$hook" hooks-in; done
		git add . && git commit -qm husky && git push -q && git config core.hooksPath .husky
	)
}
zoo_hooks_out() { (cd app && for hook in $zoo_all_hooks; do zoo_canary ".git/hooks/$hook" hooks-out-ran; done); }
zoo_hooks_path() { (cd app && mkdir ../rules && zoo_canary ../rules/pre-push hooks-path-ran && git config core.hooksPath "$PWD/../rules"); }
zoo_fsmonitor() { (cd app && zoo_canary "$PWD/../monitor" fsmonitor && git config core.fsmonitor "$PWD/../monitor" && git config core.untrackedCache true); }
zoo_include_in() {
	(cd app && printf '[alias]\n\tst = status\n' >made.txt && git add . && git commit -qm config && git push -q && git config include.path ../made.txt)
}
zoo_include_out() { (cd app && printf '[alias]\n\tst = status\n' >../settings && git config include.path ../../settings); }

# ---- broken ones

zoo_loose() { git -C app cat-file --batch-all-objects --batch-check >/dev/null && rm -f "app/.git/objects/$(echo "$1" | cut -c 1-2)/$(echo "$1" | cut -c 3-)"; }
zoo_missing_blob() { zoo_loose "$(git -C app rev-parse HEAD:one.txt)"; }
zoo_missing_commit() { zoo_loose "$(git -C app rev-parse HEAD~)"; }
zoo_torn_pack() { (cd app && git gc -q && pack=$(ls .git/objects/pack/*.pack) && chmod u+w "$pack" && size=$(stat -c %s "$pack") && dd if=/dev/zero of="$pack" bs=1 seek=$((size / 2)) count=20 conv=notrunc status=none); }
