// cairn-flash: puts Cairn on boards, verifies every byte and says when the board has joined.
#include "boards/flash/commands.h"

int main(int argc, char **argv)
{
    static const struct cn_command *const commands[] = {
        &cn_flash_plan,   &cn_flash_image, &cn_flash_write,   &cn_flash_cards,
        &cn_flash_rootfs, &cn_flash_ssh,   &cn_flash_bundle,  &cn_flash_rollout,
        &cn_flash_verify, &cn_flash_wait,  &cn_flash_profile, NULL,
    };
    static const struct cn_ports none;

    return cn_command_dispatch("cairn-flash", commands, &none, argc, argv);
}
