#include "ports/cuda/packed.h"

// For each multiprocessor: the least multiplications of a product that is packed, and the most
// words of packed lines of a factor, and the most words of a factor that is packed as a whole.
#define WORK_LEAST (1u << 25)
#define CHUNK_WORDS (1u << 19)
#define WHOLE_WORDS (1u << 20)

// Returns the elements of a packed line: whole 16 bytes.
static uint64_t padded(uint64_t width)
{
    return (width + 7) / 8 * 8;
}

static uint64_t words_of(uint64_t lines, uint64_t width)
{
    return cuda_round_words(lines * padded(width) / 2);
}

// Returns whether a product's result is computed in the workspace and copied: the library is slow
// where rows of the result are not aligned.
static bool is_copied(const struct cuda_product *p)
{
    return !p->transpose_a && p->beta == 0 && p->leading_c % 4 &&
           p->end == CUBLASLT_EPILOGUE_DEFAULT;
}

// A factor is packed by its lines as they lie in memory. Those of a are rows of the result, or with
// transpose_a terms of the sum. A product is done in chunks of lines of a. In the second case the
// lines of b belong to terms of the sum, too, and are packed with those of a.
struct chunks {
    uint64_t lines, width;     // of a
    uint64_t b_lines, b_width; // of b
    uint64_t step;             // lines of a chunk
    uint64_t a_words, b_words; // of the packed chunks
    uint64_t c_words;          // of a chunk's result; 0: it is not copied
};

// Returns whether a product is packed.
static bool divide(const struct cuda *cuda, const struct cuda_product *p, struct chunks *c)
{
    uint64_t widest;

    if (!cuda_is_short(cuda) || p->count != 1 || p->apart || p->aside ||
        (p->transpose_a && (p->transpose_b || p->end != CUBLASLT_EPILOGUE_DEFAULT)) ||
        (double)p->rows * (double)p->inner * (double)p->cols <
            (double)cuda->processors * WORK_LEAST)
        return false;
    *c = (struct chunks){.lines = p->transpose_a ? p->inner : p->rows,
                         .width = p->transpose_a ? p->rows : p->inner,
                         // Without transpose_a the sum is padded as the lines of a are; a result
                         // that is copied is padded, too.
                         .b_lines = p->transpose_b   ? is_copied(p) ? padded(p->cols) : p->cols
                                    : p->transpose_a ? p->inner
                                                     : padded(p->inner),
                         .b_width = p->transpose_b ? p->inner : p->cols};
    widest = p->transpose_a && c->b_width > c->width ? c->b_width : c->width;
    c->step = (uint64_t)cuda->processors * 2 * CHUNK_WORDS / padded(widest) / 64 * 64;
    if (is_copied(p) && c->step > (uint64_t)cuda->processors * CHUNK_WORDS / padded(p->cols))
        c->step = (uint64_t)cuda->processors * CHUNK_WORDS / padded(p->cols);
    c->step = c->step < c->lines ? c->step : c->lines;
    c->c_words = is_copied(p) ? c->step * padded(p->cols) : 0;
    c->a_words = words_of(c->step, c->width);
    c->b_words = words_of(p->transpose_a ? c->step : c->b_lines, c->b_width);
    return c->step > 0 && c->b_words <= (uint64_t)cuda->processors * WHOLE_WORDS;
}

// A result that is set may need more than one that is added to, or less.
size_t cuda_packed_words(const struct cuda *cuda, const struct cuda_product *p)
{
    size_t most = 0;

    for (int beta = 0; beta < 2 && cuda->blas; beta++) {
        struct cuda_product either = *p;
        struct chunks c;

        either.beta = (float)beta;
        if (divide(cuda, &either, &c) && c.a_words + c.b_words + c.c_words > most)
            most = c.a_words + c.b_words + c.c_words;
    }
    return most;
}

// Packs lines; those from `given` on are zeros.
static cn_err pack(struct cuda *cuda, const float *from, uint64_t leading, uint64_t given,
                   uint64_t lines, uint64_t width, float *to)
{
    const struct cn_call none = {.op = CN_OP_CHECK};
    struct cuda_args args;

    cuda_args_of(cuda, &none, &args);
    args.in[0] = (float *)(uintptr_t)from;
    args.out[0] = to;
    args.wide = cuda->precision == CN_PRECISION_FLOAT16;
    args.call.products = (struct cn_products){.rows = lines,
                                              .inner = given,
                                              .cols = width,
                                              .leading_a = leading,
                                              .leading_c = padded(width)};
    return cuda_launch_threads(cuda, CUDA_KERNEL_pack_lines, &args, lines * (padded(width) / 8));
}

// Copies a result to its place.
static cn_err copy_lines(struct cuda *cuda, const struct cuda_product *from,
                         const struct cuda_product *to)
{
    const struct cn_call none = {.op = CN_OP_CHECK};
    struct cuda_args args;

    cuda_args_of(cuda, &none, &args);
    args.in[0] = from->c;
    args.out[0] = to->c;
    args.call.products = (struct cn_products){.rows = to->rows,
                                              .cols = to->cols,
                                              .leading_a = from->leading_c,
                                              .leading_c = to->leading_c};
    return cuda_launch_blocks(cuda, CUDA_KERNEL_copy_lines, &args, to->rows);
}

// Returns the part of a product that belongs to some lines of a.
static struct cuda_product part_of(const struct cuda_product *p, uint64_t first, uint64_t lines)
{
    struct cuda_product part = *p;

    part.a += first * p->leading_a;
    if (p->transpose_a) {
        part.b += first * p->leading_b;
        part.inner = lines;
        part.beta = first ? 1 : p->beta;
    } else {
        part.rows = lines;
        part.c += first * p->leading_c;
    }
    return part;
}

// Multiplies packed factors where a line of a has an element for each row of the result: first
// whole eights of rows, then the rest. The library is slow where a line is no multiple of 16 bytes.
static cn_err multiply_rows(struct cuda *cuda, const struct cuda_product *packed,
                            const struct cuda_product *part, float *workspace)
{
    struct cuda_product eights = *packed, rest = *part;
    cn_err err;

    eights.rows = packed->rows / 8 * 8;
    rest.rows = packed->rows % 8;
    rest.a += eights.rows;
    rest.c += eights.rows * rest.leading_c;
    if (!eights.rows || !rest.rows)
        return cuda_products_multiply(cuda, packed, workspace);
    err = cuda_products_multiply(cuda, &eights, workspace);
    if (err)
        return err;
    err = cuda_products_multiply(cuda, &rest, workspace);
    return err == CN_ENOTSUP ? CN_EIO : err; // it is too late to do the whole in another way
}

static cn_err multiply_packed(struct cuda *cuda, const struct cuda_product *part,
                              const struct chunks *c, float *workspace)
{
    struct cuda_product packed = *part;
    uint64_t lines = part->transpose_a ? part->inner : part->rows;
    float *result = workspace + c->a_words + c->b_words;
    cn_err err = pack(cuda, part->a, part->leading_a, lines, lines, c->width, workspace);

    if (part->transpose_a && !err)
        err =
            pack(cuda, part->b, part->leading_b, lines, lines, c->b_width, workspace + c->a_words);
    if (err)
        return err;
    if (!part->transpose_a)
        packed.inner = padded(part->inner);
    packed.factors = cuda->precision == CN_PRECISION_FLOAT16 ? CUDA_R_16F : CUDA_R_16BF;
    packed.a = workspace;
    packed.b = workspace + c->a_words;
    packed.leading_a = padded(c->width);
    packed.leading_b = padded(c->b_width);
    if (part->transpose_a)
        return multiply_rows(cuda, &packed, part, result);
    if (!c->c_words)
        return cuda_products_multiply(cuda, &packed, result);
    packed.c = result;
    packed.cols = packed.leading_c = padded(part->cols);
    err = cuda_products_multiply(cuda, &packed, result + c->c_words);
    return err ? err : copy_lines(cuda, &packed, part);
}

cn_err cuda_packed_multiply(struct cuda *cuda, const struct cuda_product *p, float *workspace)
{
    struct chunks c;
    cn_err err = CN_OK;

    if (!cuda->blas || !divide(cuda, p, &c))
        return CN_ENOTSUP;
    if (!p->transpose_a)
        err = pack(cuda, p->b, p->leading_b, p->transpose_b ? p->cols : p->inner, c.b_lines,
                   c.b_width, workspace + c.a_words);
    for (uint64_t first = 0; first < c.lines && !err; first += c.step) {
        struct cuda_product part =
            part_of(p, first, c.lines - first < c.step ? c.lines - first : c.step);

        err = multiply_packed(cuda, &part, &c, workspace);
        if (err == CN_ENOTSUP && first) // the parts before are done
            err =
                cuda_products_multiply(cuda, &part, workspace + c.a_words + c.b_words + c.c_words);
        if (err == CN_ENOTSUP && first)
            err = CN_EIO;
    }
    return err;
}
