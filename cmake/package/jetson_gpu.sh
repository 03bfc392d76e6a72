    # The GPU of a Jetson needs more device files, which belong to groups that other systems lack.
    dropin=$DPKG_ROOT/etc/systemd/system/cairn-node.service.d/jetson-gpu.conf
    if grep -qs nvidia,tegra "$DPKG_ROOT/proc/device-tree/compatible"; then
        mkdir -p "${dropin%/*}"
        cp "$DPKG_ROOT/usr/share/cairn-node/jetson-gpu.conf" "$dropin"
        for group in video render; do
            if getent group "$group" >/dev/null; then
                echo "SupplementaryGroups=$group" >>"$dropin"
            fi
        done
    fi
