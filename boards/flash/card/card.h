// card.h - writes an image to a card, whatever the card held before.
//
// Data is copied. Zeros are written or discarded. Only extents that no file system of the image has
// allocated keep the card's old bytes. The partition table is written last, so a card that was
// written only in part has none.
#pragma once

#include "boards/flash/image/manifest.h"

// The two halves of cn_card_write: all but the partition table, and the partition table.
bool cn_card_write_body(const struct cn_manifest_file *manifest, int from, int to,
                        uint64_t device_size, uint64_t *done);
bool cn_card_write_head(const struct cn_manifest_file *manifest, int from, int to);

// Reads the card back and compares it with the image: the body, or else the partition table. path
// names the card in messages. Returns CN_EXIT_VERIFY at the first part that differs.
int cn_card_compare(const struct cn_manifest_file *manifest, int from, int to, bool body,
                    const char *path);

// Writes the image open as `from` to the card open as `to`, which has device_size bytes. Sets *done
// to the number of bytes written so far. Returns false with errno after a failure, and with EINTR
// after Ctrl-C.
bool cn_card_write(const struct cn_manifest_file *manifest, int from, int to, uint64_t device_size,
                   uint64_t *done);
