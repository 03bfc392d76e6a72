# shellcheck shell=sh
# boot-tryboot.sh - cairn-boot's part for Raspberry Pi boards whose firmware knows tryboot_a_b.
#
# The first FAT partition holds autoboot.txt and is mounted at CAIRN_AUTOBOOT. The firmware starts the boot partition
# of its [all] part, and after "reboot '0 tryboot'" once that of [tryboot]. So it tries a slot only once: tries are
# counted here, in CAIRN_DATA/cairn-update/trial ("SLOT TRIES-LEFT"). After a try that failed, the old slot starts it
# again. CAIRN_PARTITION_A and CAIRN_PARTITION_B are the numbers of the two boot partitions.
# shellcheck disable=SC2154 # root is cairn-boot's

tries=3
autoboot=$root${CAIRN_AUTOBOOT:-/boot/autoboot}/autoboot.txt
partition_A=${CAIRN_PARTITION_A:-2}
partition_B=${CAIRN_PARTITION_B:-3}
notes=$root${CAIRN_DATA:-/var/lib/private}/cairn-update

slot_of()
{
    case $1 in
    "$partition_A") echo A ;;
    "$partition_B") echo B ;;
    *) die "$2 names boot partition '$1'; the slots have $partition_A and $partition_B" ;;
    esac
}

partition_of()
{
    case $1 in A) echo "$partition_A" ;; *) echo "$partition_B" ;; esac
}

# Replaces a file by what comes in; after a power cut it is the old or the new one.
replace()
{
    cat >"$1.new"
    sync "$1.new"
    mv "$1.new" "$1"
    sync "$(dirname "$1")"
}

# Prints the slot of a part of autoboot.txt: all or tryboot.
read_autoboot()
{
    [ -r "$autoboot" ] || die "$autoboot cannot be read"
    partition=$(tr -d '\r' <"$autoboot" | awk -v part="[$1]" '
        /^\[/ { here = $0 == part }
        here && /^boot_partition=[0-9]+$/ { sub(/.*=/, ""); found = $0 }
        END { print found }')
    slot_of "$partition" "[$1] of $autoboot"
}

write_autoboot()
{
    printf '[all]\ntryboot_a_b=1\nboot_partition=%s\n[tryboot]\nboot_partition=%s\n' \
        "$(partition_of "$1")" "$(partition_of "$(other_slot "$1")")" | replace "$autoboot"
}

# Reads the trial: trial is its slot or "", left the tries that are left. A damaged note is no trial.
read_trial()
{
    trial='' left=0
    [ -r "$notes/trial" ] || return 0
    read -r trial left <"$notes/trial" || true
    case "$trial $left" in
    [AB]\ [0-9]) ;;
    *) trial='' left=0 ;;
    esac
}

write_trial()
{
    mkdir -p "$notes"
    echo "$1 $2" | replace "$notes/trial"
}

get_primary()
{
    read_trial
    if [ -n "$trial" ] && [ "$left" -gt 0 ]; then echo "$trial"; else read_autoboot all; fi
}

get_current()
{
    node=$root/proc/device-tree/chosen/bootloader/partition
    [ -r "$node" ] || die "$node cannot be read: is the firmware too old?"
    # A big-endian number of 32 bits.
    slot_of "$(od -An -t u1 "$node" | awk '{ if (NF == 4) print (($1 * 256 + $2) * 256 + $3) * 256 + $4 }')" "the firmware"
}

get_state()
{
    read_trial
    if [ -e "$notes/bad.$1" ] || { [ "$trial" = "$1" ] && [ "$left" -eq 0 ]; }; then echo bad; else echo good; fi
}

set_primary()
{
    default=$(read_autoboot all)
    if [ "$1" = "$default" ]; then
        rm -f "$notes/trial" "$notes/bad.$1"
        return
    fi
    write_autoboot "$default" # so that [tryboot] is the other slot
    rm -f "$notes/bad.$1"
    write_trial "$1" "$tries"
}

set_good()
{
    current=$(get_current)
    read_trial
    # Only a slot that runs becomes the default.
    default=$(read_autoboot all)
    if [ "$1" = "$current" ] && [ "$default" != "$1" ]; then write_autoboot "$1"; fi
    if [ "$1" = "$current" ] && [ "$trial" = "$1" ]; then rm -f "$notes/trial"; fi
    rm -f "$notes/bad.$1"
}

set_bad()
{
    read_trial
    mkdir -p "$notes"
    : >"$notes/bad.$1"
    sync "$notes"
    if [ "$trial" = "$1" ]; then rm -f "$notes/trial"; fi
}

restart()
{
    read_trial
    if [ -z "$trial" ] || [ "$left" -eq 0 ]; then
        systemctl reboot
        return
    fi
    # Counted before the try, so that a try that hangs is counted.
    write_trial "$trial" $((left - 1))
    systemctl reboot --reboot-argument='0 tryboot'
}
