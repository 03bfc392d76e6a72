// node_gpus.h - a process for each GPU of a board, and one that looks after them.
#pragma once

#include <stdint.h>

// Runs run(context, place) in a child for each of count places, until all have ended with
// CN_EXIT_DONE: then that. A child that was killed, interrupted or failed is started again, the
// later the oftener; one that ends with another code ends the others, and that is the result.
// SIGTERM and SIGINT end all in good order. Before the first call this process has no threads and
// no device. name says whose child it is, for the log.
int cn_command_run_each(uint32_t count, int (*run)(void *context, uint32_t place),
                        void (*name)(void *context, uint32_t place, char *text, uint32_t size),
                        void *context);
