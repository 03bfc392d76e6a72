# shellcheck shell=sh
# slot-root.sh - the root that the kernel of a Jetson's slot is started with.
#
# UEFI passes the APPEND line of the slot's own /boot/extlinux/extlinux.conf to the kernel. A bundle has one such file for
# both slots, so the root in it is that of one slot at most. It is written before the slot becomes the one to start: a
# power cut leaves a slot that is not started, or one with its own root.
# shellcheck disable=SC2154 # root is cairn-boot's

slot_device()
{
    case $1 in
    A) device=$root${CAIRN_ROOT_A:-/dev/disk/by-partlabel/APP} ;;
    *) device=$root${CAIRN_ROOT_B:-/dev/disk/by-partlabel/APP_b} ;;
    esac
    [ -e "$device" ] || die "there is no $device; CAIRN_ROOT_$1 names the partition of slot $1"
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

leave_slot()
{
    umount "$point" || echo "cairn-boot: $point stays mounted" >&2
    trap - EXIT
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
        with_root "$conf" >"$conf.new" || die "$conf.new cannot be written"
        if cmp -s "$conf" "$conf.new"; then
            rm "$conf.new"
        elif [ -e "$conf.sig" ]; then
            rm "$conf.new"
            die "$conf is signed, so its root cannot be changed to that of slot $1"
        else
            sync "$conf.new"
            mv "$conf.new" "$conf" || die "$conf cannot be written"
            sync "$point/boot/extlinux"
        fi
    fi
    leave_slot
}
