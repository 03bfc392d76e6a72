// remote.h - runs scripts on another machine by ssh, without a password.
#pragma once

#include "boards/flash/tool/process.h"

// Begins a script: sets $s to the prefix of root's commands on the board.
#define CN_REMOTE_ROOT "if [ \"$(id -u)\" = 0 ]; then s=; else s='sudo -n'; fi; "

// The words of a command line that runs a script on a host ("USER@HOST" or an ssh URI). ssh gives
// up a host that does not answer for 30 s, and a connection that is dead for 2 min.
#define CN_REMOTE_COMMAND(host, script)                                                            \
    {                                                                                              \
        "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=30",   \
            "-o", "ServerAliveCountMax=4", (host), (script), NULL                                  \
    }

// The number of these words.
#define CN_REMOTE_WORDS 12

// Runs a script on a host, with `in` as its standard input (-1: nothing). Returns an exit code.
// Deinitialise the result in any case.
int cn_remote_run(const char *host, const char *script, int in, struct cn_process_result *result);
