// l4t_release.h - the release of Jetson Linux (L4T) that a board's system is, and whether the
// packages can use the GPU there.
//
// Its first line in /etc/nv_tegra_release, such as "# R36 (release), REVISION: 4.3, GCID: ...",
// names the release 36.4.3. Code of CUDA 12 needs the driver of JetPack 6.1, which is release 36.4,
// or a later one. Code of CUDA 13 needs that of JetPack 7, which is release 38 or later.
#pragma once

#include "boards/flash/image/image_file.h"

#define CN_L4T_RELEASE_FILE "/etc/nv_tegra_release"

struct cn_l4t_release {
    unsigned major, minor, patch;
};

// Reads the text of CN_L4T_RELEASE_FILE. Returns false when it names no release.
bool cn_l4t_release_read(const char *text, struct cn_l4t_release *release);

// Prints the release that text names, and what the packages train on there. what names the board in
// messages. Refuses a profile with "device: cuda" whose packages cannot use the GPU. Prints nothing
// for another text. Returns an exit code.
int cn_l4t_release_check(const char *text, const struct cn_payload *payload, const char *what);

// The same for the root of an image.
int cn_l4t_release_check_image(const struct cn_image_file *image, const struct cn_payload *payload);
