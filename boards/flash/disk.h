// disk.h - what a block device is, so that the wrong one is never written.
//
// Facts come from /sys/dev/block, /proc/self/mountinfo and /proc/swaps (proc(5), sysfs-block of
// Linux's ABI documents); tests give other roots.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cn_disk {
    char name[64]; // kernel name: sdb, mmcblk0, loop3
    char model[80];
    uint64_t size; // bytes
    bool partition, removable, read_only;
    char use[256]; // what uses it or a part of it: "/boot is mounted from sdb1"; "" for nothing
};

// root is "" on a real machine. False when the device is not known to the kernel.
bool cn_disk_examine(const char *root, unsigned major, unsigned minor, struct cn_disk *device);
