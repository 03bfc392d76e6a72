// Attention. q, k and v may be parts of one value. Then one gradient holds all of these parts, and
// the call writes each part of it.
#include "runtime/engine/graph/autodiff_private.h"

#define PARTS 3 // q, k, v

// The elements of an operand that the heads read.
struct part {
    uint32_t root;
    const struct cn_heads *heads;
    size_t count, rows, width;
};

static void list_parts(const struct cn_autodiff *diff, const struct cn_node *forward,
                       struct part *parts)
{
    const struct cn_attention *op = &forward->call.attention;

    parts[0] = (struct part){.heads = &op->q, .rows = op->q_rows, .width = op->width};
    parts[1] = (struct part){.heads = &op->k, .rows = op->k_rows, .width = op->width};
    parts[2] = (struct part){.heads = &op->v, .rows = op->k_rows, .width = op->v_width};
    for (int i = 0; i < PARTS; i++) {
        parts[i].root = cn_graph_root(diff->graph, forward->in[i]);
        parts[i].count = op->heads;
    }
}

static size_t words_of(const struct part *part)
{
    return part->count * part->rows * part->width;
}

// Returns whether no element belongs to both parts: one lies after the other, or they lie side by
// side in each row.
static bool are_apart(const struct part *a, const struct part *b)
{
    const struct part *first = a->heads->offset <= b->heads->offset ? a : b;
    const struct part *second = first == a ? b : a;
    size_t distance = second->heads->offset - first->heads->offset;
    size_t across = (first->count - 1) * first->heads->head + first->width;
    size_t row = first->heads->row;

    if (distance >= across + (first->rows - 1) * row)
        return true;
    return row == second->heads->row && distance >= across &&
           distance + (second->count - 1) * second->heads->head + second->width <= row;
}

// Returns the index of the part whose gradient also holds part i; i itself when it needs a gradient
// of its own.
static int holder_of(const struct part *parts, const int *holders, int i)
{
    for (int j = 0; j < i; j++) {
        bool fits = parts[j].root == parts[i].root;

        for (int k = 0; fits && k < i; k++)
            fits = holders[k] != holders[j] || are_apart(&parts[k], &parts[i]);
        if (fits)
            return holders[j];
    }
    return i;
}

cn_err cn_autodiff_attention(struct cn_autodiff *diff, const struct cn_node *forward, uint32_t dy)
{
    struct cn_node node = cn_graph_node(CN_OP_ATTENTION_GRAD);
    struct part parts[PARTS];
    size_t covered[PARTS] = {0};
    int holders[PARTS];
    cn_err err = CN_OK;

    node.call.attention = forward->call.attention;
    node.in[0] = dy;
    for (int i = 0; i < PARTS; i++)
        node.in[1 + i] = forward->in[i];
    node.in[4] = forward->out[0];
    node.in[5] = forward->out[1];
    node.in[6] = forward->in[3];
    list_parts(diff, forward, parts);
    for (int i = 0; !err && i < PARTS; i++) {
        holders[i] = holder_of(parts, holders, i);
        if (holders[i] == i)
            err = cn_autodiff_activation(diff, parts[i].root, &node.out[i]);
        node.out[i] = node.out[holders[i]];
        covered[holders[i]] += words_of(&parts[i]);
    }
    for (int i = 0; !err && i < PARTS; i++)
        if (holders[i] == i && covered[i] < diff->graph->values[parts[i].root].words)
            err = cn_autodiff_clear(diff, node.out[i], CN_WRITE_SET);
    if (!err)
        err = cn_graph_add_node(diff->graph, &node);
    for (int i = 0; !err && i < PARTS; i++)
        if (holders[i] == i && cn_autodiff_needs(diff, parts[i].root))
            err = cn_autodiff_share(diff, parts[i].root, node.out[i]);
    return err;
}
