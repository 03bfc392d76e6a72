// node_gpus.h - runs a process for each GPU of a board, and restarts those that fail.
#pragma once

#include <stdint.h>

// Runs run(context, place) in a child process for each of count places, at most CN_GROUP_MAX.
// Returns CN_EXIT_DONE once all children have ended with this code. A child that fails, is killed
// or is interrupted is started again after a pause, which grows each time. If a child ends with any
// other code, the other children are ended and that code is returned. SIGTERM and SIGINT make this
// process end all children with SIGTERM and return CN_EXIT_INTERRUPTED. This process must have no
// threads and no open device, because it forks. name writes the name of a child, for the log.
int cn_command_run_each(uint32_t count, int (*run)(void *context, uint32_t place),
                        void (*name)(void *context, uint32_t place, char *text, uint32_t size),
                        void *context);
