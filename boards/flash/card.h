// card.h - writes an image to a card so that the card holds it whatever was there before.
//
// Data is copied, zeros are written or discarded, and only what a file system of the image has not
// allocated keeps its old bytes. A card that was written in part has no partition table.
#pragma once

#include "boards/flash/manifest.h"

// Writes the image from to the card to, which has device_size bytes. *done is the number of bytes
// that were written. False with errno after a failure, and with EINTR after Ctrl-C.
bool cn_card_write(const struct cn_manifest_file *manifest, int from, int to, uint64_t device_size,
                   uint64_t *done);
