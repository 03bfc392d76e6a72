// slot_root.h - whether a system can start from either of two slots.
//
// A bundle is written to both slots. A system whose files name the root of one slot would start in
// the other one with the wrong root. Jetson Linux flashes APP and APP_b with a UUID each, and
// writes it into /boot/extlinux/extlinux.conf (flash.sh, build_fsimg).
#pragma once

#include <stdbool.h>

#include "boards/flash/image/image_file.h"

// Tells whether the kernel line of a boot entry names its root: a partition, which is that of one
// slot.
bool cn_slot_root_in_extlinux(const char *text);

// Tells whether a line of an fstab mounts a root by the UUID of one slot.
bool cn_slot_root_in_fstab(const char *text);

// Warns when the root of the image has such an extlinux.conf or fstab. what names it in the
// message.
void cn_slot_root_warn(const struct cn_image_file *image, const char *what);
