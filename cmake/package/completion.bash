# bash completion for cairn-node, cairn-aggregator and cairn-flash: commands and options that --help lists, names of
# boards that the gateway of a profile knows, and versions that it keeps. completion.zsh and completion.fish do the same.

# _cairn_after OPTION: the word behind OPTION, or else the first profile on the line.
_cairn_after()
{
    local i
    for ((i = 2; i < ${#COMP_WORDS[@]} - 1; i++)); do
        [[ ${COMP_WORDS[i]} == "$1" ]] && printf '%s' "${COMP_WORDS[i + 1]}" && return
    done
    for ((i = 2; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == *.yaml && -f ${COMP_WORDS[i]} ]] && printf '%s' "${COMP_WORDS[i]}" && return
    done
}

# _cairn_boards AGGREGATOR PROFILE: names of the boards that are enrolled.
_cairn_boards()
{
    [[ -f $2 ]] && "$1" status --json "$2" 2>/dev/null | sed -n 's/^{"board":"\([^"]*\)".*/\1/p'
}

# _cairn_versions PLACE: numbers of the versions in a state directory, or in that of a profile.
_cairn_versions()
{
    local state=$1
    if [[ -f $1 ]]; then
        state=$(sed -n 's/^state: *"\{0,1\}\([^"#]*[^"# ]\).*/\1/p' "$1" | head -n 1)
        [[ $state == /* ]] || state=$(dirname "$1")/$state
    fi
    [[ -d $state ]] && find "$state" -maxdepth 1 -name 'version-*.full' 2>/dev/null |
        sed -n 's/.*version-\([0-9]*\)\.full$/\1/p' | sort -n
}

# _cairn_values PROGRAM COMMAND BEFORE: what can stand behind the word BEFORE, if that is a short list.
_cairn_values()
{
    case "${1##*/} $2 $3" in
    *' --log-level') echo error warn info debug ;;
    *' --log-format') echo text json journal ;;
    *' --device') echo cpu cuda auto ;;
    *' --order') echo shuffled sequential ;;
    *' try --split' | *' sweep --split') echo iid labels dirichlet ;;
    'cairn-node '*' --board' | 'cairn-flash '*' --board')
        [[ $2 == check ]] && echo auto
        find /usr/share/cairn/boards -mindepth 2 -maxdepth 2 -name board.yaml 2>/dev/null |
            sed 's,.*/\([^/]*\)/board.yaml,\1,'
        ;;
    'cairn-aggregator export --version') echo last best && _cairn_versions "$(_cairn_after '')" ;;
    'cairn-aggregator init --version') echo last best none && _cairn_versions "$(_cairn_after --after)" ;;
    'cairn-aggregator rollback '*.yaml) echo best && _cairn_versions "$3" ;;
    'cairn-aggregator revoke '*.yaml | 'cairn-aggregator move '*.yaml) _cairn_boards "$1" "$3" ;;
    'cairn-flash wait --name') _cairn_boards cairn-aggregator "$(_cairn_after --gateway)" ;;
    esac
}

_cairn()
{
    local program=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' values i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --log-level | --log-format) ((i++)) ;;
        -*) ;;
        *)
            command=${COMP_WORDS[i]}
            break
            ;;
        esac
    done
    values=$(_cairn_values "$program" "$command" "$before")
    if [[ -n $values ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
    elif [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--help --version --log-level --log-format $(
            "$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p'
        )" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--help $(
            "$program" "$command" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*'
        )" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}

complete -o filenames -F _cairn cairn-node cairn-aggregator cairn-flash
