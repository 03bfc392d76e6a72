// The gradient of attention on tensor cores, as kernels_attention_grad.cu, for heads of at most 64
// words a row. A block owns 128 rows of dq, another 128 rows of dk and dv. Both go through tiles of
// the other side, in steps of 16 rows: a step's scores and their gradients are factors at once.
#include "ports/cuda/kernels/kernel_short.h"

// What the gradient needs of each q row of two tiles.
struct q_rows {
    float logarithm[2 * SHORT_TILE], d[2 * SHORT_TILE]; // see struct q_row
};

// The shared memory of attention_grad_key.
struct key_tiles {
    struct short_tiles tiles;
    struct q_rows rows;
};

// The products of a step: scores, later shares; dy v', later the gradients of the scores.
struct slopes {
    float share[2][4], slope[2][4];
};

// A block's own rows as left factors.
struct own {
    struct lefts factor, value;
};

DEVICE struct side q_side(const struct cuda_args *a, const struct head *head)
{
    const struct cn_attention *op = &a->call.attention;
    struct side side;

    side.factor = rows_of(a, 1, head, &op->q, op->q_rows, op->width);
    side.value = rows_of(a, 0, head, &op->y, op->q_rows, op->v_width);
    return side;
}

DEVICE struct side k_side(const struct cuda_args *a, const struct head *head)
{
    const struct cn_attention *op = &a->call.attention;
    struct side side;

    side.factor = rows_of(a, 2, head, &op->k, op->k_rows, op->width);
    side.value = rows_of(a, 3, head, &op->v, op->k_rows, op->v_width);
    return side;
}

// Loads a block's own rows, and then brings the first tile of the other side.
DEVICE void begin_tiles(const struct short_place *place, struct short_tiles *t, struct own *own,
                        const struct side *mine, uint32_t mine_first, const struct side *other,
                        uint32_t other_first, bool half)
{
    uint32_t at = other_first % (2 * SHORT_TILE);

    bring_short(place, t->factor, &mine->factor, mine_first, SHORT_SIDE, half);
    bring_short(place, t->value, &mine->value, mine_first, SHORT_SIDE, half);
    block_sync();
    own->factor = load_lefts(place, t->factor);
    own->value = load_lefts(place, t->value);
    block_sync();
    bring_short(place, t->factor + at * SHORT_PITCH, &other->factor, other_first, SHORT_TILE, half);
    bring_short(place, t->value + at * SHORT_PITCH, &other->value, other_first, SHORT_TILE, half);
}

// Fetches, and keeps, both matrices of a step. at: its first row in shared memory.
DEVICE struct fetched fetch_both(const struct short_place *place, const struct side *side,
                                 uint32_t row)
{
    struct fetched fetched;

    fetched.factor = fetch_step(place, &side->factor, row);
    fetched.value = fetch_step(place, &side->value, row);
    return fetched;
}

DEVICE void keep_both(const struct short_place *place, struct short_tiles *t, uint32_t at,
                      const struct fetched *fetched, bool half)
{
    keep_step(place, t->factor, at, &fetched->factor, half);
    keep_step(place, t->value, at, &fetched->value, half);
}

// Multiplies the own rows by those of a step.
DEVICE void multiply_step(const struct short_place *place, const struct short_tiles *t,
                          struct slopes *s, const struct own *own, uint32_t at, bool half)
{
    dot_step(place, s->share, &own->factor, &t->factor[at * SHORT_PITCH], half);
    dot_step(place, s->slope, &own->value, &t->value[at * SHORT_PITCH], half);
}

// Finds these numbers for a thread's two rows. Also writes each d to the workspace, for
// attention_grad_key.
DEVICE void find_short_rows(const struct cuda_args *a, const struct head *head,
                            const struct short_place *place, struct q_row found[2])
{
    const struct cn_attention *op = &a->call.attention;
    struct rows dy = rows_of(a, 0, head, &op->y, op->q_rows, op->v_width);
    struct rows y = rows_of(a, 4, head, &op->y, op->q_rows, op->v_width);
    size_t numbers = ((size_t)head->n * op->heads + head->number) * op->q_rows;

    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = place->first + place_row(place, i);
        bool inside = row < op->q_rows;
        float d = 0;

        for (uint32_t c = 4 * place->t; c < dy.width; c += 16) {
            struct four of_dy = four_of(&dy, row, c), of_y = four_of(&y, row, c);

            UNROLL
            for (uint32_t j = 0; j < 4; j++)
                d += of_dy.at[j] * of_y.at[j];
        }
        found[i].d = quad_sum(d);
        found[i].logarithm =
            inside ? a->in[5][head->n * a->call.in[5].stride + head->number * op->q_rows + row] : 0;
        found[i].logarithm *= LOG2_E;
        if (inside && place->t == 0)
            a->workspace[numbers + row] = found[i].d;
    }
}

// Adds to dq what a step of k rows, from row k on, gives. at: their first row in shared memory.
DEVICE void query_step(const struct cuda_args *a, const struct short_place *place,
                       const struct short_tiles *t, struct short_sums *result,
                       const struct own *own, const struct q_row of_row[2], uint32_t k, uint32_t at,
                       bool half)
{
    struct slopes s;

    multiply_step(place, t, &s, own, at, half);
    scale_scores(&a->call.attention, a->in[6], place, s.share, k, true);
    UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        const struct q_row *row = &of_row[i % 4 / 2];
        float share = power_of_two(s.share[i / 4][i % 4] - row->logarithm);

        s.slope[i / 4][i % 4] = score_grad(share, s.slope[i / 4][i % 4], row->d);
    }
    add_step(place, result, s.slope, &t->factor[at * SHORT_PITCH], half);
}

DEVICE void write_short_grad(const struct cuda_args *a, int out, const struct cn_heads *heads,
                             const struct head *head, const struct short_place *place,
                             const struct short_sums *result, float factor, const struct rows *like)
{
    float *base = head_base(a->out[out], a->call.out[out].stride, heads, head);
    bool pairs = in_pairs(base, heads, like->width);

    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = place->first + place_row(place, i);

        if (row < like->count)
            write_short(place, base + row * heads->row, result, i, factor, like->width, pairs);
    }
}

DEVICE void query_head(const struct cuda_args *a, struct short_tiles *t, const struct head *head,
                       bool half)
{
    const struct cn_attention *op = &a->call.attention;
    struct side mine = q_side(a, head), other = k_side(a, head);
    struct short_sums result = {{{0}}};
    struct short_place place = short_place_of(head);
    uint32_t end = k_end(op, head, SHORT_SIDE);
    struct q_row of_row[2];
    struct own own;

    find_short_rows(a, head, &place, of_row);
    begin_tiles(&place, t, &own, &mine, head->first, &other, 0, half);
    block_sync();
    for (uint32_t first = 0; first < end; first += SHORT_STEP) {
        uint32_t at = first % (2 * SHORT_TILE);
        bool more = first / SHORT_TILE * SHORT_TILE + SHORT_TILE < end;
        struct fetched fetched;

        if (more)
            fetched = fetch_both(&place, &other, first + SHORT_TILE);
        if (counts(op, place.first, first))
            query_step(a, &place, t, &result, &own, of_row, first, at, half);
        if (more)
            keep_both(&place, t, (at + SHORT_TILE) % (2 * SHORT_TILE), &fetched, half);
        if ((first + SHORT_STEP) % SHORT_TILE == 0)
            block_sync();
    }
    write_short_grad(a, 0, &op->q, head, &place, &result, op->scale, &mine.factor);
    block_sync(); // the last tile may still be read
}

DEVICE void grad_query_short(const struct cuda_args *a, struct short_tiles *t, bool half)
{
    const struct cn_attention *op = &a->call.attention;
    uint32_t rows = (uint32_t)op->q_rows;
    uint32_t blocks = head_blocks(rows, SHORT_SIDE) * (uint32_t)op->heads * a->samples;

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        struct head head = short_head(a, block, rows, op->causal);

        query_head(a, t, &head, half);
    }
}

// dq = scale * sum over k rows of the gradient of the score * k.
KERNEL_OF_TWO(attention_grad_query_bfloat16)
{
    SHARED struct short_tiles tiles;

    grad_query_short(&a, &tiles, false);
}

KERNEL_OF_TWO(attention_grad_query_float16)
{
    SHARED struct short_tiles tiles;

    grad_query_short(&a, &tiles, true);
}

// Brings to shared memory what the gradient needs of the q rows of the tile that begins at `first`.
DEVICE void bring_q_rows(const struct cuda_args *a, struct q_rows *rows, const struct head *head,
                         uint32_t first)
{
    const struct cn_attention *op = &a->call.attention;
    uint32_t at = first % (2 * SHORT_TILE) + thread_index(), row = first + thread_index();
    size_t numbers = (size_t)head->number * op->q_rows;
    bool inside = row < op->q_rows;

    if (thread_index() >= SHORT_TILE)
        return;
    rows->logarithm[at] =
        inside ? LOG2_E * a->in[5][head->n * a->call.in[5].stride + numbers + row] : 0;
    rows->d[at] = inside ? a->workspace[head->n * op->heads * op->q_rows + numbers + row] : 0;
}

// Adds to dv what a step of q rows, from row q on, gives. at: their first row in shared memory.
DEVICE void value_step(const struct cuda_args *a, const struct short_place *place,
                       const struct key_tiles *t, struct slopes *s, struct short_sums *of_v,
                       const struct own *own, uint32_t q, uint32_t at, bool half)
{
    dot_step(place, s->share, &own->factor, &t->tiles.factor[at * SHORT_PITCH], half);
    scale_scores(&a->call.attention, a->in[6], place, s->share, q, false);
    UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        float logarithm = t->rows.logarithm[at + place_col(place, i / 4, i)];

        s->share[i / 4][i % 4] = power_of_two(s->share[i / 4][i % 4] - logarithm);
    }
    add_step(place, of_v, s->share, &t->tiles.value[at * SHORT_PITCH], half);
}

// Adds to dk what the step gives, from the shares that value_step left.
DEVICE void key_step(const struct short_place *place, const struct key_tiles *t, struct slopes *s,
                     struct short_sums *of_k, const struct own *own, uint32_t at, bool half)
{
    dot_step(place, s->slope, &own->value, &t->tiles.value[at * SHORT_PITCH], half);
    UNROLL
    for (uint32_t i = 0; i < 8; i++)
        s->slope[i / 4][i % 4] = score_grad(s->share[i / 4][i % 4], s->slope[i / 4][i % 4],
                                            t->rows.d[at + place_col(place, i / 4, i)]);
    add_step(place, of_k, s->slope, &t->tiles.factor[at * SHORT_PITCH], half);
}

DEVICE void key_head(const struct cuda_args *a, struct key_tiles *t, const struct head *head,
                     bool half)
{
    const struct cn_attention *op = &a->call.attention;
    struct side mine = k_side(a, head), other = q_side(a, head);
    struct short_sums of_k = {{{0}}}, of_v = {{{0}}};
    struct short_place place = short_place_of(head);
    // A causal mask hides a row of k from the rows of q before it.
    uint32_t begin = op->causal ? head->first : 0, end = (uint32_t)op->q_rows;
    struct own own;

    begin_tiles(&place, &t->tiles, &own, &mine, head->first, &other, begin, half);
    bring_q_rows(a, &t->rows, head, begin);
    block_sync();
    for (uint32_t first = begin; first < end; first += SHORT_STEP) {
        uint32_t at = first % (2 * SHORT_TILE), next = (at + SHORT_TILE) % (2 * SHORT_TILE);
        bool more = first / SHORT_TILE * SHORT_TILE + SHORT_TILE < end;
        bool seen = counts(op, first, place.first);
        struct slopes s;
        struct four four;

        if (more && first % SHORT_TILE == 0)
            bring_q_rows(a, &t->rows, head, first + SHORT_TILE);
        if (more)
            four = fetch_step(&place, &other.factor, first + SHORT_TILE);
        if (seen)
            value_step(a, &place, t, &s, &of_v, &own, first, at, half);
        if (more) {
            keep_step(&place, t->tiles.factor, next, &four, half);
            four = fetch_step(&place, &other.value, first + SHORT_TILE);
        }
        if (seen)
            key_step(&place, t, &s, &of_k, &own, at, half);
        if (more)
            keep_step(&place, t->tiles.value, next, &four, half);
        if ((first + SHORT_STEP) % SHORT_TILE == 0)
            block_sync();
    }
    write_short_grad(a, 1, &op->k, head, &place, &of_k, op->scale, &mine.factor);
    write_short_grad(a, 2, &op->v, head, &place, &of_v, 1, &mine.value);
    block_sync(); // the last tile may still be read
}

DEVICE void grad_key_short(const struct cuda_args *a, struct key_tiles *t, bool half)
{
    const struct cn_attention *op = &a->call.attention;
    uint32_t rows = (uint32_t)op->k_rows;
    uint32_t blocks = head_blocks(rows, SHORT_SIDE) * (uint32_t)op->heads * a->samples;

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        struct head head = short_head(a, block, rows, false);

        key_head(a, t, &head, half);
    }
}

// dk = scale * sum over q rows of the gradient of the score * q; dv = sum over q rows of p * dy.
KERNEL_OF_TWO(attention_grad_key_bfloat16)
{
    SHARED struct key_tiles tiles;

    grad_key_short(&a, &tiles, false);
}

KERNEL_OF_TWO(attention_grad_key_float16)
{
    SHARED struct key_tiles tiles;

    grad_key_short(&a, &tiles, true);
}
