// delivery.h - the steps that plan, image, rootfs and ssh share: read the options, check
// everything, enrol the board, write. Only the target differs.
//
// After a failure, Ctrl-C or SIGTERM the enrolment is revoked and the key is wiped.
#pragma once

#include "boards/flash/board/payload.h"
#include "boards/flash/board/target_options.h"
#include "boards/flash/image/image_file.h"
#include "boards/flash/tool/draft.h"
#include "boards/flash/tool/workspace.h"

struct cn_delivery {
    struct cn_target_options order;
    struct cn_workspace space;
    struct cn_payload payload;
    struct cn_image_file image; // used by plan and image only
    struct cn_draft draft;      // used by image only: where the image is made
    char copy[CN_DRAFT_PATH];   // the image in it
    bool delivered;             // the board has its key; a later failure does not revoke it
};

struct cn_delivery_target {
    const char *help;
    // Name of the required argument, such as "DIR". NULL: --base and -o are required instead.
    const char *operand;
    // Finds every fault that can be found before a key exists. Returns an exit code after printing
    // the fault.
    int (*check)(struct cn_delivery *delivery);
    // Writes the payload, which now includes the key, to the target. NULL: the subcommand only
    // plans.
    int (*write)(struct cn_delivery *delivery);
};

// Takes back what a killed program left in the draft: an enrolment, and the files. Returns an exit
// code after printing what is wrong. The draft is then left as it is for a later run.
int cn_delivery_take_over(struct cn_delivery *delivery);

// Runs the whole subcommand. Returns its exit code.
int cn_delivery_run(const struct cn_delivery_target *target, int argc, char **argv);
