// Einsum as products of pairs: the first operand by the second, their result by the third, and so
// on. Each step first sums over the labels that are not read later. The product is one of matrices;
// where nothing is summed, it is one of elements.
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

// The label of a dimension: its letter. Under "..." it is ELLIPSIS + the number of dimensions after
// it.
#define ELLIPSIS 128
#define LABELS (ELLIPSIS + CN_GRAPH_RANK_MAX)

struct term {
    uint32_t value;
    uint32_t rank;
    uint8_t labels[CN_GRAPH_RANK_MAX];
};

struct equation {
    struct term in[CN_IMPORT_INPUTS], out;
    uint64_t sizes[LABELS]; // 0: no operand has it
};

static bool has_label(const struct term *term, uint8_t label)
{
    return memchr(term->labels, label, term->rank) != NULL;
}

static cn_err add_label(const struct cn_import_node *node, uint8_t label, struct term *term)
{
    if (has_label(term, label))
        return cn_import_refuse(node, "'%c' stands twice in one term",
                                label < ELLIPSIS ? label : '.');
    if (term->rank == CN_GRAPH_RANK_MAX)
        return cn_import_refuse(node, "a term has more than %d dimensions", CN_GRAPH_RANK_MAX);
    term->labels[term->rank++] = label;
    return CN_OK;
}

// Reads the labels of a term, in which "..." stands for a given number of dimensions.
static cn_err read_term(const struct cn_import_node *node, struct cn_text text, uint32_t ellipsis,
                        struct term *term)
{
    cn_err err = CN_OK;

    for (size_t i = 0; !err && i < text.size; i++) {
        unsigned char letter = (unsigned char)text.data[i];

        if (letter == '.' && i + 3 <= text.size && !memcmp(text.data + i, "...", 3)) {
            for (uint32_t d = ellipsis; !err && d-- > 0;)
                err = add_label(node, (uint8_t)(ELLIPSIS + d), term);
            i += 2;
        } else if (letter < ELLIPSIS && isalpha(letter)) {
            err = add_label(node, letter, term);
        } else if (letter != ' ') {
            err = cn_import_refuse(node, "the equation has '%c' in place of a letter",
                                   isprint(letter) ? letter : '?');
        }
    }
    return err;
}

// Returns the term at the start of text; text then begins after the separator.
static bool next_term(struct cn_text *text, const char *separator, struct cn_text *term)
{
    size_t length = strlen(separator);

    *term = *text;
    for (size_t i = 0; i + length <= text->size; i++)
        if (!memcmp(text->data + i, separator, length)) {
            term->size = i;
            text->data += i + length;
            text->size -= i + length;
            return true;
        }
    *text = (struct cn_text){0};
    return false;
}

static cn_err read_operand(struct cn_import_node *node, size_t i, struct cn_text text,
                           struct equation *equation, uint32_t *ellipsis)
{
    const struct cn_value *value = cn_import_value(node, i);
    struct term *term = &equation->in[i];
    uint32_t letters = 0, dots;
    cn_err err;

    for (size_t j = 0; j < text.size; j++)
        letters += letters < value->rank && isalpha((unsigned char)text.data[j]);
    dots = value->rank - letters;
    term->value = node->in[i];
    err = read_term(node, text, dots, term);
    if (err)
        return err;
    if (term->rank != value->rank)
        return cn_import_refuse(node, "term %zu of the equation has %u dimensions, its operand %u",
                                i, term->rank, value->rank);
    for (uint32_t d = 0; d < term->rank; d++) {
        uint64_t *size = &equation->sizes[term->labels[d]];

        if (*size && *size != value->dims[d])
            return cn_import_refuse(node,
                                    "dimension %u of operand %zu is %" PRIu64 ", wanted %" PRIu64,
                                    d, i, value->dims[d], *size);
        *size = value->dims[d];
    }
    *ellipsis = dots > *ellipsis ? dots : *ellipsis;
    return CN_OK;
}

// Finds the labels of the result when the equation has no "->": the dimensions of "...", then the
// letters that occur once, in alphabetical order.
static cn_err imply_result(const struct cn_import_node *node, uint32_t ellipsis,
                           struct equation *equation)
{
    cn_err err = read_term(node, (struct cn_text){"...", 3}, ellipsis, &equation->out);

    for (uint8_t label = 'A'; !err && label <= 'z'; label++) {
        size_t times = 0;

        for (size_t i = 0; i < node->in_count; i++)
            times += has_label(&equation->in[i], label);
        if (times == 1)
            err = add_label(node, label, &equation->out);
    }
    return err;
}

static cn_err read_equation(struct cn_import_node *node, struct equation *equation)
{
    const struct cn_onnx_attribute *found = cn_onnx_attribute_find(node->node, "equation");
    struct cn_text inputs, result, term;
    uint32_t ellipsis = 0;
    bool written, more = true;
    cn_err err = CN_OK;

    if (!found)
        return cn_import_refuse(node, "it has no equation");
    result = found->s;
    written = next_term(&result, "->", &inputs);
    for (size_t i = 0; !err && i < node->in_count; i++) {
        if (!more)
            return cn_import_refuse(node, "the equation has fewer terms than operands");
        more = next_term(&inputs, ",", &term);
        err = read_operand(node, i, term, equation, &ellipsis);
    }
    if (!err && more)
        err = cn_import_refuse(node, "the equation has more terms than operands");
    if (!err)
        err = written ? read_term(node, result, ellipsis, &equation->out)
                      : imply_result(node, ellipsis, equation);
    for (uint32_t d = 0; !err && d < equation->out.rank; d++)
        if (!equation->sizes[equation->out.labels[d]])
            err = cn_import_refuse(node, "no operand has dimension %u of the result", d);
    return err;
}

// Gives a term memory in the order of its dims, if it is a transposed view.
static cn_err make_plain(struct cn_import_node *node, uint32_t *value)
{
    struct cn_import_node part = *node;
    cn_err err = CN_OK;

    part.in[0] = *value;
    if (node->graph->values[*value].transposed)
        err = cn_import_materialise(&part, 0);
    *value = part.in[0];
    return err;
}

// Sums over the labels that are neither in other nor needed.
static cn_err sum_rest(struct cn_import_node *node, const struct term *other, const bool *needed,
                       struct term *term)
{
    int64_t axes[CN_GRAPH_RANK_MAX];
    struct term kept = {.rank = 0};
    size_t count = 0;
    cn_err err;

    for (uint32_t d = 0; d < term->rank; d++)
        if (needed[term->labels[d]] || (other && has_label(other, term->labels[d])))
            kept.labels[kept.rank++] = term->labels[d];
        else
            axes[count++] = d;
    if (!count)
        return CN_OK;
    err = make_plain(node, &term->value);
    if (!err)
        err = cn_import_apply(node, "ReduceSum", "axes", axes, count, &term->value, 1, &kept.value);
    *term = kept;
    return err;
}

// Brings the dimensions into the given order; dimensions that the term lacks become 1.
static cn_err arrange(struct cn_import_node *node, const uint8_t *order, uint32_t rank,
                      struct term *term)
{
    struct cn_value value;
    int64_t from[CN_GRAPH_RANK_MAX];
    uint32_t count = 0, axis = 0;
    bool moved = false;
    cn_err err = CN_OK;

    for (uint32_t d = 0; d < rank; d++)
        if (has_label(term, order[d])) {
            from[count] =
                (const uint8_t *)memchr(term->labels, order[d], term->rank) - term->labels;
            moved = moved || from[count] != count;
            count++;
        }
    if (moved)
        err =
            cn_import_apply(node, "Transpose", "perm", from, count, &term->value, 1, &term->value);
    if (!err && count < rank)
        err = make_plain(node, &term->value);
    if (err)
        return err;
    value = node->graph->values[term->value];
    for (uint32_t d = rank, at = count; d-- > 0;) {
        bool has = has_label(term, order[d]);

        at -= has;
        if (has && value.batched && at == value.batch_axis)
            axis = d;
        value.dims[d] = has ? value.dims[at] : 1;
    }
    value.rank = rank;
    value.batch_axis = axis;
    memcpy(term->labels, order, rank);
    term->rank = rank;
    return count < rank ? cn_graph_add_value(node->graph, &value, &term->value) : CN_OK;
}

static cn_err view_as(struct cn_import_node *node, uint32_t rank, const uint64_t *dims,
                      uint32_t *value)
{
    const struct cn_value *now = &node->graph->values[*value];
    struct cn_import_node part = *node;
    cn_err err;

    if (now->rank == rank && !memcmp(now->dims, dims, rank * sizeof(*dims)))
        return CN_OK;
    err = make_plain(node, value);
    part.in[0] = *value;
    if (!err)
        err = cn_import_view(&part, rank, dims);
    *value = part.out;
    return err;
}

// The dimensions of a product of two terms: those that both terms keep, those of a alone, those
// of b alone, and the inner ones, which are summed.
struct product {
    uint8_t both[CN_GRAPH_RANK_MAX], rows[CN_GRAPH_RANK_MAX], cols[CN_GRAPH_RANK_MAX];
    uint8_t inner[CN_GRAPH_RANK_MAX];
    uint32_t both_count, row_count, col_count, inner_count;
};

static bool is_batch(const struct cn_import_node *node, const struct term *term, uint32_t d)
{
    const struct cn_value *value = &node->graph->values[term->value];

    return value->batched && value->batch_axis == d;
}

// Sorts the labels of two terms. In a product of a matrix for each sample the batch is a dimension
// of both, even if only a has samples. In a product by one weight the batch is in the rows.
static struct product sort_labels(const struct cn_import_node *node, const struct term *a,
                                  const struct term *b, const bool *needed)
{
    struct product product = {.both_count = 0};
    bool pairs = false;

    for (uint32_t d = 0; d < a->rank; d++)
        pairs = pairs || (has_label(b, a->labels[d]) && needed[a->labels[d]]);
    for (uint32_t d = 0; d < a->rank; d++) {
        uint8_t label = a->labels[d];

        if (has_label(b, label) && !needed[label])
            product.inner[product.inner_count++] = label;
        else if (has_label(b, label) || (pairs && is_batch(node, a, d)))
            product.both[product.both_count++] = label;
        else
            product.rows[product.row_count++] = label;
    }
    for (uint32_t d = 0; d < b->rank; d++)
        if (!has_label(a, b->labels[d]))
            product.cols[product.col_count++] = b->labels[d];
    return product;
}

// Arranges a term as [both, first, second], and makes one dimension of each of the last two.
static cn_err as_matrices(struct cn_import_node *node, const struct equation *equation,
                          const struct product *product, const uint8_t *first, uint32_t first_count,
                          const uint8_t *second, uint32_t second_count, struct term *term)
{
    uint32_t both = product->both_count, count = both + first_count + second_count;
    uint8_t order[3 * CN_GRAPH_RANK_MAX];
    uint64_t dims[CN_GRAPH_RANK_MAX + 2];
    cn_err err;

    memcpy(order, product->both, both);
    memcpy(order + both, first, first_count);
    memcpy(order + both + first_count, second, second_count);
    if (both + 2 > CN_GRAPH_RANK_MAX || count > CN_GRAPH_RANK_MAX)
        return cn_import_refuse(node, "one of its products has more than %d dimensions",
                                CN_GRAPH_RANK_MAX);
    err = arrange(node, order, count, term);
    if (err)
        return err;
    memcpy(dims, node->graph->values[term->value].dims, both * sizeof(*dims));
    dims[both] = dims[both + 1] = 1;
    for (uint32_t d = both; d < count; d++) // no overflow: the value has as many elements
        dims[d < both + first_count ? both : both + 1] *= equation->sizes[order[d]];
    return view_as(node, both + 2, dims, &term->value);
}

static cn_err multiply(struct cn_import_node *node, const struct equation *equation,
                       const struct product *product, struct term *a, struct term *b)
{
    struct term result = {.rank = 0};
    uint64_t dims[3 * CN_GRAPH_RANK_MAX];
    uint8_t labels[3 * CN_GRAPH_RANK_MAX];
    uint32_t rank = product->both_count + product->row_count + product->col_count;
    cn_err err = as_matrices(node, equation, product, product->rows, product->row_count,
                             product->inner, product->inner_count, a);

    if (!err)
        err = as_matrices(node, equation, product, product->inner, product->inner_count,
                          product->cols, product->col_count, b);
    if (!err && rank > CN_GRAPH_RANK_MAX)
        err = cn_import_refuse(node, "one of its products has more than %d dimensions",
                               CN_GRAPH_RANK_MAX);
    if (!err)
        err = cn_import_apply(node, "MatMul", NULL, NULL, 0, (uint32_t[]){a->value, b->value}, 2,
                              &result.value);
    if (err)
        return err;
    memcpy(labels, product->both, product->both_count);
    memcpy(labels + product->both_count, product->rows, product->row_count);
    memcpy(labels + product->both_count + product->row_count, product->cols, product->col_count);
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = equation->sizes[labels[d]];
    memcpy(result.labels, labels, rank);
    result.rank = rank;
    *a = result;
    return view_as(node, rank, dims, &a->value);
}

// Multiplies element by element, where nothing is summed.
static cn_err pair_up(struct cn_import_node *node, const struct product *product, struct term *a,
                      struct term *b)
{
    uint8_t order[2 * CN_GRAPH_RANK_MAX];
    uint32_t rank = a->rank + product->col_count;
    uint32_t in[2];
    cn_err err;

    if (rank > CN_GRAPH_RANK_MAX)
        return cn_import_refuse(node, "one of its products has more than %d dimensions",
                                CN_GRAPH_RANK_MAX);
    memcpy(order, a->labels, a->rank);
    memcpy(order + a->rank, product->cols, product->col_count);
    err = arrange(node, order, rank, a);
    if (!err)
        err = arrange(node, order, rank, b);
    if (!err)
        err = make_plain(node, &a->value);
    if (!err)
        err = make_plain(node, &b->value);
    in[0] = a->value;
    in[1] = b->value;
    return err ? err : cn_import_apply(node, "Mul", NULL, NULL, 0, in, 2, &a->value);
}

// Replaces a by the product of both, with the labels that are needed.
static cn_err combine(struct cn_import_node *node, const struct equation *equation,
                      const bool *needed, struct term *a, struct term *b)
{
    struct product product;
    cn_err err = sum_rest(node, b, needed, a);

    if (!err)
        err = sum_rest(node, a, needed, b);
    if (err)
        return err;
    if (node->graph->values[b->value].batched && !node->graph->values[a->value].batched) {
        struct term first = *a;

        *a = *b;
        *b = first;
    }
    product = sort_labels(node, a, b, needed);
    return product.inner_count ? multiply(node, equation, &product, a, b)
                               : pair_up(node, &product, a, b);
}

// Marks the labels of the result and of the operands from number i on.
static void mark_needed(const struct equation *equation, size_t i, size_t count, bool *needed)
{
    memset(needed, false, LABELS * sizeof(*needed));
    for (uint32_t d = 0; d < equation->out.rank; d++)
        needed[equation->out.labels[d]] = true;
    for (; i < count; i++)
        for (uint32_t d = 0; d < equation->in[i].rank; d++)
            needed[equation->in[i].labels[d]] = true;
}

cn_err cn_import_einsum(struct cn_import_node *node)
{
    struct equation equation = {.out = {.rank = 0}};
    bool needed[LABELS];
    struct term *all = &equation.in[0];
    cn_err err = read_equation(node, &equation);

    for (size_t i = 1; !err && i < node->in_count; i++) {
        mark_needed(&equation, i + 1, node->in_count, needed);
        err = combine(node, &equation, needed, all, &equation.in[i]);
    }
    mark_needed(&equation, node->in_count, node->in_count, needed);
    if (!err)
        err = sum_rest(node, NULL, needed, all);
    if (!err)
        err = arrange(node, equation.out.labels, equation.out.rank, all);
    node->out = all->value;
    return err;
}
