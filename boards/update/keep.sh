# shellcheck shell=sh
# keep.sh - cairn-update's keep: key and profile of the board lie on the data partition, and /etc/cairn shows them.
#
# An image has them in slot A, where cairn-flash wrote them. The first boot moves them: copied whole, then removed from
# the slot. After a power cut in between they are in both places, and the next boot removes them.
# shellcheck disable=SC2154 # variables of cairn-update

# Removes a file of the slot that the data partition has, too.
drop_from_slot()
{
    [ -e "$slot_etc/$1" ] || return 0
    if [ ! -e "$kept/$1" ]; then
        cp -a "$slot_etc/$1" "$kept/.new.$1"
        sync "$kept/.new.$1"
        mv "$kept/.new.$1" "$kept/$1"
        sync "$kept"
    fi
    if cmp -s "$slot_etc/$1" "$kept/$1"; then
        rm "$slot_etc/$1"
    else
        say "$slot_etc/$1 is not the one on the data partition, which is used"
    fi
}

keep_identity()
{
    [ $# -eq 0 ] || usage
    slot_etc=$root/etc/cairn kept=$data/cairn-etc
    mountpoint -q "$data" || die "no partition is mounted at $data: key and state would be lost with this system"
    if mountpoint -q "$slot_etc"; then return; fi
    if [ ! -d "$kept" ]; then
        rm -rf "$kept.new"
        mkdir -p "$slot_etc"
        cp -a "$slot_etc" "$kept.new"
        sync -f "$kept.new"
        mv "$kept.new" "$kept"
        sync "$data"
    fi
    for file in node.key node.yaml; do drop_from_slot "$file"; done
    mkdir -p "$slot_etc"
    mount --bind "$kept" "$slot_etc"
}
