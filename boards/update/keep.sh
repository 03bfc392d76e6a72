# shellcheck shell=sh
# keep.sh - what a board keeps over an update: its key, its profile, and the host keys of its ssh server.
#
# Key and profile lie on the data partition, and /etc/cairn shows them.
# An image has them in slot A, where cairn-flash wrote them. The first boot moves them: copied whole, then removed from
# the slot. After a power cut in between they are in both places, and the next boot removes them.
#
# Host keys stay in the slots, where the distribution has them. An installation copies those of the running system to the
# data partition. The new system takes them before its ssh server starts, as long as the update is not decided. With
# others it would be a stranger to everyone who knows the board, cairn-flash rollout included.
# shellcheck disable=SC2154 # variables of cairn-update and of notes.sh

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

# Copies files to a folder, each whole or not at all, with owner and mode.
copy_files()
{
    folder=$1
    shift
    for file in "$@"; do
        [ -s "$file" ] || continue
        name=${file##*/}
        cp -p "$file" "$folder/.new.$name" && sync "$folder/.new.$name" && mv "$folder/.new.$name" "$folder/$name"
    done
    sync "$folder"
}

store_host_keys()
{
    rm -rf "$data/cairn-ssh"
    mkdir -m 700 "$data/cairn-ssh"
    copy_files "$data/cairn-ssh" "$root"/etc/ssh/ssh_host_*
}

take_host_keys()
{
    [ -d "$data/cairn-ssh" ] && [ -d "$root/etc/ssh" ] || return 0
    current=$(boot get-current) || return 0
    if read_pending && [ "$slot" = "$current" ]; then copy_files "$root/etc/ssh" "$data"/cairn-ssh/ssh_host_*; fi
}

keep_identity()
{
    [ $# -eq 0 ] || usage
    slot_etc=$root/etc/cairn kept=$data/cairn-etc
    mountpoint -q "$data" || die "no partition is mounted at $data: key and state would be lost with this system"
    take_host_keys || say "the ssh server has other host keys than before: $data/cairn-ssh cannot be read"
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
