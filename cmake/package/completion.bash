# bash completion for cairn-node, cairn-aggregator and cairn-flash: what --help of the program says.

_cairn()
{
    local program=$1 word=${COMP_WORDS[COMP_CWORD]} command='' i
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
    if [[ ${COMP_WORDS[COMP_CWORD - 1]} == --log-level ]]; then
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
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}

complete -o filenames -F _cairn cairn-node cairn-aggregator cairn-flash
