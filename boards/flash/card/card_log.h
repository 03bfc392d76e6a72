// card_log.h - the progress of `cairn-flash cards`, in a file, so that it can be resumed.
//
// OUT.cards has a line for each step: "cairn-flash-cards/1 DIGEST", then "begun NAME DEVICE", or
// the same with "undone", "table" or "written". Each line is on the disk before the step that
// follows it. A last line without an end of line was cut off and does not count. The file holds no
// secrets.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/name.h"

enum cn_card_state {
    CN_CARD_NEW,     // nothing was done for the board, or it was undone
    CN_CARD_BEGUN,   // the board was perhaps enrolled; its card is not complete
    CN_CARD_TABLE,   // the board is enrolled; its card is perhaps complete
    CN_CARD_WRITTEN, // its card is complete
};

struct cn_card_log {
    int file;
    struct cn_card_entry *entries;
    size_t count;
};

struct cn_card_entry {
    char name[CN_NAME_SIZE];
    enum cn_card_state state;
};

enum cn_card_log_use {
    CN_CARD_LOG_LOOK, // writes nothing
    CN_CARD_LOG_TAKE, // goes on with the file, if there is one
    CN_CARD_LOG_MAKE, // makes the file if there is none
};

// Opens the progress file of the image at path. order is the digest of what the cards hold in
// common: a file with another digest is refused, and so is one of another user. Sets *resumed when
// the file was there; if it was not and is not made, log is empty. Returns an exit code after
// printing why.
int cn_card_log_open(const char *image, const uint8_t order[CN_DIGEST_SIZE],
                     enum cn_card_log_use use, struct cn_card_log *log, bool *resumed);

// Returns the state of a board.
enum cn_card_state cn_card_log_find(const struct cn_card_log *log, const char *name);

// Stores the state of a board; it is on the disk when this returns. place: the device, for people.
cn_err cn_card_log_note(struct cn_card_log *log, const char *name, enum cn_card_state state,
                        const char *place);

// Closes and removes the file, after no image could be made.
void cn_card_log_remove(const char *image, struct cn_card_log *log);

// Accepts a zeroed log.
void cn_card_log_close(struct cn_card_log *log);
