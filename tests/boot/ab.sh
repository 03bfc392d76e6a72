#!/bin/sh
# ab.sh - in the guest, by a unit of its own, at each boot: in slot A it installs the bundle in the middle of the run;
# later boots say how that went. What it saw goes to the console.

say()
{
    echo "ab: $*" >/dev/console
}

slot=$(tr ' ' '\n' </proc/cmdline | sed -n 's/^rauc\.slot=//p')
if [ ! -e /var/lib/private/asked ]; then
    until journalctl -u cairn-node -o cat | grep -q 'version 2:'; do sleep 1; done
    mkdir -p /run/bundle
    mount -o ro /dev/vda /run/bundle || say "the bundle is not there"
    : >/var/lib/private/asked
    sync /var/lib/private
    say "slot $slot asks, node $(dpkg-query -W -f '${Version}' cairn-node)"
    cairn-update install /run/bundle/9.0.0.raucb >/dev/console 2>&1 || say "the installation failed"
    exit
fi
until [ ! -e /var/lib/private/cairn-update/pending ]; do sleep 1; done
say "slot $slot decided, node $(dpkg-query -W -f '${Version}' cairn-node)"
cairn-update status >/dev/console 2>&1
say "end of status"
