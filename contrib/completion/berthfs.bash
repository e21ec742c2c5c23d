# Completion for bash of berthfs, ask and berth-watch: source this file, or put it into
# ~/.local/share/bash-completion/completions/ under each of the three names.

# Words are completed line by line, since names of directories may have blanks.
_berthfs_lines() {
	local line
	while IFS= read -r line; do
		[[ -n $line && $line == "$2"* ]] && COMPREPLY+=("$(printf '%q' "$line")")
	done <<<"$1"
}
_berthfs_words() { COMPREPLY=($(compgen -W "$1" -- "$2")); }

# Where this user's berthfs is mounted.
_berthfs_mount() {
	if [[ -n ${BERTH:-} ]]; then
		printf '%s\n' "$BERTH"
	else
		sed -n 's/^dir //p' "${XDG_STATE_HOME:-$HOME/.local/state}/berthfs/mount" 2>/dev/null
	fi
}
_berthfs_sessions() { cut -f2 "$(_berthfs_mount)/index" 2>/dev/null; }

# The last of a comma-separated list, as after -o.
_berthfs_options() {
	local before=
	[[ $2 == *,* ]] && before=${2%,*},
	_berthfs_words "$1" "${2##*,}"
	COMPREPLY=("${COMPREPLY[@]/#/$before}")
}

_berthfs() {
	local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD - 1]}
	COMPREPLY=()
	if [[ $COMP_CWORD == 1 ]]; then
		_berthfs_words "mount umount show models doctor image ssh connect ssh-config ledger conformance --help --version" "$word"
		return
	fi
	case ${COMP_WORDS[1]} in
	mount)
		case $last:$word in
		-o:*) _berthfs_options "allow_other nowatch fsname=" "$word" ;;
		*:-*) _berthfs_words "-f -o --help" "$word" ;;
		*) _berthfs_lines "$(compgen -d -- "$word")" "$word" ;;
		esac
		;;
	umount) _berthfs_lines "$(_berthfs_mount)" "$word" ;;
	show | connect) _berthfs_lines "$(_berthfs_sessions)" "$word" ;;
	ssh) [[ $COMP_CWORD != 2 ]] || _berthfs_lines "$(_berthfs_sessions)" "$word" ;;
	ledger)
		case $COMP_CWORD:$last in
		2:*) _berthfs_words "verify --help" "$word" ;;
		*:--expect-head) ;;
		*) [[ $word == -* ]] && _berthfs_words "--expect-head --key" "$word" ||
			_berthfs_lines "$(compgen -f -- "$word")" "$word" ;;
		esac
		;;
	image)
		case $COMP_CWORD:${COMP_WORDS[2]} in
		2:*) _berthfs_words "build list rm --help" "$word" ;;
		3:build) _berthfs_words "--force" "$word" ;;
		3:rm) _berthfs_words "$(berthfs image list 2>/dev/null | awk 'NR > 1 { print $1 }')" "$word" ;;
		esac
		;;
	conformance) _berthfs_words "vm container host dir --help" "$word" ;;
	*) [[ $word == -* ]] && _berthfs_words "--help" "$word" ;;
	esac
}

# ask NAME, ask new, ask new/PROJECT/; and names for berth-watch.
_berthfs_ask() {
	local word=${COMP_WORDS[COMP_CWORD]} i to=
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-m) ((i++)) ;;
		-*) ;;
		*) to=${COMP_WORDS[i]} ;;
		esac
	done
	if [[ ${COMP_WORDS[COMP_CWORD - 1]} == -m ]]; then
		_berthfs_lines "$(compgen -d -- "$word")" "$word"
	elif [[ $word == -* ]]; then
		[[ $1 == ask ]] && _berthfs_words "-n -m --help" "$word" || _berthfs_words "-1 -m --help" "$word"
	elif [[ $1 != ask ]]; then
		_berthfs_lines "$(_berthfs_sessions)" "$word"
	elif [[ -z $to ]]; then
		_berthfs_lines "new
$(_berthfs_sessions)
$(ls "$(_berthfs_mount)/projects" 2>/dev/null | sed 's,.*,new/&/,')" "$word"
	fi
}
complete -F _berthfs berthfs
complete -F _berthfs_ask ask berth-watch
