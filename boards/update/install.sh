# shellcheck shell=sh
# install.sh - cairn-update's install and status.
# shellcheck disable=SC2034,SC2154 # variables of cairn-update and of notes.sh

read_bundle()
{
    facts=$(rauc info --output-format=shell "$1" 2>/dev/null) || die "$1: RAUC does not take it; 'rauc info' says why"
    new=$(printf '%s\n' "$facts" | sed -n "s/^RAUC_MF_VERSION='\(.*\)'$/\1/p")
    is_version "$new" || die "$1: its version is '$new'; letters, digits and + - . _ ~ are expected"
}

# A RAUC that is built without streaming, such as that of Debian 12, would fetch a bundle as a whole
# each time that it is asked about it, into memory where /tmp is there.
check_place()
{
    case $1 in
    http://*)
        [ "$insecure" = yes ] ||
            die "$1: over http anybody on the way can put an older bundle in its place; use https, or --insecure"
        ;;
    esac
    case $1 in
    *://*)
        rauc install --help 2>/dev/null | grep -q tls-cert ||
            die "$1: RAUC here is built without streaming; copy the bundle to the board, or use cairn-flash rollout"
        ;;
    esac
}

check_version()
{
    have=$(version_of "$current")
    [ "$have" != unknown ] || return 0
    if [ "$have" = "$new" ]; then die "version $new runs already"; fi
    if [ "$older" = no ] && dpkg --compare-versions "$new" lt "$have"; then
        die "version $new is older than $have, which runs; --older installs it"
    fi
}

# Prints the version that RAUC has noted for a slot, or nothing.
noted_version()
{
    slots=$(rauc status --detailed --output-format=shell 2>/dev/null) || return 0
    number=$(printf '%s\n' "$slots" | sed -n "s/^RAUC_SLOT_BOOTNAME_\([0-9][0-9]*\)='$1'$/\1/p")
    printf '%s\n' "$slots" | sed -n "s/^RAUC_SLOT_STATUS_BUNDLE_VERSION_${number:-none}='\(.*\)'$/\1/p"
}

# RAUC fetches a URL again to install it: it may have got another bundle than the one that was looked at.
check_installed()
{
    installed=$(noted_version "$slot")
    if [ -z "$installed" ] || [ "$installed" = "$version" ]; then return; fi
    boot set-primary "$current" || true
    boot set-state "$slot" bad || true
    decide "$version" "$slot" failed
    die "$bundle: it was version $version and then $installed, which is not started"
}

let_go()
{
    rm -f "$runtime/hold"
}

# Two at a time would write the same notes, and the first that ends would let the node go on. The lock ends with the
# processes that hold it.
be_alone()
{
    mkdir -p "$runtime"
    chmod 755 "$runtime"
    exec 9>"$runtime/lock"
    flock -n 9 || die "another installation runs"
}

# Waits until the node rests. It goes on by itself when the file is gone.
hold_node()
{
    trap let_go EXIT
    trap 'exit 130' INT TERM HUP
    : >"$runtime/hold"
    waited=0
    until node_rests; do
        [ "$waited" -lt "$wait" ] || die "the node's round has not ended in $wait s; nothing was installed"
        sleep 1
        waited=$((waited + 1))
    done
}

install_update()
{
    wait=3600 older=no restart=yes insecure=no
    while [ $# -gt 1 ]; do
        case $1 in
        --wait)
            wait=$2
            shift
            case $wait in '' | *[!0-9]*) usage ;; esac
            ;;
        --older) older=yes ;;
        --insecure) insecure=yes ;;
        --no-reboot) restart=no ;;
        *) usage ;;
        esac
        shift
    done
    case ${1:-} in '' | -*) usage ;; esac
    bundle=$1
    trap '' PIPE # for RAUC, too: an installation does not end where its messages do
    be_alone
    current=$(boot get-current)
    if read_pending; then die "version $version in slot $slot is not decided yet"; fi
    check_place "$bundle"
    read_bundle "$bundle"
    check_version
    asked=$new
    hold_node
    read_bundle "$bundle" # the wait may have been long
    [ "$new" = "$asked" ] || die "$bundle: it was version $asked and is $new now; nothing was installed"

    version=$new slot=B stage=installing tries=0 returns=0
    if [ "$current" = B ]; then slot=A; fi
    lost=$(residuals_lost)
    store_host_keys
    remove_note "version.$slot"
    write_pending
    code=0
    rauc install "$bundle" || code=$?
    # RAUC's service goes on without the program that asked it, and may yet make the slot the next one to start.
    if [ "$code" -gt 128 ]; then die "RAUC's program was ended by a signal; the next boot decides: restart the board"; fi
    if [ "$code" -ne 0 ]; then
        decide "$version" "$slot" failed
        exit 1
    fi
    check_installed
    write_note "version.$slot" "$version"
    stage=installed
    write_pending
    report "$current" "$(version_of "$current")" "installed:$version"
    if [ "$restart" = no ]; then
        say "version $version is in slot $slot; it starts when the board is restarted"
        return
    fi
    say "version $version is in slot $slot; the board is restarted"
    trap - EXIT # the node rests until then
    boot reboot
}

print_status()
{
    [ $# -eq 0 ] || usage
    current=$(boot get-current)
    for each in A B; do
        printf 'slot %s  version %s, %s%s\n' "$each" "$(version_of "$each")" "$(boot get-state "$each")" \
            "$([ "$each" != "$current" ] || echo ', running')"
    done
    if read_pending; then
        printf 'version %s in slot %s is %s; boots of it so far: %s\n' "$version" "$slot" "$stage" "$tries"
    fi
    printf 'last result: %s\n' "$(last_result)"
}
