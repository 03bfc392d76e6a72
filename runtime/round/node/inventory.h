// inventory.h - what this board is and runs, as it tells the aggregator.
#pragma once

#include "runtime/port/link.h"

// Fills in the inventory. sysroot is put in front of /etc and /run; "": this machine. state is the
// board's state directory. What cannot be found out is left empty.
void cn_inventory_take(const char *sysroot, const char *state, struct cn_inventory *inventory);

// Names the system below sysroot: by NVIDIA's release file on a Jetson, else by os-release.
void cn_inventory_system(const char *sysroot, char text[CN_SYSTEM_TEXT_SIZE]);
