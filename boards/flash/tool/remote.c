#include "boards/flash/tool/remote.h"

#include "runtime/command/command.h"

int cn_remote_run(const char *host, const char *script, int in, struct cn_process_result *result)
{
    const char *const argv[] = CN_REMOTE_COMMAND(host, script);
    cn_err err = cn_process_run(argv, in, result);

    return !err && result->code == 0 ? CN_EXIT_DONE : CN_EXIT_FAILED;
}
