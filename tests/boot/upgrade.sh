#!/bin/sh
# upgrade.sh - in the guest, by a unit of its own: upgrades cairn-node in the middle of the run, then tries a
# package that cannot read its state. What it saw goes to the console.

say()
{
    echo "upgrade: $*" >/dev/console
}

facts()
{
    say "$1: version $(dpkg-query -W -f '${Version}' cairn-node), pid $(systemctl show -p MainPID --value cairn-node)"
}

wait_for()
{
    until journalctl -u cairn-node -o cat | grep -q "$1"; do sleep 1; done
}

wait_for 'version 2:'
facts before
dpkg -i /data/newer.deb >/dev/console 2>&1 || say "the upgrade failed"
facts upgraded
wait_for 'version 4:'
if dpkg -i /data/older.deb >/dev/console 2>&1; then say "the downgrade was not refused"; else say "the downgrade is refused"; fi
facts kept
