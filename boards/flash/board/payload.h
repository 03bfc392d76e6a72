// payload.h - the files that a board gets: its profile, its key, the packages, and the script that
// installs them at the first boot.
//
// The packages are not unpacked into the image. A systemd unit checks their digests at the first
// boot and passes them to dpkg, so the board's package database stays correct.
#pragma once

#include "boards/flash/board/target_options.h"
#include "boards/flash/tool/workspace.h"
#include "runtime/base/bytes.h"
#include "runtime/profile/profile.h"

#define CN_PAYLOAD_FILES 32
#define CN_PAYLOAD_TARGET 256

// Paths on the board.
#define CN_PAYLOAD_ETC "/etc/cairn"
#define CN_PAYLOAD_SEED "/var/lib/cairn-seed"
#define CN_PAYLOAD_UNIT "/etc/systemd/system/cairn-firstboot.service"
#define CN_PAYLOAD_UNIT_LINK "/etc/systemd/system/basic.target.wants/cairn-firstboot.service"

struct cn_payload_file {
    char source[512];               // path on this machine
    char target[CN_PAYLOAD_TARGET]; // path on the board
    uint32_t mode;
    uint64_t size;
    uint8_t digest[CN_DIGEST_SIZE]; // SHA-256
};

struct cn_package {
    char name[64], version[64], architecture[16];
    uint64_t installed_size; // bytes
    unsigned cuda;           // major version of CUDA of its code for GPUs; 0: none
};

struct cn_payload {
    struct cn_payload_file files[CN_PAYLOAD_FILES];
    size_t count;
    struct cn_package packages[CN_TARGET_PACKAGES];
    size_t package_count;
    char architecture[16]; // of the packages that depend on one; "all" when none does
    char board[64];        // board type from the profile
    enum cn_device device; // from the profile; CN_DEVICE_AUTO without one
    unsigned cuda;         // major version of CUDA in the packages; 0: not known, or none
};

// Checks everything that needs no target and stages the files in space. The key is added later.
// Returns an exit code after printing what is wrong.
int cn_payload_make(const struct cn_target_options *order, const struct cn_workspace *space,
                    struct cn_payload *payload);

// The two parts of cn_payload_make: the profile of one board, and all that boards have in common.
int cn_payload_make_identity(const struct cn_target_options *order,
                             const struct cn_workspace *space, struct cn_payload *payload);
int cn_payload_make_common(const struct cn_target_options *order, const struct cn_workspace *space,
                           struct cn_payload *payload);

// Adds a file and hashes its content. Returns an exit code.
int cn_payload_add(struct cn_payload *payload, const char *source, const char *target,
                   uint32_t mode);

// Returns the bytes of all files plus the installed size of the packages.
uint64_t cn_payload_size(const struct cn_payload *payload);

// Prints the packages and files that the board will get.
void cn_payload_print(const struct cn_payload *payload);
