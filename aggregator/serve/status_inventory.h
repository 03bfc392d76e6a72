// status_inventory.h - what boards told of themselves, in the file that `status` reads.
#pragma once

#include <cjson/cJSON.h>

#include "runtime/port/link.h"

// Adds the members of an inventory to the object of a board; what was not told is left out.
void cn_status_inventory_add(cJSON *board, const struct cn_inventory *inventory);

#define CN_SYSTEMS_TEXT_SIZE 256

// Writes which of two systems runs and how the last update went, for people; "" for a board with
// one system: "slot B, version 1.4.0; update to 1.4.0: good".
void cn_status_inventory_text(const struct cn_inventory *inventory,
                              char text[CN_SYSTEMS_TEXT_SIZE]);

// Reads the members of an inventory back. Those that are missing or of another type become empty.
void cn_status_inventory_read(const cJSON *board, struct cn_inventory *inventory);
