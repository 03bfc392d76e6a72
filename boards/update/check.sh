# shellcheck shell=sh
# check.sh - cairn-update's check: is a new system kept, tried again or given up?
#
#   pending update      which system runs   decision
#   none                any                 it stays
#   in the slot         the new one         works: it stays; else restart, at the third time give it up
#   in the slot         the old one         the boot chain wants the new one: start it, three times at most
#   "installed"         the old one         the boot chain gave the new one up: rolled back
#   "installing"        the old one         a power cut in the installation: interrupted
# shellcheck disable=SC2034,SC2154 # variables of cairn-update and of notes.sh

most_tries=3

restart_board()
{
    say "$*; the board is restarted"
    boot reboot
}

# The new system has had its tries. The boot chain may count otherwise, so it is told.
give_up()
{
    old=B
    if [ "$slot" = B ]; then old=A; fi
    boot set-primary "$old" || true
    boot set-state "$slot" bad || true
    # The old system says what became of it.
    restart_board "version $version in slot $slot does not work"
}

try_new_system()
{
    tries=$((tries + 1))
    # A try that cannot be counted, as on a full disk, is the last one.
    write_pending || tries=$most_tries
    report "$current" "$version" "trying:$version"
    if [ "$tries" -gt "$most_tries" ]; then
        give_up
        return
    fi
    waited=0
    while [ "$waited" -lt "$patience" ] && ! node_is_hopeless; do
        if node_works "$lost"; then
            boot set-state "$current" good
            write_note "version.$current" "$version"
            decide "$version" "$slot" good
            return
        fi
        sleep 1
        waited=$((waited + 1))
    done
    if [ "$tries" -ge "$most_tries" ]; then
        give_up
    else
        restart_board "version $version: the node has not registered (boot $tries of $most_tries)" || give_up
    fi
}

look_back()
{
    boot set-state "$current" good # its own tries are counted at each boot, too
    primary=$(boot get-primary) || primary=$current
    if [ "$primary" = "$slot" ] && [ "$stage" = installed ] && [ "$returns" -lt "$most_tries" ]; then
        returns=$((returns + 1))
        write_pending
        restart_board "version $version in slot $slot is tried again"
        return
    fi
    # It may have been written in part, or have failed: the old system is the one to start.
    if [ "$primary" = "$slot" ]; then boot set-primary "$current"; fi
    boot set-state "$slot" bad
    if [ "$stage" = installing ]; then
        remove_note "version.$slot"
        decide "$version" "$slot" interrupted
    else
        decide "$version" "$slot" rolled-back
    fi
}

check_boot()
{
    [ $# -eq 0 ] || usage
    current=$(boot get-current)
    if ! read_pending; then
        boot set-state "$current" good
        report "$current" "$(version_of "$current")" "$(last_result)"
    elif [ "$slot" = "$current" ]; then
        try_new_system
    else
        look_back
    fi
}
