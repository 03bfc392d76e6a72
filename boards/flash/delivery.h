// delivery.h - the steps that plan, image, rootfs and ssh share: read the options, check
// everything, enrol the board, write. A target is what they differ in.
//
// After a failure, or Ctrl-C or SIGTERM, the enrolment is taken back and the key is wiped.
#pragma once

#include "boards/flash/image_file.h"
#include "boards/flash/payload.h"
#include "boards/flash/target_options.h"
#include "boards/flash/workspace.h"

struct cn_delivery {
    struct cn_target_options order;
    struct cn_workspace space;
    struct cn_payload payload;
    struct cn_image_file image; // of plan and image
    const char *made;           // a file to remove when a later step fails, or NULL
    bool delivered; // the board has its key: what fails now is not a reason to revoke it
};

struct cn_delivery_target {
    const char *help;
    const char
        *operand; // what stands after the subcommand, such as "DIR"; NULL: --base and -o instead
    // Finds what can be found wrong before there is a key. An exit code after saying why.
    int (*check)(struct cn_delivery *delivery);
    // Puts the payload, which now has the key, in its place. NULL: only a plan.
    int (*write)(struct cn_delivery *delivery);
};

// The whole subcommand; an exit code.
int cn_delivery_run(const struct cn_delivery_target *target, int argc, char **argv);
