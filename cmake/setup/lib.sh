# shellcheck shell=sh disable=SC2154
# lib.sh - what demo, check and the set-up share: messages, timed steps with a log, one job at a time.
#
# The caller sets root (the clone). Steps write their logs to build/log.

if [ -t 1 ]; then on_terminal=1; else on_terminal=; fi
ticker_pid=

# die WHAT [WHAT-TO-DO]...
die()
{
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    shift
    for line; do printf '    %s\n' "$line" >&2; done
    exit 1
}

show_path()
{
    case $1 in
    "$root"/*) printf '%s' "${1#"$root"/}" ;;
    *) printf '%s' "$1" ;;
    esac
}

start_ticker()
{
    [ -n "$on_terminal" ] || return 0
    (
        trap 'exit 0' TERM
        started=$(date +%s)
        while sleep 1 && kill -0 $$ 2>/dev/null; do # not longer than the script
            printf '\r  %-42s %4d s' "$1" $(($(date +%s) - started))
        done
    ) &
    ticker_pid=$!
}

stop_ticker()
{
    [ -n "$ticker_pid" ] || return 0
    kill "$ticker_pid" 2>/dev/null
    wait "$ticker_pid" 2>/dev/null
    ticker_pid=
    printf '\r'
}

# step TITLE NAME COMMAND...: runs COMMAND with its output in build/log/NAME.log and prints one line.
# Returns COMMAND's status; the log's end is shown if that is not 0.
step()
{
    title=$1
    log=$root/build/log/$2.log
    shift 2
    mkdir -p "$root/build/log"
    if [ -n "$on_terminal" ]; then printf '  %-42s' "$title"; fi
    start_ticker "$title"
    begun=$(date +%s)
    status=0
    "$@" >"$log" 2>&1 </dev/null || status=$?
    stop_ticker
    seconds=$(($(date +%s) - begun))
    if [ "$status" -eq 0 ]; then
        printf '  %-42s %4d s\n' "$title" "$seconds"
        return 0
    fi
    printf '  %-42s %4d s  FAILED\n' "$title" "$seconds"
    tail -n 15 "$log" | cut -c 1-200 | sed 's/^/    | /'
    printf '    the whole log: %s\n' "$(show_path "$log")"
    return "$status"
}

# take_turn FILE WHAT: waits until no other process holds FILE's lock, then holds it on descriptor 9
# until this process ends. Children that outlive it must close descriptor 9.
take_turn()
{
    exec 9<"$1"
    if ! flock -n 9; then
        echo "Another $2 runs in this clone; waiting for it to end."
        flock 9
    fi
}
