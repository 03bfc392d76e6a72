# shellcheck shell=sh
# node.sh - what cairn-update asks the node and systemd.
# shellcheck disable=SC2154 # profile and root are cairn-update's

# Prints a number of the node's status, or nothing.
status_number()
{
    printf '%s\n' "$status" | sed -n "s/.*\"$1\":\([0-9][0-9]*\)[,}].*/\1/p"
}

read_status()
{
    status=$(cairn-node status --json "$profile" 2>/dev/null) || status=''
}

node_is_active()
{
    [ "$(systemctl show -P ActiveState cairn-node.service)" = active ]
}

# The node trains nothing until its round has begun anew.
node_rests()
{
    case $(systemctl show -P ActiveState cairn-node.service) in
    active | activating | reloading) ;;
    *) return 0 ;;
    esac
    read_status
    case $status in
    *'"pause":"the system is updated"'*) return 0 ;;
    esac
    return 1
}

residuals_lost()
{
    read_status
    number=$(status_number residuals_lost)
    echo "${number:-0}"
}

# The packages of the bundle are not installed yet (cairn-firstboot of cairn-flash): a node that runs now is that of the
# base image, and says nothing about the new system.
packages_wait()
{
    [ -e "$root/var/lib/cairn-seed/SHA256SUMS" ]
}

# The node of this boot has registered, and has lost no state since the update. Its status file may be that of an
# earlier boot, so the process must be the service's.
node_works()
{
    if packages_wait; then return 1; fi
    node_is_active || return 1
    read_status
    pid=$(status_number pid)
    [ -n "$pid" ] && [ "$pid" = "$(systemctl show -P MainPID cairn-node.service)" ] || return 1
    case $status in
    *'"link":{"state":"up"'*) ;;
    *) return 1 ;;
    esac
    now_lost=$(status_number residuals_lost)
    [ -n "$now_lost" ] && [ "$now_lost" -le "$1" ]
}

# The node ended for something that another start does not mend: its profile (3) or its state (7).
node_is_hopeless()
{
    if packages_wait; then return 1; fi
    case "$(systemctl show -P ActiveState cairn-node.service) $(systemctl show -P ExecMainStatus cairn-node.service)" in
    "failed 2" | "failed 3" | "failed 7") return 0 ;;
    esac
    return 1
}
