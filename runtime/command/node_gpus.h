// node_gpus.h - runs a process for each GPU of a board, and restarts those that end.
#pragma once

#include <stdint.h>

// Runs run(context, place) in a child process for each of count places. Returns CN_EXIT_DONE once
// all have ended with that. A child that fails, is killed or is interrupted is started again after
// a pause, longer each time. If a child ends with any other code, the others are ended and that
// code is returned. SIGTERM and SIGINT end all in good order. This process must have no threads and
// no open device, because it forks. name writes the name of a child, for the log.
int cn_command_run_each(uint32_t count, int (*run)(void *context, uint32_t place),
                        void (*name)(void *context, uint32_t place, char *text, uint32_t size),
                        void *context);
