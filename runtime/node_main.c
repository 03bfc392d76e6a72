// node_main.c - cairn-node: ties the runtime to the ports and the transport of this build.
#include <string.h>

#include "ports/nccl/collective_nccl.h"
#include "ports/ports.h"
#include "ports/tcp/collective_tcp.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"
#include "transport/board/board_link.h"
#include "transport/coap/security.h"
#include "transport/http/http_text.h"
#include "transport/peer/peer_coap.h"

static cn_err load_link_key(const struct cn_settings *settings, struct cn_diag *diag,
                            uint8_t key[CN_KEY_SIZE])
{
    struct cn_board_key board;
    cn_err err;

    err = cn_security_load_key(settings->key, diag, &board);
    if (err)
        return err;
    if (strcmp(board.board, settings->name) != 0) {
        cn_diag_add(diag, "%s: error: the key is that of '%s', the profile's name is '%s'",
                    settings->key, board.board, settings->name);
        err = CN_EAUTH;
    } else {
        err = cn_security_dtls_key(&board, key);
    }
    cn_crypto_wipe(&board, sizeof(board));
    return err;
}

int main(int argc, char **argv)
{
    static const struct cn_command *const commands[] = {
        &cn_command_init,   &cn_command_check,    &cn_command_normalize,
        &cn_command_train,  &cn_command_run,      &cn_command_bench,
        &cn_command_status, &cn_command_selftest, NULL,
    };
    const struct cn_ports ports = {
        .computes = cn_ports_computes,
        .collective = &cn_collective_tcp,
        .fast = &cn_collective_nccl,
        .open_peer_link = cn_peer_coap_open,
        .link = &cn_board_link,
        .text_server = &cn_http_text,
        .load_link_key = load_link_key,
    };

    cn_platform_return_memory();
    return cn_command_dispatch("cairn-node", commands, &ports, argc, argv);
}
