// cairn-aggregator: the gateway's program. Picks the ports and runs a subcommand.
#include "aggregator/command/aggregator_commands.h"
#include "ports/ports.h"

int main(int argc, char **argv)
{
    static const struct cn_command *const commands[] = {
        &cn_aggregator_try,
        &cn_aggregator_sweep,
        &cn_aggregator_init,
        &cn_aggregator_check,
        &cn_aggregator_run,
        &cn_aggregator_enroll,
        &cn_aggregator_revoke,
        &cn_aggregator_revocations,
        &cn_aggregator_status,
        &cn_aggregator_events,
        &cn_aggregator_report,
        &cn_aggregator_export,
        &cn_aggregator_replay,
        &cn_aggregator_reload,
        &cn_aggregator_rollback,
        &cn_aggregator_remove,
        &cn_aggregator_pause,
        &cn_aggregator_resume,
        &cn_aggregator_drain,
        &cn_aggregator_close_round,
        &cn_aggregator_extend_round,
        &cn_aggregator_move,
        &cn_aggregator_job,
        &cn_aggregator_logs,
        &cn_aggregator_selftest,
        &cn_aggregator_stop,
        &cn_aggregator_snapshot,
        &cn_aggregator_audit,
        NULL,
    };
    const struct cn_ports ports = {.computes = cn_ports_computes};
    return cn_command_dispatch("cairn-aggregator", commands, &ports, argc, argv);
}
