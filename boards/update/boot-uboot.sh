# shellcheck shell=sh
# boot-uboot.sh - cairn-boot's part for boards whose U-Boot counts tries in its environment.
#
# The boot script (boards/qemu-virt-arm64/image/boot.cmd is one) takes the first slot of BOOT_ORDER whose
# BOOT_A_LEFT or BOOT_B_LEFT is above 0, lowers that by one, stores it, and starts the slot with
# "rauc.slot=A" or "rauc.slot=B" on its command line. fw_printenv and fw_setenv read and write the environment; all
# variables of a change are written at once.
# shellcheck disable=SC2154 # root is cairn-boot's

tries=3
config=$root/etc/fw_env.config

read_environment()
{
    text=$(fw_printenv -c "$config" BOOT_ORDER BOOT_A_LEFT BOOT_B_LEFT) || die "fw_printenv failed; see $config"
    order=$(printf '%s\n' "$text" | sed -n 's/^BOOT_ORDER=//p')
    left_A=$(printf '%s\n' "$text" | sed -n 's/^BOOT_A_LEFT=//p')
    left_B=$(printf '%s\n' "$text" | sed -n 's/^BOOT_B_LEFT=//p')
    case $order in
    'A B' | 'B A') ;;
    *) die "BOOT_ORDER of U-Boot's environment is '$order'; it must be 'A B' or 'B A'" ;;
    esac
    # U-Boot's own numbers are hexadecimal, but of one digit here.
    case $left_A$left_B in
    [0-9][0-9]) ;;
    *) die "BOOT_A_LEFT and BOOT_B_LEFT of U-Boot's environment are '$left_A' and '$left_B'; one digit each is wanted" ;;
    esac
}

# Writes NAME=VALUE lines and reads them back: fw_setenv ends with 0 even for lines that it does not understand.
write_environment()
{
    printf '%s\n' "$@" | fw_setenv -c "$config" --script - || die "fw_setenv failed; see $config"
    for line in "$@"; do
        found=$(fw_printenv -c "$config" "${line%%=*}") || die "fw_printenv failed; see $config"
        [ "$found" = "$line" ] || die "$line was written, and '$found' is read"
    done
}

left_of()
{
    case $1 in A) echo "$left_A" ;; *) echo "$left_B" ;; esac
}

get_primary()
{
    read_environment
    for slot in $order; do
        if [ "$(left_of "$slot")" -gt 0 ]; then
            echo "$slot"
            return
        fi
    done
    die "no slot has a try left"
}

get_current()
{
    current=$(tr ' ' '\n' <"$root/proc/cmdline" | sed -n 's/^rauc\.slot=\([AB]\)$/\1/p')
    case $current in
    A | B) echo "$current" ;;
    *) die "the kernel's command line names no slot (rauc.slot=A or B)" ;;
    esac
}

get_state()
{
    read_environment
    if [ "$(left_of "$1")" -gt 0 ]; then echo good; else echo bad; fi
}

set_primary()
{
    write_environment "BOOT_ORDER=$1 $(other_slot "$1")" "BOOT_$1_LEFT=$tries"
}

set_good()
{
    write_environment "BOOT_$1_LEFT=$tries"
}

set_bad()
{
    write_environment "BOOT_$1_LEFT=0"
}

restart()
{
    systemctl reboot
}
