// selftest.h - the parts of "cairn-node selftest"; each adds what it finds to a JSON object.
//
// A user may send the report to anybody, so it must have no keys, addresses, names of boards or
// samples. A part returns an error when something that Cairn needs fails; the object says what.
#pragma once

#include <cjson/cJSON.h>

#include "runtime/base/bytes.h"
#include "runtime/command/command.h"

struct cn_selftest {
    const struct cn_ports *ports;
    const char *boards;                 // folder of the types of boards, or NULL (board_find.h)
    const char *sysroot;                // "" on the board itself
    const char *state;                  // folder for measuring storage, or NULL: not measured
    const char *model;                  // ONNX file, or NULL: the built-in one
    const struct cn_settings *settings; // NULL without a profile: no link
};

// selftest_board.c: system, firmware, GPU, clock and sensors of the board.
void cn_selftest_system(const struct cn_selftest *test, cJSON *report);
void cn_selftest_gpu(const struct cn_selftest *test, cJSON *report);
void cn_selftest_clock(cJSON *report);
void cn_selftest_sensors(const struct cn_selftest *test, cJSON *report);

// selftest_speed.c: speed of memory, training and storage.
cn_err cn_selftest_memory(cJSON *report);
cn_err cn_selftest_training(const struct cn_selftest *test, cJSON *report);
cn_err cn_selftest_storage(const struct cn_selftest *test, cJSON *report);

// selftest_link.c: whether the aggregator answers, and how fast.
cn_err cn_selftest_link(const struct cn_selftest *test, cJSON *report);

// selftest_model.c: a small convolutional network as an ONNX file, for images of 3 x 32 x 32 and
// ten classes.
cn_err cn_selftest_model(struct cn_buffer *file);
