#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/words.h"
#include "runtime/engine/graph/cut_private.h"

static bool is_activation(const struct cn_graph *graph, uint32_t value)
{
    return value != CN_GRAPH_NONE &&
           graph->values[cn_graph_root(graph, value)].kind == CN_VALUE_ACTIVATION;
}

// Notes that a node uses a value.
static void use(const struct cn_graph *graph, size_t index, uint32_t value, bool writes,
                struct cn_cut_span *spans)
{
    uint32_t origin = graph->nodes[index].origin;
    struct cn_cut_span *span;

    if (!is_activation(graph, value))
        return;
    span = &spans[cn_graph_root(graph, value)];
    if (!span->used)
        *span = (struct cn_cut_span){.used = true,
                                     .gradient = index >= graph->loss,
                                     .first = origin,
                                     .last = origin,
                                     .read_back = CN_GRAPH_NONE};
    span->first = origin < span->first ? origin : span->first;
    span->last = origin > span->last ? origin : span->last;
    if (writes && !span->gradient)
        span->written = (uint32_t)index;
    if (index > graph->loss && !span->gradient && origin < span->read_back)
        span->read_back = origin;
}

void cn_cut_spans(const struct cn_graph *graph, struct cn_cut_span *spans)
{
    memset(spans, 0, graph->value_count * sizeof(*spans));
    for (size_t i = 0; i < graph->node_count; i++) {
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            use(graph, i, graph->nodes[i].in[j], false, spans);
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            use(graph, i, graph->nodes[i].out[j], true, spans);
        if (graph->nodes[i].call.op == CN_OP_RECURRENT)
            spans[cn_graph_root(graph, graph->nodes[i].in[0])].gates = (uint32_t)i;
    }
}

uint32_t cn_cut_part_of(const struct cn_cut *cut, size_t node)
{
    uint32_t part = 0;

    while (part + 1 < cut->parts && cut->places[part] <= node)
        part++;
    return part;
}

// Why a value must not cross a cut.
enum obstacle {
    OBSTACLE_NONE,
    OBSTACLE_RECURRENT,  // a recurrent layer reads it as its gates, and stays in one part with it
    OBSTACLE_SHARED,     // all samples share it, and its gradient is a sum over the samples
    OBSTACLE_INCOMPLETE, // the backward pass before the cut reads what is written behind it
    OBSTACLE_COUNT
};

// The places of cuts that an obstacle forbids: after more than `from` nodes and at most `to`.
struct range {
    size_t from, to;
};

// Returns the places where this obstacle forbids a cut through a value; from >= to: none.
static struct range forbidden_by(enum obstacle why, const struct cn_graph *graph,
                                 const struct cn_cut_span *spans, size_t root)
{
    const struct cn_cut_span *span = &spans[root];

    if (why == OBSTACLE_RECURRENT && span->gates)
        return (struct range){span->first, span->gates};
    if (why == OBSTACLE_SHARED && cn_graph_is_shared(&graph->values[root]))
        return (struct range){span->first, span->last};
    if (why == OBSTACLE_INCOMPLETE && !span->gradient && span->read_back != CN_GRAPH_NONE)
        return (struct range){span->read_back, span->written};
    return (struct range){0, 0};
}

static enum obstacle obstacle_of(const struct cn_graph *graph, const struct cn_cut_span *spans,
                                 size_t root, size_t nodes)
{
    for (enum obstacle why = OBSTACLE_RECURRENT; why < OBSTACLE_COUNT; why++) {
        struct range range = forbidden_by(why, graph, spans, root);

        if (range.from < nodes && nodes <= range.to)
            return why;
    }
    return OBSTACLE_NONE;
}

// Returns the first value that must not cross a cut, or CN_GRAPH_NONE.
static uint32_t find_obstacle(const struct cn_graph *graph, const struct cn_cut_span *spans,
                              size_t nodes, enum obstacle *why)
{
    for (size_t root = 0; root < graph->value_count; root++) {
        *why = obstacle_of(graph, spans, root, nodes);
        if (*why)
            return (uint32_t)root;
    }
    return CN_GRAPH_NONE;
}

// Copies the name of the first value with this root that has one, for a message.
static void copy_name(const struct cn_graph *graph, uint32_t root, char *name, size_t size)
{
    for (size_t i = 0; i < graph->value_count; i++)
        if (graph->values[i].root == root && graph->values[i].name) {
            snprintf(name, size, "'%.*s'", (int)graph->values[i].name_size, graph->values[i].name);
            return;
        }
    snprintf(name, size, "value %u", root);
}

// --- the list of places ---

// Adds to every place that the span crosses.
static void count_span(const struct cn_cut_span *span, size_t words, struct cn_cut_place *at)
{
    // Numbers are differences from the place before; unsigned ones wrap and come back.
    at[span->first + 1].values += !span->gradient;
    at[span->last + 1].values -= !span->gradient;
    at[span->first + 1].words += span->gradient ? 0 : words;
    at[span->last + 1].words -= span->gradient ? 0 : words;
    at[span->first + 1].gradient_words += span->gradient ? words : 0;
    at[span->last + 1].gradient_words -= span->gradient ? words : 0;
}

// Adds to illegal the places that must not cut a value, as differences.
static void forbid_span(const struct cn_graph *graph, const struct cn_cut_span *spans, size_t root,
                        size_t *illegal)
{
    for (enum obstacle why = OBSTACLE_RECURRENT; why < OBSTACLE_COUNT; why++) {
        struct range range = forbidden_by(why, graph, spans, root);

        if (range.from >= range.to)
            continue;
        illegal[range.from + 1]++;
        illegal[range.to + 1]--;
    }
}

static void name_places(const struct cn_graph *graph, const struct cn_cut_span *spans,
                        struct cn_cut_place *at)
{
    for (size_t i = 0; i < graph->value_count; i++) {
        const struct cn_value *value = &graph->values[i];
        const struct cn_cut_span *span = &spans[value->root];
        struct cn_cut_place *place = &at[span->written + 1];

        if (!value->name || !span->used || span->gradient || place->name)
            continue;
        place->name = value->name;
        place->name_size = value->name_size;
    }
}

static size_t keep_legal(const struct cn_graph *graph, const size_t *illegal,
                         struct cn_cut_place *at)
{
    struct cn_cut_place here = {0};
    size_t kept = 0, forbidden = 0;

    for (size_t i = 0; i <= graph->loss; i++) {
        here.nodes = i;
        here.values += at[i].values;
        here.words += at[i].words;
        here.gradient_words += at[i].gradient_words;
        here.name = at[i].name;
        here.name_size = at[i].name_size;
        forbidden += illegal[i];
        if (i > 0 && !forbidden)
            at[kept++] = here;
    }
    return kept;
}

cn_err cn_cut_places(const struct cn_graph *graph, struct cn_cut_place **places, size_t *count)
{
    struct cn_cut_span *spans = calloc(graph->value_count + 1, sizeof(*spans));
    struct cn_cut_place *at = calloc(graph->loss + 3, sizeof(*at));
    size_t *illegal = calloc(graph->loss + 3, sizeof(*illegal));
    cn_err err = CN_ENOMEM;

    *places = NULL;
    if (spans && at && illegal) {
        cn_cut_spans(graph, spans);
        for (size_t i = 0; i < graph->value_count; i++)
            if (spans[i].used) {
                count_span(&spans[i], graph->values[i].words, at);
                forbid_span(graph, spans, i, illegal);
            }
        name_places(graph, spans, at);
        *count = keep_legal(graph, illegal, at);
        *places = at;
        at = NULL;
        err = CN_OK;
    }
    free(spans);
    free(at);
    free(illegal);
    return err;
}

// --- checks ---

// People count parts from 1.
static void refuse(const struct cn_graph *graph, size_t nodes, uint32_t part, enum obstacle why,
                   uint32_t root, struct cn_diag *diag)
{
    static const char *const texts[] = {
        [OBSTACLE_RECURRENT] = "it lies inside of a recurrent layer",
        [OBSTACLE_SHARED] = "all samples share it, so it cannot be sent for each",
        [OBSTACLE_INCOMPLETE] = "part of it is made behind the cut and needed before it",
    };
    char name[128];

    copy_name(graph, root, name, sizeof(name));
    cn_diag_add(diag, "the cut behind part %u, after %zu nodes, goes through %s: %s", part + 1,
                nodes, name, texts[why]);
}

static cn_err check_place(const struct cn_graph *graph, const struct cn_cut_span *spans,
                          const struct cn_cut *cut, uint32_t part, struct cn_diag *diag)
{
    size_t before = part ? cut->places[part - 1] : 0, nodes = cut->places[part];
    enum obstacle why;
    uint32_t root;

    if (nodes > graph->loss) {
        cn_diag_add(diag, "part %u has no nodes: the cut before it is after %zu of %zu nodes",
                    part + 2, nodes, graph->loss + 1);
        return CN_EINVAL;
    }
    if (nodes <= before) {
        cn_diag_add(diag,
                    "part %u has no nodes: it would end after %zu nodes, and begins after %zu",
                    part + 1, nodes, before);
        return CN_EINVAL;
    }
    root = find_obstacle(graph, spans, nodes, &why);
    if (root == CN_GRAPH_NONE)
        return CN_OK;
    refuse(graph, nodes, part, why, root, diag);
    return CN_EINVAL;
}

cn_err cn_cut_check(const struct cn_graph *graph, const struct cn_cut *cut, struct cn_diag *diag)
{
    struct cn_cut_span *spans;
    cn_err err = CN_OK;

    if (cut->parts < 1 || cut->parts > CN_CUT_PARTS_MAX) {
        cn_diag_add(diag, "a cut into %u parts; wanted 1 to %d", cut->parts, CN_CUT_PARTS_MAX);
        return CN_EINVAL;
    }
    spans = calloc(graph->value_count + 1, sizeof(*spans));
    if (!spans)
        return CN_ENOMEM;
    cn_cut_spans(graph, spans);
    for (uint32_t p = 0; p + 1 < cut->parts; p++)
        if (check_place(graph, spans, cut, p, diag))
            err = CN_EINVAL;
    free(spans);
    return err;
}

// Finds the value of this name whose memory a forward node writes.
static const struct cn_cut_span *find_made(const struct cn_graph *graph,
                                           const struct cn_cut_span *spans, const char *name)
{
    for (size_t i = 0; i < graph->value_count; i++) {
        const struct cn_value *value = &graph->values[i];
        const struct cn_cut_span *span = &spans[value->root];

        if (value->name && strlen(name) == value->name_size &&
            !memcmp(value->name, name, value->name_size) && span->used && !span->gradient)
            return span;
    }
    return NULL;
}

// Returns whether a node reads a tensor whose name fits.
static bool reads(const struct cn_graph *graph, const struct cn_layout *layout,
                  const struct cn_node *node, const char *pattern)
{
    for (int j = 0; j < CN_CALL_INPUTS; j++) {
        const struct cn_value *value;

        if (node->in[j] == CN_GRAPH_NONE)
            continue;
        value = &graph->values[cn_graph_root(graph, node->in[j])];
        if (value->kind == CN_VALUE_PARAM &&
            cn_words_match(pattern, layout->tensors[cn_cut_tensor_at(layout, value->offset)].name))
            return true;
    }
    return false;
}

// Finds the place that a name means. Returns false if it means none.
static bool find_place(const struct cn_graph *graph, const struct cn_layout *layout,
                       const struct cn_cut_span *spans, const char *name, size_t *nodes)
{
    const struct cn_cut_span *span;

    for (*nodes = 0; *nodes <= graph->loss; (*nodes)++)
        if (reads(graph, layout, &graph->nodes[*nodes], name))
            return true;
    span = find_made(graph, spans, name);
    *nodes = span ? span->written + 1 : 0;
    return span != NULL;
}

static cn_err read_names(const struct cn_graph *graph, const struct cn_layout *layout,
                         const struct cn_cut_span *spans, const char *names, struct cn_diag *diag,
                         struct cn_cut *cut)
{
    char name[CN_WORDS_SIZE], before[CN_WORDS_SIZE] = "";

    while (cn_words_next(&names, name, sizeof(name))) {
        size_t nodes;

        if (!find_place(graph, layout, spans, name, &nodes)) {
            cn_diag_add(diag,
                        "the cut '%s': the model has neither a tensor of this name nor a value "
                        "that can be sent; wanted a name such as %s",
                        name,
                        layout->tensor_count ? layout->tensors[layout->tensor_count / 2].name
                                             : "that of a tensor");
            return CN_EINVAL;
        }
        if (nodes == 0) {
            cn_diag_add(diag,
                        "the cut '%s': the first node of the model reads such a tensor, so part 1 "
                        "would be empty; wanted a tensor that is read later",
                        name);
            return CN_EINVAL;
        }
        if (cut->parts > 1 && nodes <= cut->places[cut->parts - 2]) {
            cn_diag_add(
                diag, "the cut '%s' %s '%s'; wanted the order of the model, each once", name,
                nodes == cut->places[cut->parts - 2] ? "is at the same place as" : "comes before",
                before);
            return CN_EINVAL;
        }
        if (cut->parts == CN_CUT_PARTS_MAX) {
            cn_diag_add(diag, "the cut '%s' would make more than %d parts", name, CN_CUT_PARTS_MAX);
            return CN_EINVAL;
        }
        cut->places[cut->parts++ - 1] = nodes;
        memcpy(before, name, sizeof(before));
    }
    return CN_OK;
}

cn_err cn_cut_read(const struct cn_graph *graph, const struct cn_layout *layout, const char *names,
                   struct cn_diag *diag, struct cn_cut *cut)
{
    struct cn_cut_span *spans = calloc(graph->value_count + 1, sizeof(*spans));
    cn_err err;

    *cut = (struct cn_cut){.parts = 1};
    if (!spans)
        return CN_ENOMEM;
    cn_cut_spans(graph, spans);
    err = read_names(graph, layout, spans, names, diag, cut);
    free(spans);
    return err ? err : cn_cut_check(graph, cut, diag);
}
