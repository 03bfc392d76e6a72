// onnx_world.h - a model that is read from a file or from bytes that a test made.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/onnx/onnx.h"
#include "runtime/port/platform.h"
#include "tests/unit/onnx_message.h"

struct fixture {
    struct cn_mapping file;
    uint8_t *copy; // of a message, of its exact size so that a sanitizer sees each byte too far
    struct cn_diag diag;
    struct cn_onnx *onnx;
    struct cn_layout layout;
};

static inline int set_up(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    return *state ? 0 : 1;
}

static inline void close_model(struct fixture *fixture)
{
    cn_onnx_close(fixture->onnx);
    fixture->onnx = NULL;
    cn_layout_deinit(&fixture->layout);
    cn_platform_unmap(&fixture->file);
    free(fixture->copy);
    fixture->copy = NULL;
}

static inline int tear_down(void **state)
{
    close_model(*state);
    free(*state);
    return 0;
}

static inline cn_err open_bytes(struct fixture *fixture, const uint8_t *data, size_t size)
{
    close_model(fixture);
    cn_diag_init(&fixture->diag);
    fixture->copy = malloc(size ? size : 1);
    assert_non_null(fixture->copy);
    memcpy(fixture->copy, data, size);
    return cn_onnx_open(fixture->copy, size, &fixture->diag, &fixture->onnx);
}

static inline cn_err open_graph(struct fixture *fixture, const struct message *graph)
{
    struct message model = model_message(graph);

    return open_bytes(fixture, model.bytes, model.size);
}
