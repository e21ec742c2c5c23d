#!/bin/sh
# Completion in real shells: every verb of --help is offered, and names of what is there.
. "$(dirname "$0")/../lib.sh"
mkdir "$T/bin"
ln -s "$BERTHFS" "$T/bin/berthfs"
PATH=$T/bin:$PATH
cat >"$T/script" <<'END'
{"text":"one"}
END
start || exit 1
session fix-login hi && session fix-logout hi || not_ok "sessions"
ln -s "$P" "$M/projects/app"
VERBS=$("$BERTHFS" --help | sed -n 's/^  berthfs \([a-z][a-z-]*\) .*/\1/p' | grep -v VERB | sort -u | tr '\n' ' ')
check "there are verbs" test "$(echo $VERBS | wc -w)" -gt 5
mkdir "$T/some dir" && cd "$T" || exit 1

# Each line: what is typed | what has to be offered (all of it, sorted, or at least the words after +).
cat >"$T/cases" <<END
berthfs |+ $VERBS--help --version
berthfs um|umount
berthfs mount -|+ -f -o
berthfs mount -o |+ allow_other nowatch
berthfs mount -o now|nowatch
berthfs umount |$M
berthfs show |fix-login fix-logout
berthfs show fix-logo|fix-logout
berthfs ssh fix-logo|fix-logout
berthfs connect |fix-login fix-logout
berthfs image |+ build list rm
berthfs image build |--force
berthfs ledger |+ verify
ask |fix-login fix-logout new new/app/
ask n|new new/app/
ask -|+ -n -m
berth-watch |fix-login fix-logout
berth-watch -|+ -1 -m
END

if have bash; then
	cat >"$T/complete.bash" <<'END'
	source "$ROOT/contrib/completion/berthfs.bash"
	while IFS='|' read -r line wanted; do
		COMP_LINE=$line COMP_POINT=${#line} COMP_WORDS=($line) COMPREPLY=()
		[[ $line == *' ' ]] && COMP_WORDS+=('')
		COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
		function=$(complete -p "${COMP_WORDS[0]}" | sed 's/.*-F \([a-z_]*\) .*/\1/')
		$function "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
		printf '%s|%s\n' "$line" "$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | tr '\n' ' ')"
	done <"$T/cases"
END
	ROOT=$ROOT T=$T timeout 60 bash "$T/complete.bash" >"$T/bash" 2>"$T/err"
	equal "bash: no words on standard error" "$(cat "$T/err")" ""
	# In a real line: the tab is typed into an interactive shell on a terminal of its own.
	if have script; then
		printf 'source %s/contrib/completion/berthfs.bash; PS1=; bind "set bell-style none"\nberthfs sh\tfix-logo\t > %s/typed\nexit\n' \
			"$ROOT" "$T" | HOME=$T timeout 60 script -qec 'bash --norc --noprofile -i' /dev/null >/dev/null 2>&1
		check "bash: typed with tabs" grep -q '^one$' "$T/typed"
	fi
else
	skip "bash" "not there"
fi

# zsh completes only in its line editor: one runs in a pseudo terminal and shows what would be inserted.
if have zsh; then
	cat >"$T/complete.zsh" <<'END'
	zmodload zsh/zpty
	zpty shell zsh -f -i
	send() { zpty -w shell "$1"; }
	send "PS1=; unsetopt zle_bracketed_paste; fpath=($ROOT/contrib/completion \$fpath); autoload -U compinit; compinit -u -D; HISTFILE=; stty -echo"
	send 'zstyle ":completion:*" list-prompt ""; zstyle ":completion:*:default" list-colors "no=" ; LISTMAX=0'
	send 'zmodload zsh/complist; compadd() { if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
	local -a found; builtin compadd -A found "$@"; (($#found)) && print -rl -- $found >>$T/offered; builtin compadd "$@" }'
	send 'shown() { zle kill-whole-line; print done >>$T/offered }; zle -N shown; bindkey "^X" shown; print ready >>$T/offered'
	wait_line() { local i; for ((i = 0; i < 2000; i++)); do grep -qx $1 $T/offered 2>/dev/null && return; sleep 0.05; zpty -r -t shell >/dev/null; done; return 1; }
	wait_line ready || exit 1
	while IFS='|' read -r line wanted; do
		: >$T/offered
		zpty -w -n shell "$line"$'\t'$'\x18'
		wait_line done || print "no answer to $line" >&2
		print -r -- "$line|$(grep -vx done $T/offered | LC_ALL=C sort -u | tr '\n' ' ')"
	done <$T/cases
	zpty -d shell
END
	export ROOT T
	timeout 240 zsh -f "$T/complete.zsh" >"$T/zsh" 2>"$T/err"
	equal "zsh: no words on standard error" "$(cat "$T/err")" ""
else
	skip "zsh" "not there"
fi

for shell in bash zsh; do
	[ -f "$T/$shell" ] || continue
	while IFS='|' read -r line wanted; do
		got=$(grep -F "$line|" "$T/$shell" | head -n 1 | cut -d'|' -f2 | sed 's/ $//')
		case $wanted in
		'+ '*)
			missing=
			for word in ${wanted#+ }; do case " $got " in *" $word "*) ;; *) missing="$missing $word" ;; esac; done
			equal "$shell: $line<tab>" "$missing" ""
			;;
		*) equal "$shell: $line<tab>" "$got" "$wanted" ;;
		esac
	done <"$T/cases"
done
cd /
