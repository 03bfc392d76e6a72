// target_options.h - the options that plan, image, rootfs and ssh share: what the user wants on a
// board.
#pragma once

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>

#define CN_TARGET_PACKAGES 4
#define CN_TARGET_EXTRAS 16

struct cn_target_options {
    const char *packages[CN_TARGET_PACKAGES]; // .deb files, in the order of installation
    size_t package_count;
    const char *extras[CN_TARGET_EXTRAS]; // "FILE:/path/on/board"
    size_t extra_count;
    const char *board;     // board type that the site's profile must have; NULL: any
    const char *site;      // path of the site's profile
    const char *name;      // name of the board
    const char *gateway;   // the aggregator's profile, or ssh://HOST/PATH; NULL when a key is given
    const char *group;     // group to enrol the board in; NULL: a group of its own
    const char *key;       // existing key file; NULL: enrol
    const char *base;      // path of the base image
    const char *partition; // root partition, needed when it cannot be recognised
    const char *out;       // path of the image to write
    bool many;             // set before parsing: boards are named in a list, not by --name or --key
    bool yes, fixed;       // with many: do not ask; cards may be fixed devices
    bool replace;          // write over the key and profile that a board already has
    bool json, dry_run;
    const char *positional; // the argument that is not an option, or NULL
};

// The --help lines for these options.
#define CN_TARGET_HELP                                                                             \
    "  --deb FILE         package to install, up to 4 times in order\n"                            \
    "  --site FILE        profile of the site; paths in it are paths on the board\n"               \
    "  --name NAME        name of this board\n"                                                    \
    "  --board TYPE       the site's profile must be of this type of board\n"                      \
    "  --gateway PROFILE  enrol at the aggregator of this profile, here or at\n"                   \
    "                     ssh://HOST/PATH\n"                                                       \
    "  --group G          group to enrol in; default: a group of its own\n"                        \
    "  --key FILE         instead of --gateway: a key that was made before\n"                      \
    "  --add FILE:PATH    another file, readable by all on the board, up to 16 times\n"            \
    "  --replace          over the profile and key of a board that are there already\n"            \
    "  --dry-run          say what would be done, write nothing\n"                                 \
    "  --json             one object a line\n"

// Reads the options into *order, which is zeroed except for `many`. Returns CN_EXIT_DONE, or the
// exit code after printing the fault.
int cn_target_options_parse(int argc, char **argv, const char *help,
                            struct cn_target_options *order);

// Add a package, or a "FILE:/path/on/board". Return false after printing that there are too many.
bool cn_target_add_package(struct cn_target_options *order, const char *path);
bool cn_target_add_extra(struct cn_target_options *order, const char *extra);
