# shellcheck shell=sh
# slot-root.sh - the root that the kernel of a Jetson's slot is started with.
#
# UEFI passes the APPEND line of the slot's own /boot/extlinux/extlinux.conf to the kernel. A bundle
# has one such file for both slots, so the root in it is that of one slot at most. It is written
# before the slot becomes the one to start: a power cut leaves a slot that is not started, or one
# with its own root.
# shellcheck disable=SC2154 # root is cairn-boot's

# Sets disk to the disk of a block device, which mountpoint(1) tells as MAJOR:MINOR.
find_disk()
{
    number=$(mountpoint "$@") || return 1
    disk=$(readlink -f "$root/sys/dev/block/$number")
    [ -e "$disk" ] || return 1
    if [ -e "$disk/partition" ]; then disk=${disk%/*}; fi
}

# Two disks may have partitions of the same label, and udev's link names one of them. The slots are
# those of the disk that the running root is on.
check_disk()
{
    remedy="CAIRN_ROOT_$1 names the partition of slot $1"
    find_disk -d "$root/" || die "the disk of the running root is not known; $remedy"
    running=$disk
    find_disk -x "$device" || die "$device is no block device"
    [ "$disk" = "$running" ] || die "$device is not on the disk of the running root; $remedy"
}

slot_device()
{
    case $1 in
    A) named=${CAIRN_ROOT_A:-} label=APP ;;
    *) named=${CAIRN_ROOT_B:-} label=APP_b ;;
    esac
    device=$root${named:-/dev/disk/by-partlabel/$label}
    [ -e "$device" ] || die "there is no $device; CAIRN_ROOT_$1 names the partition of slot $1"
    [ -n "$named" ] || check_disk "$1"
}

# Finds the PARTUUID of the device, as udev knows it. RAUC finds the running slot by the same links.
find_uuid()
{
    uuid=
    for link in "$root/dev/disk/by-partuuid/"*; do
        if [ "$(readlink -f "$link")" = "$(readlink -f "$device")" ]; then uuid=${link##*/}; fi
    done
    [ -n "$uuid" ] || die "$device has no PARTUUID in /dev/disk/by-partuuid"
}

# Prints the file with this root in each APPEND line, in place of the one that is there.
with_root()
{
    awk -v own="root=PARTUUID=$uuid" '
        $1 == "APPEND" {
            found = gsub(/[ \t]root=[^ \t\r]+/, " " own)
            if (!found) sub(/\r?$/, " " own)
        }
        { print }' "$1"
}

# Ends with 0 if each APPEND line of the file has this root only, with 1 if one has another or none,
# with 3 if there is no such line.
has_root()
{
    awk -v own="root=PARTUUID=$uuid" '
        $1 == "APPEND" {
            sub(/\r$/, "")
            lines++
            roots = 0
            for (i = 2; i <= NF; i++) if ($i ~ /^root=/) { roots++; if ($i != own) wrong = 1 }
            if (!roots) wrong = 1
        }
        END { exit lines ? wrong + 0 : 3 }' "$1"
}

change_root()
{
    if [ -e "$conf.sig" ] || [ -L "$conf.sig" ]; then
        die "$conf is signed, so its root cannot be changed to that of slot $1"
    fi
    rm -f "$conf.new" # it may be a link
    with_root "$conf" >"$conf.new" || die "$conf.new cannot be written"
    sync "$conf.new"
    mv "$conf.new" "$conf" || die "$conf cannot be written"
    sync "$point/boot/extlinux"
}

leave_slot()
{
    umount "$point" || echo "cairn-boot: $point stays mounted" >&2
}

# Writes the root of a slot that does not run. Slots without extlinux.conf start another way.
write_root()
{
    slot_device "$1"
    find_uuid
    point=$root/run/cairn-update/slot
    mkdir -p "$point"
    umount "$point" 2>/dev/null || : # of a run that was killed
    mount "$device" "$point" || die "$device of slot $1 cannot be mounted"
    trap leave_slot EXIT
    conf=$point/boot/extlinux/extlinux.conf
    if [ -e "$conf" ] || [ -L "$conf" ]; then
        [ "$(readlink -f "$conf")" = "$(readlink -f "$point")/boot/extlinux/extlinux.conf" ] ||
            die "$conf is behind a link"
        found=0
        has_root "$conf" || found=$?
        case $found in
        0) ;;
        1) change_root "$1" ;;
        3) die "$conf has no APPEND line, so slot $1 would start without its root" ;;
        *) die "$conf cannot be read" ;;
        esac
    fi
    trap - EXIT
    umount "$point" || die "$point cannot be unmounted, so slot $1 may not be written"
}
