// Times the proposals that cuBLASLt makes for the matrix products of a Transformer, on a GPU.
//
//     bench_products TOKENS WIDTH CLASSES [PRECISION]
//
// TOKENS is the batch times the length of a sample: 4096 768 50257 are those of a GPT of 124
// million weights. PRECISION: 0 float32, 3 TF32; products of 16 bits are packed first and not timed
// here. A line for each product has the milliseconds of each proposal in the library's order, so
// first of the one that the port takes, then the least of them, and the TFLOP/s of both. "sum in P"
// is the same product as P products of parts of its sum, which the port adds up (products.c). The
// last lines are the sums over a model of LAYERS = 12 layers. Ends with 77 where there is no GPU.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ports/cuda/products.h"

#define RUNS 5
#define LAYERS 12

static double now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

struct bench {
    struct cuda cuda;
    float *a, *b, *c, *workspace; // of the device
    double first, least;          // sums over a model, in ms
};

// What a product is in the model.
struct row {
    const char *what;
    uint64_t rows, inner, cols;
    bool transpose_a, transpose_b;
    int times; // in a step
};

static struct cuda_product describe(const struct bench *b, const struct row *row, uint64_t parts)
{
    struct cuda_product p = {
        .rows = row->rows,
        .inner = row->inner / parts,
        .cols = row->cols,
        .transpose_a = row->transpose_a,
        .transpose_b = row->transpose_b,
        .alpha = 1,
        .a = b->a,
        .b = b->b,
        .c = b->c,
        .end = CUBLASLT_EPILOGUE_DEFAULT,
        .count = parts,
        .stride_c = (int64_t)(row->rows * row->cols),
    };

    p.leading_a = p.transpose_a ? p.rows : row->inner;
    p.leading_b = p.transpose_b ? row->inner : p.cols;
    p.leading_c = p.cols;
    p.stride_a = (int64_t)(p.inner * (p.transpose_a ? p.leading_a : 1));
    p.stride_b = (int64_t)(p.inner * (p.transpose_b ? 1 : p.leading_b));
    return p;
}

// Returns the least time of some runs; below 0 when the proposal fails.
static double time_proposal(struct bench *b, const struct cuda_product *p, int proposal)
{
    double least = -1;

    for (int i = 0; i < 1 + RUNS; i++) {
        double begun = now_ms();

        if (cuda_products_multiply_by(&b->cuda, p, proposal, b->workspace) ||
            b->cuda.library.driver.stream_wait(b->cuda.stream))
            return -1;
        if (i && (least < 0 || now_ms() - begun < least))
            least = now_ms() - begun;
    }
    return least;
}

static double rate(const struct row *row, double ms)
{
    return ms > 0 ? 2e-9 * (double)row->rows * (double)row->inner * (double)row->cols / ms : 0;
}

// Prints the line of a product, in parts or not. Returns false when the library has no way to it.
static bool bench_product(struct bench *b, const struct row *row, uint64_t parts, double *first,
                          double *least)
{
    struct cuda_product p = describe(b, row, parts);

    printf("%s, %llu x %llu x %llu", row->what, (unsigned long long)row->rows,
           (unsigned long long)row->inner, (unsigned long long)row->cols);
    if (parts > 1)
        printf(", sum in %llu", (unsigned long long)parts);
    printf(":");
    *first = *least = -1;
    for (int i = 0; i < CUDA_PRODUCT_PROPOSALS; i++) {
        double ms = time_proposal(b, &p, i);

        if (ms < 0)
            break;
        printf(" %.3f", ms);
        *first = i ? *first : ms;
        *least = *least < 0 || ms < *least ? ms : *least;
    }
    printf("; least %.3f, %.1f and %.1f TFLOP/s\n", *least, rate(row, *first), rate(row, *least));
    fflush(stdout);
    return *first >= 0;
}

static void bench_row(struct bench *b, const struct row *row)
{
    double first, least, in_parts, least_in_parts;

    if (!bench_product(b, row, 1, &first, &least))
        return;
    for (uint64_t parts = 2; row->transpose_a && parts <= 16; parts *= 2)
        if (row->inner % parts == 0 && bench_product(b, row, parts, &in_parts, &least_in_parts))
            least = least_in_parts < least ? least_in_parts : least;
    b->first += row->times * first;
    b->least += row->times * least;
}

// The three products of a layer from `in` to `out` values: forward, and its two gradients.
static void bench_layer(struct bench *b, const char *what, uint64_t tokens, uint64_t in,
                        uint64_t out, int times)
{
    const struct row rows[] = {
        {"forward", tokens, in, out, false, true, times},
        {"gradient of input", tokens, out, in, false, false, times},
        {"gradient of weight", out, tokens, in, true, false, times},
    };

    printf("%s:\n", what);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        bench_row(b, &rows[i]);
}

static bool allocate(struct bench *b, float **memory, uint64_t words)
{
    CUdeviceptr address;

    if (b->cuda.library.driver.allocate(&address, words * sizeof(float)))
        return false;
    *memory = (float *)(uintptr_t)address;
    return !b->cuda.library.driver.fill_bytes(address, 0, words * sizeof(float), b->cuda.stream);
}

int main(int argc, char **arguments)
{
    static struct bench b;
    struct cuda_library library;
    struct cn_compute_config config = {.wanted = true};
    uint64_t tokens, width, classes, largest;

    if (argc < 4) {
        fputs("usage: bench_products TOKENS WIDTH CLASSES [PRECISION]\n", stderr);
        return 64;
    }
    tokens = strtoull(arguments[1], NULL, 10);
    width = strtoull(arguments[2], NULL, 10);
    classes = strtoull(arguments[3], NULL, 10);
    config.precision = argc > 4 ? (enum cn_precision)atoi(arguments[4]) : CN_PRECISION_FLOAT32;
    if (cuda_library_open(&library, CN_LOG_WARN) || cuda_device_open(&b.cuda, &library, &config) ||
        !b.cuda.blas)
        return 77;
    largest = tokens > width ? tokens : width;
    largest *= classes > 4 * width ? classes : 4 * width;
    // Results in parts of a weight's gradient.
    if (!allocate(&b, &b.a, largest) || !allocate(&b, &b.b, largest) ||
        !allocate(&b, &b.c, largest > 64 * width * width ? largest : 64 * width * width) ||
        !allocate(&b, &b.workspace, b.cuda.product_words))
        return 1;
    bench_layer(&b, "query, key and value", tokens, width, 3 * width, LAYERS);
    bench_layer(&b, "output of attention", tokens, width, width, LAYERS);
    bench_layer(&b, "wider", tokens, width, 4 * width, LAYERS);
    bench_layer(&b, "back", tokens, 4 * width, width, LAYERS);
    bench_layer(&b, "classes", tokens, width, classes, 1);
    printf("a step has %.2f ms of the first proposals, %.2f of the least\n", b.first, b.least);
    return 0;
}
