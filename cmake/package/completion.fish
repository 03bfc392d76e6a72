# fish completion for cairn-node, cairn-aggregator and cairn-flash: commands and options that --help lists, names of
# boards that the gateway of a profile knows, and versions that it keeps.

# __cairn_command: the command on the line before the cursor; nothing while there is none.
function __cairn_command
    set -l words (commandline -opc)
    set -l i 2
    while test $i -le (count $words)
        switch $words[$i]
            case --log-level --log-format
                set i (math $i + 1)
            case '-*'
            case '*'
                echo $words[$i]
                return
        end
        set i (math $i + 1)
    end
end

# __cairn_after OPTION: the word behind OPTION, or else the first profile on the line.
function __cairn_after
    set -l words (commandline -opc)
    if set -l i (contains -i -- $argv[1] $words)
        and test $i -lt (count $words)
        echo $words[(math $i + 1)]
        return
    end
    for word in $words
        if string match -q '*.yaml' -- $word
            and test -f $word
            echo $word
            return
        end
    end
end

# __cairn_boards AGGREGATOR PROFILE: names of the boards that are enrolled.
function __cairn_boards
    test -f "$argv[2]"
    and $argv[1] status --json $argv[2] 2>/dev/null | sed -n 's/^{"board":"\([^"]*\)".*/\1/p'
end

# __cairn_versions PLACE: numbers of the versions in a state directory, or in that of a profile.
function __cairn_versions
    set -l state $argv[1]
    if test -f "$state"
        set state (sed -n 's/^state: *"\{0,1\}\([^"#]*[^"# ]\).*/\1/p' $argv[1])[1]
        string match -q '/*' -- $state
        or set state (dirname $argv[1])/$state
    end
    test -d "$state"
    and find $state -maxdepth 1 -name 'version-*.full' 2>/dev/null | sed -n 's/.*version-\([0-9]*\)\.full$/\1/p' | sort -n
end

# __cairn_values: what can stand at the cursor, if that is a short list; nothing where a file can.
function __cairn_values
    set -l words (commandline -opc)
    set -l program $words[1]
    set -l command (__cairn_command)
    switch (basename $program)" $command $words[-1]"
        case '* --log-level'
            printf '%s\n' error warn info debug
        case '* --log-format'
            printf '%s\n' text json journal
        case '* --device'
            printf '%s\n' cpu cuda auto
        case '* --order'
            printf '%s\n' shuffled sequential
        case '* try --split' '* sweep --split'
            printf '%s\n' iid labels dirichlet
        case 'cairn-node * --board' 'cairn-flash * --board'
            test "$command" = check
            and echo auto
            find /usr/share/cairn/boards -mindepth 2 -maxdepth 2 -name board.yaml 2>/dev/null | sed 's,.*/\([^/]*\)/board.yaml,\1,'
        case 'cairn-aggregator export --version'
            printf '%s\n' last best
            __cairn_versions (__cairn_after '')
        case 'cairn-aggregator init --version'
            printf '%s\n' last best none
            __cairn_versions (__cairn_after --after)
        case 'cairn-aggregator rollback *.yaml'
            echo best
            __cairn_versions $words[-1]
        case 'cairn-aggregator revoke *.yaml' 'cairn-aggregator move *.yaml'
            __cairn_boards $program $words[-1]
        case 'cairn-flash wait --name'
            __cairn_boards cairn-aggregator (__cairn_after --gateway)
        case '*'
            if test -z "$command"
                $program --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *\(.*\)/\1\t\2/p'
                printf '%s\n' --help --version --log-level --log-format
            else if string match -q -- '-*' (commandline -ct)
                begin
                    echo --help
                    $program $command --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*'
                end | sort -u
            end
    end
end

for program in cairn-node cairn-aggregator cairn-flash
    complete -c $program -e
    complete -c $program -n 'count (__cairn_values) >/dev/null' -f -a '(__cairn_values)'
    complete -c $program -n 'not count (__cairn_values) >/dev/null' -F
end
