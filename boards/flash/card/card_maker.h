// card_maker.h - writes the card of one board from an image that all boards have in common.
//
// The common image has the packages, but no profile and no key. The card gets the image, then the
// board's own files on the card itself, and last the partition table. So the image is not copied
// for a board, no image ever holds a key, and a card without its board's identity does not boot.
#pragma once

#include "boards/flash/board/board_table.h"
#include "boards/flash/card/card_device.h"
#include "boards/flash/card/card_log.h"
#include "boards/flash/image/image_file.h"
#include "boards/flash/image/manifest.h"

struct cn_card_maker {
    struct cn_target_options order; // name and group are set for each board
    enum cn_device device;          // of the site's profile
    struct cn_card_permission permission;
    struct cn_image_file image; // the common one; its root is at the same place on each card
    struct cn_manifest_file manifest;
    int file; // the common image, open for reading
    struct cn_card_log log;
};

// Writes the card of a board and stores its progress in the log. An enrolment that an earlier run
// left behind is revoked first. Returns an exit code; after a failure the board is not enrolled and
// the card does not boot.
int cn_card_maker_make(struct cn_card_maker *maker, const struct cn_board_row *row);
