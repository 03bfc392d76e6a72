# shellcheck shell=sh
# notes.sh - what cairn-update remembers, on the data partition, and what it reports.
#
# "pending" is an update that is not decided: VERSION SLOT STAGE TRIES RETURNS LOST. STAGE is "installing" or
# "installed"; TRIES counts boots of the new system, RETURNS boots of the old one meanwhile, LOST is the number of
# residuals that the node had lost before. "result" is the last decision: VERSION SLOT RESULT. "version.A" and
# "version.B" are the versions in the slots.
# shellcheck disable=SC2154 # notes, data and runtime are cairn-update's

# Replaces a note by a line; after a power cut, or when it fails, it is the old or the new one.
write_note()
{
    mkdir -p "$notes" && printf '%s\n' "$2" >"$notes/$1.new" && sync "$notes/$1.new" &&
        mv "$notes/$1.new" "$notes/$1" && sync "$notes"
}

remove_note()
{
    if [ -e "$notes/$1" ]; then
        rm "$notes/$1"
        sync "$notes"
    fi
}

is_version()
{
    case $1 in
    '' | -* | *[!0-9A-Za-z+._~-]*) return 1 ;;
    esac
    [ ${#1} -le 63 ]
}

# Reads the pending update into version, slot, stage, tries, returns, lost. Fails when there is none. A damaged note
# counts as none, with a message: the system that runs is then kept.
read_pending()
{
    version='' slot='' stage='' tries=0 returns=0 lost=0
    [ -e "$notes/pending" ] || return 1
    read -r version slot stage tries returns lost rest <"$notes/pending" || true
    case "$slot $stage $tries $returns" in
    [AB]\ install[ei][dn]*\ [0-9]\ [0-9]) ;;
    *) version='' ;;
    esac
    case $lost in '' | *[!0-9]*) version='' ;; esac
    if [ -z "${rest:-}" ] && is_version "$version"; then return 0; fi
    say "the note of a pending update is damaged; it is removed"
    remove_note pending
    return 1
}

write_pending()
{
    write_note pending "$version $slot $stage $tries $returns $lost"
}

# Prints the version in a slot; "unknown" before its first update.
version_of()
{
    found=''
    if [ -r "$notes/version.$1" ]; then read -r found <"$notes/version.$1" || true; fi
    if is_version "$found"; then echo "$found"; else echo unknown; fi
}

# Reports the running slot, its version and how the last update went, for the node, which tells the gateway.
report()
{
    mkdir -p "$runtime"
    chmod 755 "$runtime"
    printf '%s %s %s\n' "$1" "$2" "$3" >"$runtime/report.new"
    chmod 644 "$runtime/report.new"
    mv "$runtime/report.new" "$runtime/report"
}

# Stores and reports a decision about a version: good, rolled-back, interrupted or failed.
decide()
{
    write_note result "$1 $2 $3"
    remove_note pending
    rm -f "$notes/bundle.raucb" # where cairn-flash rollout puts it
    report "$current" "$(version_of "$current")" "$3:$1"
    say "version $1 in slot $2: $3"
}

# Prints RESULT:VERSION of the last decision, or "none".
last_result()
{
    result_version='' result=''
    if [ -r "$notes/result" ]; then read -r result_version _ result <"$notes/result" || true; fi
    case $result in
    good | rolled-back | interrupted | failed) ;;
    *) result='' ;;
    esac
    if [ -n "$result" ] && is_version "$result_version"; then echo "$result:$result_version"; else echo none; fi
}
