// commands.h - the subcommands of cairn-flash, one per file.
#pragma once

#include "runtime/command/command.h"

extern const struct cn_command cn_flash_plan;
extern const struct cn_command cn_flash_image;
extern const struct cn_command cn_flash_write;
extern const struct cn_command cn_flash_cards;
extern const struct cn_command cn_flash_rootfs;
extern const struct cn_command cn_flash_ssh;
extern const struct cn_command cn_flash_bundle;
extern const struct cn_command cn_flash_profile;
extern const struct cn_command cn_flash_rollout;
extern const struct cn_command cn_flash_verify;
extern const struct cn_command cn_flash_wait;
