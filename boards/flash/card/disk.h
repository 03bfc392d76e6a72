// disk.h - describes a block device, so that the wrong one is never written.
//
// The facts come from /sys/dev/block, /proc/self/mountinfo and /proc/swaps (proc(5); sysfs-block in
// Linux's ABI documents). Tests pass another root directory.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cn_disk {
    char name[64]; // kernel name: sdb, mmcblk0, loop3
    char model[80];
    uint64_t size; // bytes
    bool partition, removable, read_only;
    // What uses the device or one of its partitions: "/boot is mounted from sdb1"; "": nothing
    char use[256];
};

// Reads the facts about one device. root is prepended to all paths; it is "" on a real machine.
// Returns false when the kernel does not know the device.
bool cn_disk_examine(const char *root, unsigned major, unsigned minor, struct cn_disk *device);
