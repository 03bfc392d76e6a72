# shellcheck shell=sh
# boot-nvbootctrl.sh - cairn-boot's part for Jetson boards with Jetson Linux r35 or later and ROOTFS_AB=1.
#
# UEFI starts the active slot and counts its tries itself: three, then it marks the slot unbootable for good and
# starts the other one. "nvbootctrl verify" ends the tries. Jetson Linux calls it at each boot
# (nv-l4t-bootloader-config.service), so the package masks that unit. nvbootctrl cannot take "unbootable" back:
# that is a variable of UEFI.
# shellcheck disable=SC2154 # root is cairn-boot's

# shellcheck source=/dev/null # checked by itself
. "$here/slot-root.sh"

efi_variables=$root/sys/firmware/efi/efivars
vendor=781e084c-a330-417c-b678-38e696380cb9

# Reads the table of slots: current, active, status_A, status_B. Anything that it does not know is an error.
read_slots()
{
    table=$(nvbootctrl -t rootfs dump-slots-info) || die "nvbootctrl -t rootfs dump-slots-info failed"
    # shellcheck disable=SC2046 # words without blanks
    set -- $(printf '%s\n' "$table" | tr -d '\r' | awk '
        /^Current rootfs slot: [AB] *$/ { current = $4; currents++ }
        /^Active rootfs slot: [AB] *$/ { active = $4; actives++ }
        /^num_slots: 2 *$/ { slots++ }
        /^slot: [01], *retry_count: [0-9]+, *status: (normal|unbootable) *$/ {
            sub(",", "", $2); status[$2] = $NF; rows++
        }
        END {
            if (currents == 1 && actives == 1 && slots == 1 && rows == 2 && (0 in status) && (1 in status))
                print current, active, status[0], status[1]
        }')
    [ $# -eq 4 ] || die "nvbootctrl's table of slots is not understood: $(printf '%s' "$table" | tr '\n\r' '; ')"
    current=$1 active=$2 status_A=$3 status_B=$4
}

status_of()
{
    case $1 in A) echo "$status_A" ;; *) echo "$status_B" ;; esac
}

number_of()
{
    case $1 in A) echo 0 ;; *) echo 1 ;; esac
}

# Writes a slot's status into its UEFI variable: four bytes of attributes, then the value.
write_status()
{
    variable=$efi_variables/RootfsStatusSlot$1-$vendor
    [ -e "$variable" ] || die "there is no UEFI variable RootfsStatusSlot$1: is this board flashed with ROOTFS_AB=1?"
    chattr -i "$variable" || die "$variable stays immutable"
    # shellcheck disable=SC2059 # the value is made of escapes
    printf "\\007\\000\\000\\000$2\\000\\000\\000" >"$variable" || die "$variable cannot be written"
}

get_primary()
{
    read_slots
    echo "$active"
}

get_current()
{
    read_slots
    echo "$current"
}

get_state()
{
    read_slots
    if [ "$(status_of "$1")" = normal ]; then echo good; else echo bad; fi
}

set_primary()
{
    read_slots
    if [ "$1" != "$current" ]; then write_root "$1"; fi
    if [ "$(status_of "$1")" = unbootable ]; then write_status "$1" '\000'; fi
    nvbootctrl set-active-boot-slot "$(number_of "$1")" || die "nvbootctrl set-active-boot-slot failed"
    # The tool ends with 0 where a capsule update is pending or its configuration does not fit the board.
    read_slots
    [ "$active" = "$1" ] || die "nvbootctrl did not make $1 the active slot; it is still $active"
}

set_good()
{
    read_slots
    if [ "$(status_of "$1")" = unbootable ]; then write_status "$1" '\000'; fi
    if [ "$1" = "$current" ]; then
        nvbootctrl verify || die "nvbootctrl verify failed; the boots of slot $1 are still counted"
    fi
}

set_bad()
{
    read_slots
    write_status "$1" '\377'
}

restart()
{
    systemctl reboot
}
