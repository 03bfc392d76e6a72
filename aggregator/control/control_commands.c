// The commands of the control sockets, with the role that each needs.
#include <string.h>

#include "aggregator/control/control_private.h"

static const struct cn_control_command commands[] = {
    {.name = "status", .role = CN_CONTROL_VIEW},
    {.name = "pause",
     .role = CN_CONTROL_OPERATOR,
     .allowed = CN_CONTROL_NOW,
     .changes = true,
     .alone = true,
     .write = cn_control_write_pause},
    {.name = "resume",
     .role = CN_CONTROL_OPERATOR,
     .allowed = CN_CONTROL_GROUP,
     .changes = true,
     .alone = true,
     .write = cn_control_write_resume},
    {.name = "drain",
     .role = CN_CONTROL_OPERATOR,
     .allowed = CN_CONTROL_GROUP,
     .changes = true,
     .alone = true,
     .write = cn_control_write_drain},
    {.name = "close-round",
     .role = CN_CONTROL_OPERATOR,
     .allowed = CN_CONTROL_YES,
     .changes = true,
     .write = cn_control_write_close_round,
     .apply = cn_control_apply_close_round},
    {.name = "extend-round",
     .role = CN_CONTROL_OPERATOR,
     .required = CN_CONTROL_DURATION,
     .changes = true,
     .write = cn_control_write_extend_round,
     .apply = cn_control_apply_extend_round},
    {.name = "enroll",
     .role = CN_CONTROL_ADMIN,
     .allowed = CN_CONTROL_GROUP | CN_CONTROL_MAX_WEIGHT,
     .required = CN_CONTROL_BOARD | CN_CONTROL_KEY,
     .changes = true,
     .alone = true,
     .write = cn_control_write_enroll},
    {.name = "revoke",
     .role = CN_CONTROL_ADMIN,
     .required = CN_CONTROL_BOARD,
     .changes = true,
     .alone = true,
     .write = cn_control_write_revoke},
    {.name = "move",
     .role = CN_CONTROL_ADMIN,
     .required = CN_CONTROL_BOARD | CN_CONTROL_GROUP,
     .changes = true,
     .alone = true,
     .write = cn_control_write_move},
    {.name = "logs",
     .role = CN_CONTROL_OPERATOR,
     .allowed = CN_CONTROL_LINES,
     .required = CN_CONTROL_BOARD,
     .changes = true,
     .apply = cn_control_apply_logs},
    {.name = "answer",
     .role = CN_CONTROL_OPERATOR,
     .required = CN_CONTROL_BOARD,
     .read = cn_control_read_answer},
    {.name = "reload", .role = CN_CONTROL_ADMIN, .changes = true, .apply = cn_control_apply_reload},
    {.name = "stop", .role = CN_CONTROL_ADMIN, .changes = true, .apply = cn_control_apply_stop},
};

const struct cn_control_command *cn_control_find(const char *name)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}
