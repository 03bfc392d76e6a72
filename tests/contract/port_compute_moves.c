// Copies, gathers, products of each sample's matrices, softmax and row normalization on every
// compute port, against plain loops in double precision.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/contract/compute_trial.h"
#include "tests/support/kernels_present.h"

#define OUT CN_CALL_INPUTS

static double element(const float *data, size_t start, bool transposed, size_t leading, size_t row,
                      size_t col)
{
    return (double)data[start + (transposed ? col * leading + row : row * leading + col)];
}

// c[i] = alpha op(a_i) op(b_i); operands and the result may be for all samples.
static void check_products(struct cn_products op, bool a_batched, bool b_batched, bool c_batched)
{
    struct trial trial = {.call = {.op = CN_OP_PRODUCTS}, .samples = 5};
    size_t a_words = (op.transpose_a ? op.inner : op.rows) * op.leading_a;
    size_t b_words = (op.transpose_b ? op.cols : op.inner) * op.leading_b;
    size_t a_all = a_words + (op.count - 1) * op.stride_a;
    size_t b_all = b_words + (op.count - 1) * op.stride_b;
    size_t c_all = op.rows * op.leading_c + (op.count - 1) * op.stride_c;

    trial.call.products = op;
    trial.extent[0] = (struct extent){a_all, a_batched};
    trial.extent[1] = (struct extent){b_all, b_batched};
    trial.extent[OUT] = (struct extent){c_all, c_batched};
    trial_init(&trial);
    for (size_t n = 0; n < 5; n++)
        for (size_t i = 0; i < op.count; i++)
            for (size_t r = 0; r < op.rows; r++)
                for (size_t c = 0; c < op.cols; c++) {
                    size_t a = (a_batched ? n * a_all : 0) + i * op.stride_a;
                    size_t b = (b_batched ? n * b_all : 0) + i * op.stride_b;
                    size_t to =
                        (c_batched ? n * c_all : 0) + i * op.stride_c + r * op.leading_c + c;
                    double sum = 0;

                    for (size_t k = 0; k < op.inner; k++)
                        sum += element(trial.data[0], a, op.transpose_a, op.leading_a, r, k) *
                               element(trial.data[1], b, op.transpose_b, op.leading_b, k, c);
                    trial.wanted[OUT][to] += (double)op.alpha * sum;
                }
    trial_check(&trial, "products");
    trial_deinit(&trial);
}

static void matrices_of_samples_are_multiplied(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool ta = i & 1, tb = i & 2;
        struct cn_products op = {.count = 3,
                                 .rows = 7,
                                 .inner = 10,
                                 .cols = 35,
                                 .transpose_a = ta,
                                 .transpose_b = tb,
                                 .alpha = 0.25f,
                                 .stride_a = 70,
                                 .stride_b = 350,
                                 .stride_c = 245,
                                 .leading_a = ta ? 7 : 10,
                                 .leading_b = tb ? 10 : 35,
                                 .leading_c = 35};

        check_products(op, true, true, true);
        check_products(op, false, true, true);
        check_products(op, true, false, true);
        check_products(op, true, true, false);
        op.stride_a = 0;
        check_products(op, true, true, true);
        op.stride_c = 0;
        check_products(op, true, true, true);
        check_products(op, true, true, false);
    }
    // Heads side by side in a row of 24, as attention has them.
    check_products((struct cn_products){.count = 3,
                                        .rows = 5,
                                        .inner = 8,
                                        .cols = 5,
                                        .transpose_b = true,
                                        .alpha = 1,
                                        .stride_a = 8,
                                        .stride_b = 8,
                                        .stride_c = 25,
                                        .leading_a = 24,
                                        .leading_b = 24,
                                        .leading_c = 5},
                   true, true, true);
}

static void check_copy(struct cn_copy op, size_t x_words, bool x_batched, size_t y_words)
{
    struct trial trial = {.call = {.op = CN_OP_COPY}, .samples = 4};

    trial.call.copy = op;
    trial.extent[0] = (struct extent){x_words, x_batched};
    trial.extent[OUT] = (struct extent){y_words, true};
    trial_init(&trial);
    for (size_t n = 0; n < 4; n++)
        for (size_t i = 0; i < op.dims[0]; i++)
            for (size_t j = 0; j < op.dims[1]; j++)
                for (size_t k = 0; k < op.dims[2]; k++) {
                    const size_t at[3] = {i, j, k};
                    ptrdiff_t x = (ptrdiff_t)op.x_offset, y = (ptrdiff_t)op.y_offset;

                    for (int d = 0; d < 3; d++) {
                        x += (ptrdiff_t)at[d] * op.x[d];
                        y += (ptrdiff_t)at[d] * op.y[d];
                    }
                    trial.wanted[OUT][n * y_words + (size_t)y] =
                        (double)op.scale *
                        (double)trial.data[0][(x_batched ? n * x_words : 0) + (size_t)x];
                }
    trial_check(&trial, "copy");
    trial_deinit(&trial);
}

static void parts_are_copied_along_any_strides(void **state)
{
    const struct cn_copy transpose = {
        .rank = 3, .dims = {4, 2, 3}, .x = {1, 12, 4}, .y = {6, 3, 1}, .scale = 1};
    const struct cn_copy repeat = {
        .rank = 3, .dims = {2, 3, 5}, .x = {0, 1, 0}, .y = {15, 5, 1}, .scale = -0.5f};
    const struct cn_copy backwards = {.rank = 3,
                                      .dims = {2, 2, 3},
                                      .x = {-12, 4, -1},
                                      .y = {20, 10, 2},
                                      .x_offset = 15,
                                      .y_offset = 3,
                                      .scale = 1};

    (void)state;
    check_copy(transpose, 24, true, 24);
    check_copy(transpose, 24, false, 24);
    check_copy(repeat, 3, true, 30);
    check_copy(repeat, 3, false, 30);
    check_copy(backwards, 24, true, 40);
}

static void a_fill_sets_every_sample(void **state)
{
    struct trial trial = {.call = {.op = CN_OP_FILL, .fill = {2.5f, 13}}, .samples = 6};

    (void)state;
    trial.extent[OUT] = (struct extent){13, true};
    trial_init(&trial);
    for (size_t i = 0; i < 6 * 13; i++)
        trial.wanted[OUT][i] = 2.5;
    trial_check(&trial, "fill");
    trial_deinit(&trial);
}

// Row or element n of index names what is taken; negative numbers count from the end.
static void set_indices(struct trial *trial, size_t count, size_t rows)
{
    for (size_t i = 0; i < count; i++) {
        int32_t index = (int32_t)(i * 5 % (2 * rows)) - (int32_t)rows;

        memcpy(&trial->data[1][i], &index, sizeof(index));
    }
}

static size_t index_at(const struct trial *trial, size_t i, size_t rows)
{
    int32_t index;

    memcpy(&index, &trial->data[1][i], sizeof(index));
    return index < 0 ? rows - (size_t)-index : (size_t)index;
}

static void check_gather(struct cn_gather op, bool x_batched, bool index_batched, bool gradient)
{
    struct trial trial = {.call = {.op = gradient ? CN_OP_GATHER_GRAD : CN_OP_GATHER},
                          .samples = 4};
    size_t x_words = op.outer * op.rows * op.inner, y_words = op.outer * op.count * op.inner;
    size_t index_words = op.elements ? y_words : op.count;

    trial.call.gather = op;
    trial.extent[0] =
        gradient ? (struct extent){y_words, true} : (struct extent){x_words, x_batched};
    trial.extent[1] = (struct extent){index_words, index_batched};
    trial.extent[OUT] =
        gradient ? (struct extent){x_words, x_batched} : (struct extent){y_words, true};
    trial_init(&trial);
    set_indices(&trial, index_words * (index_batched ? 4 : 1), op.rows);
    for (size_t n = 0; n < 4; n++)
        for (size_t i = 0; i < y_words; i++) {
            size_t o = i / (op.count * op.inner), at = op.elements ? i : i / op.inner % op.count;
            size_t row = index_at(&trial, (index_batched ? n * index_words : 0) + at, op.rows);
            size_t x =
                (x_batched ? n * x_words : 0) + (o * op.rows + row) * op.inner + i % op.inner;

            if (gradient)
                trial.wanted[OUT][x] += (double)trial.data[0][n * y_words + i];
            else
                trial.wanted[OUT][n * y_words + i] = (double)trial.data[0][x];
        }
    trial_check(&trial, "gather");
    trial_deinit(&trial);
}

static void rows_and_elements_are_gathered_and_their_gradients_scattered(void **state)
{
    const struct cn_gather rows = {.outer = 2, .rows = 5, .inner = 3, .count = 7};
    const struct cn_gather elements = {
        .outer = 2, .rows = 5, .inner = 3, .count = 4, .elements = true};
    // More rows than numbers, as an embedding has: each row that is named at all is named 4 times.
    const struct cn_gather embedding = {.outer = 1, .rows = 150, .inner = 300, .count = 30};
    // Few rows, each of which is named often.
    const struct cn_gather letters = {.outer = 2, .rows = 11, .inner = 261, .count = 307};

    (void)state;
    for (int gradient = 0; gradient < 2; gradient++) {
        check_gather(rows, false, true, gradient);
        check_gather(rows, true, false, gradient);
        check_gather(embedding, false, true, gradient);
        check_gather(letters, false, true, gradient);
        check_gather(elements, true, true, gradient);
        check_gather(elements, false, true, gradient);
    }
}

static void an_index_without_a_row_is_an_error_of_the_run(void **state)
{
    static const int32_t wrong[] = {5, -6, INT32_MAX, INT32_MIN};
    struct cn_call call = {.op = CN_OP_GATHER,
                           .gather = {.outer = 1, .rows = 5, .inner = 1, .count = 1}};
    const struct cn_compute_config config = {.threads = 2};
    const struct cn_hyper hyper = {.samples = 2, .first = true};
    const struct cn_compute_sizes sizes = {
        .words = {[CN_ARENA_WEIGHTS] = 5, [CN_ARENA_BATCH] = 64}};

    (void)state;
    call.in[0] = (struct cn_operand){.arena = CN_ARENA_WEIGHTS};
    call.in[1] = (struct cn_operand){.arena = CN_ARENA_BATCH, .stride = 1};
    call.out[0] = (struct cn_operand){.arena = CN_ARENA_BATCH, .offset = 32, .stride = 1};
    for (size_t p = 0; p < trial_port_count; p++) {
        const struct cn_compute_ops *ops = trial_ports[p];
        struct cn_compute_program *program;
        struct cn_compute_result result;
        struct cn_compute *device;

        assert_int_equal(ops->open(&config, &device), CN_OK);
        assert_int_equal(ops->reserve(device, &sizes, 2), CN_OK);
        assert_int_equal(ops->prepare(device, &call, 1, &program), CN_OK);
        for (size_t i = 0; i <= sizeof(wrong) / sizeof(wrong[0]); i++) {
            bool right = i == sizeof(wrong) / sizeof(wrong[0]);
            const int32_t index[2] = {4, right ? -5 : wrong[i]};
            void *host;

            assert_int_equal(ops->map(device, CN_ARENA_BATCH, &host), CN_OK);
            memcpy(host, index, sizeof(index));
            assert_int_equal(ops->unmap(device, CN_ARENA_BATCH), CN_OK);
            assert_int_equal(ops->run(device, program, &hyper), CN_OK);
            assert_int_equal(ops->wait(device, &result), right ? CN_OK : CN_ERANGE);
        }
        ops->release(device, program);
        ops->close(device);
    }
}

static double softmax_reference(const float *x, const struct cn_softmax *op, size_t start, size_t c)
{
    double sum = 0;

    for (size_t k = 0; k < op->cols; k++)
        sum += exp((double)x[start + k * op->inner]);
    return (double)x[start + c * op->inner] - log(sum);
}

// in[0] of the gradient is dy, in[1] y.
static void check_softmax(struct cn_softmax op, bool gradient)
{
    struct trial trial = {.call = {.op = gradient ? CN_OP_SOFTMAX_GRAD : CN_OP_SOFTMAX},
                          .samples = 5};
    size_t words = op.outer * op.cols * op.inner;

    trial.call.softmax = op;
    trial.extent[0] = trial.extent[OUT] = (struct extent){words, true};
    trial.extent[1] = (struct extent){gradient ? words : 0, true};
    trial_init(&trial);
    for (size_t i = 0; i < 5 * words; i++) {
        size_t c = i / op.inner % op.cols, start = i - c * op.inner;
        double sum = 0;

        if (!gradient) {
            double y = softmax_reference(trial.data[0], &op, start, c);

            trial.wanted[OUT][i] = op.log ? y : exp(y);
            continue;
        }
        // Any y will do: the formulas hold for what softmax gives, and are checked as they are.
        for (size_t k = 0; k < op.cols; k++) {
            double dy = (double)trial.data[0][start + k * op.inner];

            sum += op.log ? dy : dy * (double)trial.data[1][start + k * op.inner];
        }
        trial.wanted[OUT][i] = op.log
                                   ? (double)trial.data[0][i] - exp((double)trial.data[1][i]) * sum
                                   : (double)trial.data[1][i] * ((double)trial.data[0][i] - sum);
    }
    trial_check(&trial, "softmax");
    trial_deinit(&trial);
}

static void softmax_and_its_logarithm_are_right_along_any_axis(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        check_softmax((struct cn_softmax){3, 21, 1, i & 1}, i & 2);
        check_softmax((struct cn_softmax){2, 5, 7, i & 1}, i & 2);
        check_softmax((struct cn_softmax){1, 1, 3, i & 1}, i & 2);
    }
}

struct row {
    double mean, scale;
};

static struct row row_of(const float *x, const struct cn_norm *op)
{
    struct row row = {0, 0};
    double variance = 0;

    for (size_t c = 0; c < op->cols; c++)
        row.mean += (double)x[c] / (double)op->cols;
    for (size_t c = 0; c < op->cols; c++)
        variance += pow((double)x[c] - row.mean, 2) / (double)op->cols;
    row.scale = 1 / sqrt(variance + (double)op->epsilon);
    return row;
}

static size_t affine_of(const struct cn_norm *op, size_t r, size_t c)
{
    return r % op->groups * (op->cols / op->inner) + c / op->inner;
}

static void check_norm(struct cn_norm op, bool affine)
{
    struct trial trial = {.call = {.op = CN_OP_NORM}, .samples = 4};
    size_t words = op.rows * op.cols, numbers = op.groups * (op.cols / op.inner);

    trial.call.norm = op;
    trial.extent[0] = trial.extent[OUT] = (struct extent){words, true};
    trial.extent[1] = trial.extent[2] = (struct extent){affine ? numbers : 0, false};
    trial.extent[OUT + 1] = (struct extent){2 * op.rows, true};
    trial_init(&trial);
    for (size_t r = 0; r < 4 * op.rows; r++) {
        struct row row = row_of(trial.data[0] + r * op.cols, &op);

        trial.wanted[OUT + 1][2 * r] = row.mean;
        trial.wanted[OUT + 1][2 * r + 1] = row.scale;
        for (size_t c = 0; c < op.cols; c++) {
            size_t at = affine_of(&op, r % op.rows, c);
            double n = ((double)trial.data[0][r * op.cols + c] - row.mean) * row.scale;

            trial.wanted[OUT][r * op.cols + c] =
                affine ? n * (double)trial.data[1][at] + (double)trial.data[2][at] : n;
        }
    }
    trial_check(&trial, "norm");
    trial_deinit(&trial);
}

// dy, x and what the forward pass saved.
static void init_norm_gradient(struct trial *trial, const struct cn_norm *op)
{
    size_t words = op->rows * op->cols;

    trial->call.norm = *op;
    trial->extent[0] = trial->extent[1] = (struct extent){words, true};
    trial->extent[2] = (struct extent){2 * op->rows, true};
    trial_init(trial);
    for (size_t r = 0; r < trial->samples * op->rows; r++) {
        struct row row = row_of(trial->data[1] + r * op->cols, op);

        trial->data[2][2 * r] = (float)row.mean;
        trial->data[2][2 * r + 1] = (float)row.scale;
    }
}

static void check_norm_gradient(struct cn_norm op, bool affine)
{
    struct trial trial = {.call = {.op = CN_OP_NORM_GRAD}, .samples = 4};
    size_t numbers = op.groups * (op.cols / op.inner);

    trial.extent[3] = (struct extent){affine ? numbers : 0, false};
    trial.extent[OUT] = (struct extent){op.rows * op.cols, true};
    init_norm_gradient(&trial, &op);
    for (size_t r = 0; r < 4 * op.rows; r++) {
        const float *dy = trial.data[0] + r * op.cols, *x = trial.data[1] + r * op.cols;
        struct row row = row_of(x, &op);
        double first = 0, second = 0;

        for (int pass = 0; pass < 2; pass++)
            for (size_t c = 0; c < op.cols; c++) {
                size_t at = affine_of(&op, r % op.rows, c);
                double g = (double)dy[c] * (affine ? (double)trial.data[3][at] : 1);
                double n = ((double)x[c] - row.mean) * row.scale;

                if (pass)
                    trial.wanted[OUT][r * op.cols + c] = row.scale * (g - first - n * second);
                else
                    first += g / (double)op.cols, second += g * n / (double)op.cols;
            }
    }
    trial_check(&trial, "norm gradient");
    trial_deinit(&trial);
}

// Without one of both where that is not trained.
static void check_affine_gradient(struct cn_norm op, bool gamma, bool beta)
{
    struct trial trial = {.call = {.op = CN_OP_NORM_GRAD_AFFINE}, .samples = 4};
    size_t numbers = op.groups * (op.cols / op.inner);

    trial.extent[OUT] = (struct extent){gamma ? numbers : 0, false};
    trial.extent[OUT + 1] = (struct extent){beta ? numbers : 0, false};
    init_norm_gradient(&trial, &op);
    for (size_t r = 0; r < 4 * op.rows; r++) {
        struct row row = row_of(trial.data[1] + r * op.cols, &op);

        for (size_t c = 0; c < op.cols; c++) {
            size_t at = affine_of(&op, r % op.rows, c);
            double dy = (double)trial.data[0][r * op.cols + c];

            if (gamma)
                trial.wanted[OUT][at] +=
                    dy * ((double)trial.data[1][r * op.cols + c] - row.mean) * row.scale;
            if (beta)
                trial.wanted[OUT + 1][at] += dy;
        }
    }
    trial_check(&trial, "affine gradient");
    trial_deinit(&trial);
}

static void layer_instance_and_group_normalization_are_right(void **state)
{
    static const struct cn_norm ops[] = {
        {.rows = 3, .cols = 37, .groups = 1, .inner = 1, .epsilon = 1e-3f},  // layer
        {.rows = 5, .cols = 12, .groups = 5, .inner = 12, .epsilon = 1e-3f}, // instance
        {.rows = 2, .cols = 18, .groups = 2, .inner = 6, .epsilon = 1e-3f},  // group
        {.rows = 71, .cols = 9, .groups = 1, .inner = 1, .epsilon = 1e-3f},  // many rows
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        for (int affine = 0; affine < 2; affine++) {
            check_norm(ops[i], affine);
            check_norm_gradient(ops[i], affine);
        }
        for (int frozen = 0; frozen < 3; frozen++)
            check_affine_gradient(ops[i], frozen != 1, frozen != 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_samples_are_multiplied),
        cmocka_unit_test(parts_are_copied_along_any_strides),
        cmocka_unit_test(a_fill_sets_every_sample),
        cmocka_unit_test(rows_and_elements_are_gathered_and_their_gradients_scattered),
        cmocka_unit_test(an_index_without_a_row_is_an_error_of_the_run),
        cmocka_unit_test(softmax_and_its_logarithm_are_right_along_any_axis),
        cmocka_unit_test(layer_instance_and_group_normalization_are_right),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
