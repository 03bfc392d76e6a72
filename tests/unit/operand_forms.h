// operand_forms.h - small models whose operands are written in several forms.
//
//   "weight NAME 3,4"           random numbers; no operand, but always an initializer
//   "float NAME 3,4"            random numbers from -0.5 to 0.5 with these dims
//   "positive NAME 3,4"         random numbers from 0.25 to 1.25 with these dims
//   "list NAME 1,2.5 2,1"       these numbers, with these dims; without dims one dimension
//   "scalar NAME 0.5"           one number of rank 0
//   "numbers NAME 0,-1 2,1"     integers, as list
//   "number NAME 2"             one integer of rank 0
//   "truth NAME 0,1,1 3,1"      booleans, as list
//   "flag NAME 1"               one boolean of rank 0
//   "If c -> y Relu h Abs h"    the node of each branch
//
// Other lines are those of net.h. The same name always gets the same random numbers.
#pragma once

#include "tests/unit/net.h"

enum form_source {
    IN_INITIALIZER,
    IN_CONSTANT, // a Constant node
};

enum form_way { // what is done with the operand before the op under test reads it
    DIRECTLY,
    BY_IDENTITY,
    BY_ARITHMETIC, // the operand is negated twice
    BY_VIEW,       // the operand is reshaped, then reshaped back
};

struct form {
    enum form_source source;
    enum form_way way;
    bool frozen; // the initializer is named in train.freeze
};

struct operand {
    char name[16];
    struct message tensor; // the tensor without its name
    bool boolean, floats;
    bool fixed; // always an initializer: a weight
};

static inline float random_of_name(const char *name, size_t place)
{
    uint32_t state = 99 + (uint32_t)place * 7919;

    for (; *name; name++)
        state = state * 31 + (uint32_t)(uint8_t)*name;
    for (int i = 0; i < 4; i++)
        state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 16777216.0f;
}

static inline size_t put_dims(struct message *tensor, const char *text)
{
    int64_t dims[16];
    size_t count = parse_ints(text, dims), total = 1;

    for (size_t i = 0; i < count; i++) {
        put_int(tensor, 1, dims[i]);
        total *= (size_t)dims[i];
    }
    return total;
}

static inline void put_random(struct operand *operand, const char *dims, float least)
{
    float values[256];
    size_t total = put_dims(&operand->tensor, dims);

    assert(total <= 256);
    for (size_t i = 0; i < total; i++)
        values[i] = least + random_of_name(operand->name, i);
    put_int(&operand->tensor, 2, 1);
    put_bytes(&operand->tensor, 9, values, total * sizeof(*values));
}

// Writes numbers as elements of an ONNX type: 1 (float32), 7 (int64) or 9 (bool).
static inline void put_listed(struct operand *operand, int type, const char *text, const char *dims,
                              bool single)
{
    struct message data = {.size = 0};
    char count_text[8];
    size_t count = 0;
    char *end;

    for (;; text = end + 1, count++) {
        double number = strtod(text, &end);
        float as_float = (float)number;
        int64_t as_int = (int64_t)number;
        size_t size = type == 1 ? 4 : type == 7 ? 8 : 1;

        memcpy(data.bytes + data.size, type == 1 ? (void *)&as_float : (void *)&as_int, size);
        data.size += size;
        if (*end != ',')
            break;
    }
    snprintf(count_text, sizeof(count_text), "%zu", count + 1);
    if (!single)
        put_dims(&operand->tensor, dims ? dims : count_text);
    put_int(&operand->tensor, 2, type);
    put_bytes(&operand->tensor, 9, data.bytes, data.size);
}

#define KINDS 9

// Returns whether the line is an operand or a weight.
static inline bool read_operand(const char *text, struct operand *operand)
{
    static const struct {
        const char *kind;
        int type;
        bool single;
    } kinds[] = {{"weight", 1, false}, {"float", 1, false}, {"positive", 1, false},
                 {"list", 1, false},   {"scalar", 1, true}, {"numbers", 7, false},
                 {"number", 7, true},  {"truth", 9, false}, {"flag", 9, true}};
    char line[256], *words;
    const char *kind, *values, *dims;
    size_t i = 0;

    snprintf(line, sizeof(line), "%s", text);
    kind = strtok_r(line, " ", &words);
    while (i < KINDS && strcmp(kind, kinds[i].kind) != 0)
        i++;
    if (i == KINDS)
        return false;
    *operand = (struct operand){
        .boolean = kinds[i].type == 9, .floats = kinds[i].type == 1, .fixed = i == 0};
    snprintf(operand->name, sizeof(operand->name), "%s", strtok_r(NULL, " ", &words));
    values = strtok_r(NULL, " ", &words);
    dims = strtok_r(NULL, " ", &words);
    if (i < 3)
        put_random(operand, values, i == 2 ? 0.25f : -0.5f);
    else
        put_listed(operand, kinds[i].type, values, dims, kinds[i].single);
    return true;
}

static inline void put_words(struct message *graph, const char *format, const char *name)
{
    char line[128];

    snprintf(line, sizeof(line), format, name, name, name, name);
    put_line(graph, line);
}

// Writes the operand in this form. What its readers read has its name, and an initializer behind
// it the name with ".0".
static inline void put_operand(struct message *graph, const struct operand *operand,
                               const struct form *form)
{
    struct message tensor = operand->tensor, node = {.size = 0}, attribute = {.size = 0};
    char source[20];

    snprintf(source, sizeof(source), form->way == DIRECTLY ? "%s" : "%s.0", operand->name);
    if (form->source == IN_INITIALIZER) {
        put_text(&tensor, 8, source);
        put_message(graph, 5, &tensor);
    } else {
        put_text(&attribute, 1, "value");
        put_message(&attribute, 5, &tensor);
        put_int(&attribute, 20, 4);
        put_text(&node, 2, source);
        put_text(&node, 4, "Constant");
        put_message(&node, 5, &attribute);
        put_message(graph, 1, &node);
    }
    if (form->way == BY_IDENTITY)
        put_words(graph, "Identity %s.0 -> %s", operand->name);
    if (form->way == BY_ARITHMETIC) {
        put_words(graph, operand->boolean ? "Not %s.0 -> %s.1" : "Neg %s.0 -> %s.1", operand->name);
        put_words(graph, operand->boolean ? "Not %s.1 -> %s" : "Neg %s.1 -> %s", operand->name);
    }
    if (form->way == BY_VIEW) {
        put_words(graph, "Constant -> %s.axes value_ints=0", operand->name);
        put_words(graph, "Unsqueeze %s.0 %s.axes -> %s.1", operand->name);
        put_words(graph, "Squeeze %s.1 %s.axes -> %s", operand->name);
    }
}

static inline void put_if(struct message *graph, char *words)
{
    struct message node = {.size = 0}, output = {.size = 0};
    char line[64];

    put_text(&node, 1, strtok_r(NULL, " ", &words));
    (void)strtok_r(NULL, " ", &words); // ->
    put_text(&node, 2, strtok_r(NULL, " ", &words));
    put_text(&node, 4, "If");
    put_text(&output, 1, "of-branch");
    for (int i = 0; i < 2; i++) {
        struct message branch = {.size = 0}, attribute = {.size = 0};
        const char *op = strtok_r(NULL, " ", &words), *in = strtok_r(NULL, " ", &words);

        snprintf(line, sizeof(line), "%s %s -> of-branch", op, in);
        put_line(&branch, line);
        put_message(&branch, 12, &output);
        put_text(&attribute, 1, i ? "else_branch" : "then_branch");
        put_message(&attribute, 6, &branch);
        put_int(&attribute, 20, 5);
        put_message(&node, 5, &attribute);
    }
    put_message(graph, 1, &node);
}

// Adds the labels of the samples as a second input of the model.
static inline void put_labels(struct message *graph)
{
    struct message value = {.size = 0}, type = {.size = 0}, tensor = {.size = 0};
    struct message shape = {.size = 0}, dim = {.size = 0};

    put_text(&dim, 2, "N");
    put_message(&shape, 1, &dim);
    put_int(&tensor, 1, 7);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&value, 1, "labels");
    put_message(&value, 2, &type);
    put_message(graph, 11, &value);
}

// A model of these lines. The operand with this number has the form, the others have the plain one.
// With ALL_OPERANDS all have it.
#define ALL_OPERANDS SIZE_MAX

static inline struct message form_message(const struct net *net, bool labels, size_t which,
                                          const struct form *form, const struct form *plain)
{
    static const struct form of_weight = {IN_INITIALIZER, DIRECTLY, false};
    struct message graph = {.size = 0};
    size_t operands = 0;

    for (size_t i = 0; i < NET_LINES && net->lines[i]; i++) {
        struct operand operand;
        char line[128], *words;

        snprintf(line, sizeof(line), "%s", net->lines[i]);
        if (read_operand(line, &operand)) {
            bool chosen = !operand.fixed && (which == ALL_OPERANDS || which == operands);

            put_operand(&graph, &operand, operand.fixed ? &of_weight : chosen ? form : plain);
            operands += !operand.fixed;
        } else if (!strcmp(strtok_r(line, " ", &words), "If")) {
            put_if(&graph, words);
        } else {
            put_line(&graph, net->lines[i]);
        }
    }
    put_text(&graph, 2, "net");
    put_value(&graph, 11, "x", net->input);
    if (labels)
        put_labels(&graph);
    put_value(&graph, 12, "y", NULL);
    return model_message(&graph);
}
