#compdef cairn-node cairn-aggregator cairn-flash
# zsh completion for cairn-node, cairn-aggregator and cairn-flash: commands and options that --help lists, names of
# boards that the gateway of a profile knows, and versions that it keeps.

# _cairn_after OPTION: the word behind OPTION, or else the first profile on the line.
_cairn_after()
{
    local i
    for ((i = 3; i < $#words; i++)); do
        [[ $words[i] == "$1" ]] && print -r -- "${(Q)words[i + 1]}" && return
    done
    for ((i = 3; i < CURRENT; i++)); do
        [[ $words[i] == *.yaml && -f ${(Q)words[i]} ]] && print -r -- "${(Q)words[i]}" && return
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
        [[ $state == /* ]] || state=${1:h}/$state
    fi
    [[ -d $state ]] && print -rl -- $state/version-<->.full(Nn:t:s/version-//:r)
}

# _cairn_values PROGRAM COMMAND BEFORE: what can stand behind the word BEFORE, if that is a short list; one a line.
_cairn_values()
{
    case "${1:t} $2 $3" in
    (*' --log-level') print -l error warn info debug ;;
    (*' --log-format') print -l text json journal ;;
    (*' --device') print -l cpu cuda auto ;;
    (*' --order') print -l shuffled sequential ;;
    (*' try --split' | *' sweep --split') print -l iid labels dirichlet ;;
    (cairn-(node|flash)' '*' --board')
        [[ $2 == check ]] && print auto
        print -rl -- /usr/share/cairn/boards/*/board.yaml(N:h:t)
        ;;
    ('cairn-aggregator export --version') print -l last best && _cairn_versions "$(_cairn_after '')" ;;
    ('cairn-aggregator init --version') print -l last best none && _cairn_versions "$(_cairn_after --after)" ;;
    ('cairn-aggregator rollback '*.yaml) print best && _cairn_versions "${(Q)3}" ;;
    ('cairn-aggregator '(revoke|move)' '*.yaml) _cairn_boards "$1" "${(Q)3}" ;;
    ('cairn-flash wait --name') _cairn_boards cairn-aggregator "$(_cairn_after --gateway)" ;;
    esac
}

_cairn()
{
    local program=${(Q)words[1]} command= i
    local -a found
    for ((i = 2; i < CURRENT; i++)); do
        case $words[i] in
        (--log-level | --log-format) ((i++)) ;;
        (-*) ;;
        (*)
            command=$words[i]
            break
            ;;
        esac
    done
    found=(${(f)"$(_cairn_values "$program" "$command" "$words[CURRENT-1]")"})
    if (($#found)); then
        compadd -V cairn -a found
    elif [[ -z $command ]]; then
        found=(${(f)"$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *\(.*\)/\1:\2/p')"})
        _describe command found
        [[ $words[CURRENT] != -* ]] || compadd -- --help --version --log-level --log-format
    elif [[ $words[CURRENT] == -* ]]; then
        found=(--help ${(f)"$("$program" "$command" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*')"})
        compadd -- ${(u)found}
    else
        _files
    fi
}

_cairn "$@"
