# Completion for bash: source this file, or put it into ~/.local/share/bash-completion/completions/berthfs.

_berthfs() {
	local word=${COMP_WORDS[COMP_CWORD]} mount
	COMPREPLY=()
	if [ "$COMP_CWORD" = 1 ]; then
		COMPREPLY=($(compgen -W "mount umount show doctor models image ledger --help --version" -- "$word"))
		return
	fi
	case ${COMP_WORDS[1]} in
	mount) [[ $word = -* ]] && COMPREPLY=($(compgen -W "-f -o --help" -- "$word")) || COMPREPLY=($(compgen -d -- "$word")) ;;
	umount)
		mount=$(awk '$3 == "fuse.berthfs" { print $2 }' /proc/mounts)
		COMPREPLY=($(compgen -W "$mount" -- "$word"))
		;;
	show)
		mount=$(awk '$3 == "fuse.berthfs" { print $2; exit }' /proc/mounts)
		COMPREPLY=($(compgen -W "$(cut -f2 "$mount/index" 2>/dev/null)" -- "$word"))
		;;
	ledger)
		if [ "$COMP_CWORD" = 2 ]; then
			COMPREPLY=($(compgen -W "verify" -- "$word"))
		else
			COMPREPLY=($(compgen -W "--expect-head" -f -- "$word"))
		fi
		;;
	image)
		if [ "$COMP_CWORD" = 2 ]; then
			COMPREPLY=($(compgen -W "build list rm" -- "$word"))
		elif [ "${COMP_WORDS[2]}" = build ]; then
			COMPREPLY=($(compgen -W "--force" -- "$word"))
		elif [ "${COMP_WORDS[2]}" = rm ]; then
			COMPREPLY=($(compgen -W "$(berthfs image list 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$word"))
		fi
		;;
	esac
}
complete -F _berthfs berthfs
