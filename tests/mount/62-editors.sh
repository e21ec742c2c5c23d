#!/bin/sh
# Editors as people use them, with their stock settings, on a terminal (tmux): messages, settings, config, drafts that
# are refused and mended. Each save is one message or one session; a refusal can be read on the screen and the text is
# still there; nothing is left behind, and no editor believes that somebody else has changed its file.
. "$(dirname "$0")/../lib.sh"
have tmux || { skip all "no tmux"; exit 0; }
start || exit 1
N=$S/new
TERM=screen
TMPDIR=$HOME/tmp # Emacs makes no backup of files in it
export TERM TMPDIR
mkdir "$TMPDIR"
# What vim and neovim have by themselves but for backupskip, which exempts /tmp; people mount elsewhere.
printf 'source $VIMRUNTIME/defaults.vim\nset backupskip=\n' >"$HOME/.vimrc"
mkdir -p "$T/config/nvim" && echo 'set backupskip=' >"$T/config/nvim/init.vim"

# ---- the terminal
tm() { tmux -S "$T/tmux" -f /dev/null "$@"; }
tm new-session -d -x 140 -y 24 -s first 'exec cat' || { not_ok "tmux"; exit 1; }
own "$(tm display-message -p '#{pid}')"
tm set-option -g destroy-unattached off
window=first
screen() { tm capture-pane -p -t "$window"; }
shows() { screen | grep -qE -e "$1"; }
hides() { ! shows "$1"; }
press() { tm send-keys -t "$window" "$@" 2>/dev/null; }
type_() { tm send-keys -t "$window" -l -- "$1" 2>/dev/null; }
# see NAME PATTERN: the screen shows it soon.
see() {
	if within 15 shows "$2"; then
		ok "$1"
	else
		not_ok "$1"
		screen | sed '/^ *$/d; s/^/# /'
	fi
}
# effect NAME COMMAND...: it is so soon; else the screen is shown.
effect() {
	check_name=$1
	shift
	if within 10 "$@"; then
		ok "$check_name"
	else
		not_ok "$check_name"
		screen | sed '/^ *$/d; s/^/# /'
	fi
}
# wrong: words of an editor that is not content.
wrong='WARNING|W1[0-9]:|E[0-9]+:|E325|has changed|changed on disk|changed since|[Ee]rror|supersession|denied|not permitted|read-only'
content() {
	if shows "$wrong"; then
		not_ok "$1"
		screen | sed '/^ *$/d; s/^/# /'
	else
		ok "$1"
	fi
}

# ---- what the editors need: their command, the sign that they are there, that they have saved, that it was refused
editors='vim nvim nano emacs micro ed'
command_of() { case $1 in emacs) echo "emacs -nw" ;; *) echo "$1" ;; esac; }
there_of() { case $1 in
	vim | nvim) echo ' (All|Top)$' ;;
	nano) echo '\^X Exit' ;;
	emacs) echo '(All|Top) L1' ;;
	micro) echo 'ft:' ;;
	ed) echo '^[0-9]+$|No such file' ;;
esac; }
saved_of() { case $1 in
	vim | nvim) echo 'written' ;;
	nano) echo 'Wrote [0-9]+ line' ;;
	emacs) echo '^Wrote ' ;;
	micro) echo '^Saved ' ;;
	ed) echo '^[0-9]+$' ;;
esac; }
refused_of() { case $1 in
	vim) echo 'E512: |E667: ' ;;
	nvim) echo 'E512: .*invalid argument' ;;
	*) echo '[Ii]nvalid argument' ;;
esac; }
# open FILE: the editor on it, in a window of its own.
open() {
	tm new-session -d -x 140 -y 24 -s "$E$((n_windows += 1))" -c "$P" "exec $(command_of "$E") '$1'"
	window=$E$n_windows
	within 20 shows "$(there_of "$E")" || { not_ok "$E opens $1"; screen; }
}
n_windows=0
# write LINE...: instead of all that is there.
write() {
	case $E in
	vim | nvim) press Escape && type_ ":%d" && press Enter && type_ i ;;
	nano) press M-'\' && press M-t ;;
	emacs) press C-x h && press C-w ;;
	micro) press C-a && press BSpace ;;
	ed) type_ ',d' && press Enter && type_ a && press Enter ;;
	esac
	more=
	for line; do
		[ -z "$more" ] || press Enter
		more=1
		type_ "$line"
	done
	case $E in
	vim | nvim) press Escape ;;
	ed) press Enter && type_ . && press Enter ;;
	esac
}
# save [BANG]: BANG for an editor that wants to be told twice.
save() {
	case $E in
	vim | nvim) type_ ":w${1:-}" && press Enter ;;
	nano)
		press C-s
		# It noticed that its refused save has changed the draft.
		if [ -n "${1:-}" ] && within 20 shows 'modified since|Wrote' && shows 'modified since'; then press y; fi
		;;
	emacs) press C-x C-s ;;
	micro) press C-s ;;
	ed) type_ w && press Enter ;;
	esac
}
quit() {
	case $E in
	vim | nvim) press Escape && type_ ':q!' && press Enter ;;
	nano) press C-x && press n ;;
	emacs) press C-x C-c && press n && type_ yes && press Enter ;;
	micro) press C-q && press n ;;
	ed) type_ Q && press Enter ;;
	esac
	ended() { ! tm has-session -t "=$window" 2>/dev/null; }
	within 10 ended || { tm kill-session -t "$window"; }
}
user_texts() { sed -n 's/.*"kind":"user".*"text":"\(.*\)"}.*/\1/p' "$1"; }
count() { user_texts "$S/$E/transcript.jsonl" | wc -l; }
count_is() { [ "$(count)" = "$1" ]; }
trimmed() { sed 's/\\n$//'; } # Emacs ends no last line by itself
is() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; }
leftovers() { ls -A "$1" | grep -E '\.sw|~$|^#|^\.#|4913|\.save'; }

talk() {
	n=$(count)
	open "$S/$E/input"
	write "$E one"
	save
	effect "$E: a save of input is a message" count_is $((n + 1))
	see "$E: and says so" "$(saved_of "$E")"
	timeout 60 cat "$S/$E/wait/idle" >/dev/null
	write "$E two" "and more"
	[ "$E" = emacs ] && type_ "$long_text"
	save
	effect "$E: a second save is another" count_is $((n + 2))
	content "$E: no complaint"
	equal "$E: nothing beside it while it is open" "$(leftovers "$S/$E")" ""
	quit
	equal "$E: the messages" "$(user_texts "$S/$E/transcript.jsonl" | tail -n +$((n + 1)) | trimmed | sed 's/\(word \)*$//' | tr '\n' ' ')" \
		"$E one $E two\\nand more "
}
set_a_value() {
	echo none >"$S/$E/settings/after-run"
	open "$S/$E/settings/after-run"
	write merge
	save
	effect "$E: a setting" is "$S/$E/settings/after-run" merge
	content "$E: no complaint of it"
	write everything
	save
	see "$E: a bad value is refused on the screen" "$(refused_of "$E")"
	equal "$E: and the good one stays" "$(cat "$S/$E/settings/after-run")" merge
	[ "$E" = vim ] && press Enter
	[ "$E" = nvim ] && press Enter
	write none
	save !
	effect "$E: mended" is "$S/$E/settings/after-run" none
	quit
}
configure() {
	open "$M/config"
	write "sandbox = dir" "colour = $E" "size = mini"
	save
	see "$E: a bad config is refused on the screen" "$(refused_of "$E")"
	case $E in
	vim | nvim) equal "$E: it has put the old one back" "$(cat "$M/config")" "$good" ;;
	*) contains "$E: it stays as a draft" "$(cat "$M/config" "$M/status")" "colour = $E" ;;
	esac
	contains "$E: error has the words" "$(cat "$M/error")" colour
	case $E in vim | nvim) press Enter ;; esac
	write "sandbox = dir" "sandbox.allow-dir = yes" "model = script:$T/script" "after-run = none"
	save !
	in_force() { grep -q 'config ok' "$M/status" && grep -q after-run "$T/config/berthfs/config"; }
	effect "$E: config mended" in_force
	quit
	echo "$good" >"$M/config"
}
draft() {
	open "$N/by-$E"
	write --- "$E: red" --- "by $E"
	save
	see "$E: a bad draft is refused on the screen" "$(refused_of "$E")"
	contains "$E: error has line and reason" "$(cat "$M/error")" "new/by-$E: line 2: unknown key \"$E\""
	quit
	equal "$E: the draft stays" "$(cat "$N/by-$E")" "$(printf '%s\n' --- "$E: red" --- "by $E")"
	open "$N/by-$E"
	write --- "$E: red" --- "by $E, once more"
	save
	see "$E: refused again" "$(refused_of "$E")"
	case $E in vim | nvim) press Enter ;; esac
	write --- "after-run: none" --- "by $E, mended"
	save !
	effect "$E: mended, it is a session" test -d "$S/by-$E"
	see "$E: and says so" "$(saved_of "$E")"
	timeout 60 cat "$S/by-$E/wait/idle" >/dev/null
	equal "$E: of one message" "$(user_texts "$S/by-$E/transcript.jsonl" | trimmed)" "by $E, mended"
	quit
	open "$N/new-$E" # and one that is right at once
	write "by $E, new"
	save
	effect "$E: a new draft is a session" test -d "$S/new-$E"
	content "$E: no complaint of that"
	quit
}
# The terminal goes while there is text that has not been saved: what the editor rescues is no message and no session.
hang_up() {
	n=$(count)
	for f in "$S/$E/input" "$N/lost-$E"; do
		open "$f"
		write "half of what $E"
		within 5 shows 'half of what'
		pane=$(tm display-message -p -t "$window" '#{pane_pid}')
		tm kill-session -t "$window"
		within 10 is_gone "$pane" || not_ok "$E: ends with its terminal"
	done
	equal "$E: its terminal has gone: no message, no session" "$(count) $(ls "$S" | grep -c lost)" "$n 0"
}
# More than 300 keys: Emacs makes an auto-save file.
long_text=$(printf 'word%.0s ' $(seq 70))
good=$(cat "$M/config")
one() {
	session "$E" hello || not_ok "$E: a session"
	talk
	set_a_value
	draft
	hang_up
	until mkdir "$T/lock" 2>/dev/null; do sleep 0.1; done # there is one config for all
	configure
	rmdir "$T/lock"
	equal "$E: its sessions" "$(ls "$S" | grep -xE "(.*-)?$E" | sort | tr '\n' ' ')" "by-$E $(printf '%s\n' "$E" "new-$E" | sort | tr '\n' ' ')"
	equal "$E: nothing left anywhere else" "$(for d in "$M" "$S" "$S/$E" "$S/$E/settings"; do leftovers "$d"; done)" ""
}
started=
for E in $editors; do
	have "$E" || { skip "$E" "no $E"; continue; }
	one >"$T/$E.out" 2>&1 &
	started="$started $E"
done
wait
for E in $started; do
	cat "$T/$E.out"
	grep -q "^not ok" "$T/$E.out" && FAILED=1
done
nothing() { [ -z "$(ls -A "$N")" ]; }
rm -f "$N"/*lost-* "$N"/.*lost-*
within 20 nothing
equal "after a while nothing is left in the drop box" "$(ls -A "$N")" ""
