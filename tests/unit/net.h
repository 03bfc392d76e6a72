// net.h - small models from lines of text, for tests of the engine.
//
//   "weight NAME 3,2,3,3"           float32 initializer with random values
//   "numbers NAME 0,-1"             int64 initializer
//   "Conv x w b -> y pads=1,1,1,1"  node; "_" is an omitted input or output
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/onnx_message.h"

#define NET_LINES 32

struct net {
    const char *input; // dims of a sample, "1,8,8"; the batch is dynamic
    const char *lines[NET_LINES];
};

static inline float net_random(void)
{
    static uint32_t state = 99;

    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1;
}

static inline size_t parse_ints(const char *text, int64_t *ints)
{
    size_t count = 0;
    char *end;

    for (;; text = end + 1) {
        ints[count++] = strtoll(text, &end, 10);
        if (*end != ',')
            return count;
    }
}

static inline struct message attribute_message(const char *name, const char *value)
{
    static const char *const lists[] = {"pads",         "strides", "dilations", "axes",
                                        "kernel_shape", "perm",    "value_ints"};
    struct message attribute = {.size = 0};
    int64_t ints[16];
    size_t count = parse_ints(value, ints);
    int type = 2;

    put_text(&attribute, 1, name);
    if (strchr(value, '.'))
        type = 1;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (!strcmp(name, lists[i]))
            type = 7;
    if (!strcmp(name, "value_floats"))
        type = 6;
    if (strchr("abcdefghijklmnopqrstuvwxyzCDSNV", value[0]) && value[0])
        type = 3;
    if (!strcmp(name, "value_float")) // "0" and "nan", too
        type = 1;
    if (type == 1)
        put_float(&attribute, 2, strtof(value, NULL));
    else if (type == 2)
        put_int(&attribute, 3, ints[0]);
    else if (type == 3)
        put_text(&attribute, 4, value);
    for (size_t i = 0; type == 7 && i < count; i++)
        put_int(&attribute, 8, ints[i]);
    for (size_t i = 0; type == 6 && i < count; i++) // whole numbers
        put_float(&attribute, 7, (float)ints[i]);
    put_int(&attribute, 20, type);
    return attribute;
}

static inline void put_initializer(struct message *graph, const char *kind, const char *name,
                                   const char *text)
{
    struct message tensor = {.size = 0};
    float values[1024];
    int64_t ints[16];
    size_t total = 1, count = parse_ints(text, ints);

    if (!strcmp(kind, "numbers")) {
        put_int(&tensor, 1, (int64_t)count);
        put_int(&tensor, 2, 7);
        put_text(&tensor, 8, name);
        put_bytes(&tensor, 9, ints, count * sizeof(*ints));
        put_message(graph, 5, &tensor);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        put_int(&tensor, 1, ints[i]);
        total *= (size_t)ints[i];
    }
    assert(total <= 1024);
    for (size_t i = 0; i < total; i++)
        values[i] = 0.5f * net_random();
    put_int(&tensor, 2, 1);
    put_text(&tensor, 8, name);
    put_bytes(&tensor, 9, values, total * sizeof(*values));
    put_message(graph, 5, &tensor);
}

static inline void put_node(struct message *graph, const char *op, char **words)
{
    struct message node = {.size = 0};
    char name[64];
    char *word;

    while ((word = strtok_r(NULL, " ", words)) && strcmp(word, "->") != 0)
        put_text(&node, 1, strcmp(word, "_") ? word : "");
    word = strtok_r(NULL, " ", words);
    snprintf(name, sizeof(name), "make-%s", word);
    for (; word && !strchr(word, '='); word = strtok_r(NULL, " ", words))
        put_text(&node, 2, strcmp(word, "_") ? word : "");
    put_text(&node, 3, name);
    put_text(&node, 4, op);
    for (; word; word = strtok_r(NULL, " ", words)) {
        struct message attribute;
        char *value = strchr(word, '=');

        *value++ = '\0';
        attribute = attribute_message(word, value);
        put_message(&node, 5, &attribute);
    }
    put_message(graph, 1, &node);
}

static inline void put_line(struct message *graph, const char *text)
{
    char line[256];
    char *words;
    char *first;

    snprintf(line, sizeof(line), "%s", text);
    first = strtok_r(line, " ", &words);
    if (!strcmp(first, "weight") || !strcmp(first, "numbers")) {
        char *name = strtok_r(NULL, " ", &words);

        put_initializer(graph, first, name, strtok_r(NULL, " ", &words));
    } else {
        put_node(graph, first, &words);
    }
}

// A float32 value "x" or "y"; its first dimension is dynamic, as those that are 0.
static inline void put_value(struct message *graph, uint32_t field, const char *name,
                             const char *dims)
{
    struct message value = {.size = 0}, type = {.size = 0}, tensor = {.size = 0};
    struct message shape = {.size = 0}, dim = {.size = 0};
    int64_t ints[16];
    size_t count = dims ? parse_ints(dims, ints) : 0;

    put_text(&dim, 2, "N");
    put_message(&shape, 1, &dim);
    for (size_t i = 0; i < count; i++) {
        dim.size = 0;
        if (ints[i])
            put_int(&dim, 1, ints[i]);
        else
            put_text(&dim, 2, "M");
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &type);
    put_message(graph, field, &value);
}

static inline struct message net_message(const struct net *net)
{
    struct message graph = {.size = 0};

    for (size_t i = 0; i < NET_LINES && net->lines[i]; i++)
        put_line(&graph, net->lines[i]);
    put_text(&graph, 2, "net");
    put_value(&graph, 11, "x", net->input);
    put_value(&graph, 12, "y", NULL);
    return model_message(&graph);
}
