#include "tests/contract/deep_model.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define MESSAGE_SIZE ((size_t)512 << 10)
#include "tests/unit/onnx_message.h"

#define WIDTH 128

static struct message graph, part, attribute, model;

// Of rows x cols values within bound of the mean, or rows where cols is 0.
static void add_tensor(const char *name, uint32_t rows, uint32_t cols, float mean, float bound)
{
    static float values[WIDTH * WIDTH];
    static uint32_t state = 7;
    uint32_t count = cols ? rows * cols : rows;

    for (uint32_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = mean + bound * ((float)(state >> 8) / 8388608.0f - 1);
    }
    part.size = 0;
    put_int(&part, 1, rows);
    if (cols)
        put_int(&part, 1, cols);
    put_int(&part, 2, 1);
    put_text(&part, 8, name);
    put_bytes(&part, 9, values, count * sizeof(float));
    put_message(&graph, 5, &part);
}

static void add_node(const char *op, const char *const *names, size_t inputs, size_t outputs,
                     const char *flag)
{
    part.size = 0;
    for (size_t i = 0; i < inputs + outputs; i++)
        put_text(&part, i < inputs ? 1 : 2, names[i]);
    put_text(&part, 4, op);
    if (flag[0]) {
        attribute.size = 0;
        put_text(&attribute, 1, flag);
        put_int(&attribute, 3, 1);  // the value
        put_int(&attribute, 20, 2); // the type: INT
        put_message(&part, 5, &attribute);
    }
    put_message(&graph, 1, &part);
}

// From the last value to the next: a product with a weight that is there, and its ReLU.
static void add_layer(uint32_t number, const char *weight, bool transposed)
{
    char from[8], to[8], sum[8], bias[8];
    const char *const gemm[] = {from, weight, bias, sum}, *const relu[] = {sum, to};

    snprintf(from, sizeof(from), "h%u", number - 1);
    snprintf(to, sizeof(to), "h%u", number);
    snprintf(sum, sizeof(sum), "s%u", number);
    snprintf(bias, sizeof(bias), "b%u", number);
    add_tensor(bias, WIDTH, 0, 0, 0.1f);
    add_node("Gemm", gemm, 3, 1, transposed ? "transB" : "");
    add_node("Relu", relu, 1, 1, "");
}

static void add_norm(uint32_t number)
{
    static const char *const kinds[] = {"scale", "shift", "mean", "variance"};
    char names[8][16];
    const char *listed[8];

    snprintf(names[0], sizeof(names[0]), "h%u", number - 1);
    snprintf(names[5], sizeof(names[5]), "h%u", number);
    for (int i = 0; i < 4; i++) {
        snprintf(names[1 + i], sizeof(names[0]), "%s%u", kinds[i], number);
        add_tensor(names[1 + i], WIDTH, 0, i % 3 ? 0 : 1, 0.1f);
    }
    for (int i = 6; i < 8; i++)
        snprintf(names[i], sizeof(names[0]), "moved%u-%d", number, i);
    for (int i = 0; i < 8; i++)
        listed[i] = names[i];
    add_node("BatchNormalization", listed, 5, 3, "training_mode");
}

static void add_value(uint32_t field, const char *name, uint32_t words)
{
    struct message *value = &part;
    uint8_t dims[] = {1 << 3 | 2, 7,   2 << 3 | 2, 5, 'b',    'a',           't',
                      'c',        'h', 1 << 3 | 2, 2, 1 << 3, (uint8_t)words};
    uint8_t type[32] = {1 << 3 | 2, sizeof(dims) + 4, 1 << 3, 1, 2 << 3 | 2, sizeof(dims)};

    memcpy(type + 6, dims, sizeof(dims));
    value->size = 0;
    put_text(value, 1, name);
    put_bytes(value, 2, type, 6 + sizeof(dims));
    put_message(&graph, field, value);
}

const uint8_t *deep_model(size_t *size)
{
    static const char *const last[] = {"h7", "out", "b8", "y"};
    static const uint8_t opset[] = {2 << 3, 17};
    float bound = 1 / sqrtf(WIDTH);

    if (!model.size) {
        add_tensor("first", WIDTH, DEEP_INPUTS, 0, 1 / sqrtf(DEEP_INPUTS));
        add_tensor("tied", WIDTH, WIDTH, 0, bound);
        add_tensor("second", WIDTH, WIDTH, 0, bound);
        add_tensor("third", WIDTH, WIDTH, 0, bound);
        add_tensor("out", DEEP_CLASSES, WIDTH, 0, bound);
        add_tensor("b8", DEEP_CLASSES, 0, 0, 0.1f);
        add_layer(1, "first", true);
        add_norm(2);
        add_layer(3, "tied", true);
        add_layer(4, "second", true);
        add_norm(5);
        add_layer(6, "tied", false);
        add_layer(7, "third", true);
        add_node("Gemm", last, 3, 1, "transB");
        put_text(&graph, 2, "deep");
        add_value(11, "h0", DEEP_INPUTS);
        add_value(12, "y", DEEP_CLASSES);
        put_int(&model, 1, 8);
        put_message(&model, 7, &graph);
        put_bytes(&model, 8, opset, sizeof(opset));
    }
    *size = model.size;
    return model.bytes;
}
