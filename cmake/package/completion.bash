# bash completion for cairn-node, cairn-aggregator and cairn-flash: what --help of the program says, and names of boards
# from the gateway whose profile stands on the line.

# _cairn_boards PROGRAM: the boards of the first profile on the line.
_cairn_boards()
{
    local word
    for word in "${COMP_WORDS[@]:2}"; do
        if [[ $word == *.yaml && -f $word ]]; then
            "$1" status --json "$word" 2>/dev/null | sed -n 's/^{"board":"\([^"]*\)".*/\1/p'
            return
        fi
    done
}

# _cairn_argument PROGRAM COMMAND BEFORE WORD: what is no option, behind the word BEFORE.
_cairn_argument()
{
    local names=''
    case "$1 $2 $3" in
    *' export --version') names='last best' ;;
    *cairn-aggregator' revoke '*.yaml) names=$(_cairn_boards "$1") ;;
    esac
    if [[ -n $names ]]; then
        compgen -W "$names" -- "$4"
    else
        compgen -f -- "$4"
    fi
}

_cairn()
{
    local program=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' i
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
    if [[ $before == --log-level ]]; then
        mapfile -t COMPREPLY < <(compgen -W 'error warn info debug' -- "$word")
    elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == --log-format ]]; then
        mapfile -t COMPREPLY < <(compgen -W 'text json' -- "$word")
    elif [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--help --version --log-level --log-format $(
            "$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p'
        )" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--help $(
            "$program" "$command" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*'
        )" -- "$word")
    else
        mapfile -t COMPREPLY < <(_cairn_argument "$program" "$command" "$before" "$word")
    fi
}

complete -o filenames -F _cairn cairn-node cairn-aggregator cairn-flash
