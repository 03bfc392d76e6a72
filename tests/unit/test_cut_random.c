// Random nets, cut at random places into two to six parts, train to the bits of the whole net.
//
//   test_cut_random [NETS [SEED]]
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define MESSAGE_SIZE ((size_t)32 << 10)
#include "ports/cpu/compute_cpu.h"
#include "tests/support/cut_check.h"
#include "tests/unit/net.h"

#define WIDTH 6 // of every value: [batch, WIDTH]
#define VALUES 12
#define LINE_SIZE 96

static uint32_t nets_wanted = 60, state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 10) % below;
}

// A net while it is made: value i is "v<i>", the input "x" is value 0.
struct random_net {
    struct net net;
    char lines[NET_LINES][LINE_SIZE];
    uint32_t line_count, values, weights;
    bool full;
};

static void add_line(struct random_net *made, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_line(struct random_net *made, const char *format, ...)
{
    va_list arguments;

    if (made->line_count == NET_LINES) {
        made->full = true;
        return;
    }
    va_start(arguments, format);
    vsnprintf(made->lines[made->line_count], LINE_SIZE, format, arguments);
    va_end(arguments);
    made->net.lines[made->line_count] = made->lines[made->line_count];
    made->line_count++;
}

static const char *name_of(uint32_t value, char name[16])
{
    snprintf(name, 16, value ? "v%u" : "x", value);
    return name;
}

// Draws a value, mostly a late one.
static const char *some_value(const struct random_net *made, char name[16])
{
    uint32_t back = draw(3) ? draw(made->values < 3 ? made->values : 3) : draw(made->values);

    return name_of(made->values - 1 - back, name);
}

// Draws a square weight; one in four is used already.
static uint32_t some_weight(struct random_net *made)
{
    if (made->weights && !draw(4))
        return draw(made->weights);
    add_line(made, "weight w%u %d,%d", made->weights, WIDTH, WIDTH);
    return made->weights++;
}

enum kind {
    KIND_GEMM,
    KIND_TRANSPOSED,
    KIND_MAP,
    KIND_PAIR,
    KIND_CONCAT,
    KIND_SPLIT,
    KIND_NORM,
    KIND_BATCH_NORM,
    KIND_DROPOUT,
    KIND_WHERE,
    KIND_VIEW,
    KIND_COUNT,
};

static void add_map(struct random_net *made, const char *a, uint32_t to)
{
    static const char *const maps[] = {"Tanh", "Relu", "Sigmoid", "Softmax", "Erf", "Softplus"};

    add_line(made, "%s %s -> v%u", maps[draw(6)], a, to);
}

static void add_norm(struct random_net *made, const char *a, uint32_t to, bool of_batch)
{
    add_line(made, "weight g%u %d", to, WIDTH);
    add_line(made, "weight b%u %d", to, WIDTH);
    if (!of_batch) {
        add_line(made, "LayerNormalization %s g%u b%u -> v%u", a, to, to, to);
        return;
    }
    add_line(made, "weight m%u %d", to, WIDTH);
    add_line(made, "weight s%u %d", to, WIDTH);
    add_line(made, "BatchNormalization %s g%u b%u m%u s%u -> v%u training_mode=1", a, to, to, to,
             to, to);
}

static void add_pieces(struct random_net *made, const char *a, const char *b, uint32_t to,
                       bool concat)
{
    if (concat) {
        add_line(made, "weight c%u %d,%d", to, 2 * WIDTH, WIDTH);
        add_line(made, "Concat %s %s -> j%u axis=1", a, b, to);
        add_line(made, "Gemm j%u c%u -> v%u", to, to, to);
        return;
    }
    add_line(made, "Split %s -> p%u q%u axis=1", a, to, to);
    add_line(made, "Tanh p%u -> t%u", to, to);
    add_line(made, "Concat q%u t%u -> v%u axis=1", to, to, to);
}

static void add_value(struct random_net *made)
{
    static const char *const pairs[] = {"Add", "Sub", "Mul", "Max"};
    char one[16], two[16];
    const char *a = some_value(made, one), *b = some_value(made, two);
    uint32_t to = made->values, weight;
    enum kind kind = (enum kind)draw(KIND_COUNT);

    switch (kind) {
    case KIND_GEMM:
        weight = some_weight(made);
        add_line(made, "Gemm %s w%u -> v%u transB=%u", a, weight, to, draw(2));
        break;
    case KIND_TRANSPOSED:
        weight = some_weight(made);
        add_line(made, "Transpose w%u -> t%u", weight, to);
        add_line(made, "MatMul %s t%u -> v%u", a, to, to);
        break;
    case KIND_MAP:
        add_map(made, a, to);
        break;
    case KIND_PAIR:
        add_line(made, "%s %s %s -> v%u", pairs[draw(4)], a, b, to);
        break;
    case KIND_CONCAT:
    case KIND_SPLIT:
        add_pieces(made, a, b, to, kind == KIND_CONCAT);
        break;
    case KIND_NORM:
    case KIND_BATCH_NORM:
        add_norm(made, a, to, kind == KIND_BATCH_NORM);
        break;
    case KIND_DROPOUT:
        add_line(made, "Constant -> r%u value_float=0.25", to);
        add_line(made, "Constant -> o%u value_int=1", to);
        add_line(made, "Dropout %s r%u o%u -> v%u", a, to, to, to);
        break;
    case KIND_WHERE:
        add_line(made, "Less %s x -> l%u", a, to);
        add_line(made, "Where l%u %s %s -> v%u", to, a, b, to);
        break;
    case KIND_VIEW:
    case KIND_COUNT:
        add_line(made, "Identity %s -> v%u", a, to);
        break;
    }
    made->values++;
}

// The end reads the last value and an early one, so that something skips what lies between.
static void make_net(struct random_net *made)
{
    uint32_t whole;

    do {
        *made = (struct random_net){.net = {.input = "6"}, .values = 1};
        add_line(made, "weight w0 %d,%d", WIDTH, WIDTH);
        made->weights = 1;
        add_line(made, "Gemm x w0 -> v1");
        made->values = 2;
        while (made->values < VALUES && made->line_count + 8 < NET_LINES)
            add_value(made);
        whole = made->line_count;
        add_line(made, "Add v%u v%u -> e", made->values - 1, 1 + draw(made->values - 1));
        add_line(made, "weight z %d,%d", WIDTH, 3);
        add_line(made, "Gemm e z -> y");
    } while (made->full || whole + 3 > NET_LINES);
}

static struct cn_cut draw_cut(const struct cut_check *check)
{
    size_t most = check->place_count < 5 ? check->place_count : 5, kept = 0;
    size_t wanted = 1 + draw((uint32_t)most);
    struct cn_cut cut = {.parts = (uint32_t)wanted + 1};

    for (size_t i = 0; i < check->place_count && kept < wanted; i++)
        if (draw((uint32_t)(check->place_count - i)) < wanted - kept)
            cut.places[kept++] = check->places[i].nodes;
    return cut;
}

static bool reads(const char *line, const char *name)
{
    const char *found = strstr(line, name);
    return found && strncmp(line, "weight ", 7) != 0 &&
           (found[strlen(name)] == ' ' || found[strlen(name)] == '\0');
}

static bool shares_a_weight(const struct random_net *made)
{
    for (uint32_t weight = 0; weight < made->weights; weight++) {
        uint32_t readers = 0;
        char name[16];

        snprintf(name, sizeof(name), " w%u", weight);
        for (uint32_t i = 0; i < made->line_count; i++)
            readers += reads(made->lines[i], name);
        if (readers > 1)
            return true;
    }
    return false;
}

// Returns the number of cuts that were trained. A weight that two parts share, and clipping, change
// the last bits of gradients. Where a gradient is nothing else, as that of a bias before batch
// normalization, Adam makes whole steps of them: such nets are trained by SGD.
static uint32_t check_net(const struct random_net *made, const char *name)
{
    bool adam = draw(2) == 0, clips = draw(5) == 0;
    struct cn_rules rules = {.optimizer = adam && !clips && !shares_a_weight(made)
                                              ? CN_OPTIMIZER_ADAM
                                              : CN_OPTIMIZER_SGD,
                             .clip = clips ? 0.01 : 0};
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = draw(8) ? 1 : 2 + draw(3),
                                       .loss = CN_LOSS_MSE,
                                       .rules = &rules,
                                       .learning_rate = 0.001f,
                                       .momentum = 0.9f,
                                       .seed = 3};
    const struct message model = net_message(&made->net);
    struct cut_check check;
    struct cn_onnx *onnx;
    struct cn_diag diag;
    bool same = true;

    if (!draw(4))
        snprintf(rules.freeze, sizeof(rules.freeze), "w0");
    cn_diag_init(&diag);
    assert_int_equal(cn_onnx_open(model.bytes, model.size, &diag, &onnx), CN_OK);
    if (cut_check_open(&check, name, onnx, &config, &diag))
        fail_msg("%s: %s", name, cn_diag_first(&diag));
    for (int i = 0; same && check.place_count && i < 4; i++) {
        const struct cn_cut cut = draw_cut(&check);

        same = cut_check_try(&check, &cut, i % 2 ? CHAIN_GPIPE : CHAIN_1F1B);
    }
    cut_check_close(&check);
    cn_onnx_close(onnx);
    for (uint32_t i = 0; !same && i < made->line_count; i++)
        fprintf(stderr, "    %s\n", made->lines[i]);
    if (!same)
        fail_msg("%s", check.failed);
    return check.cuts;
}

static void random_cuts_of_random_nets_give_the_bits_of_the_whole(void **context)
{
    uint32_t cuts = 0;

    (void)context;
    for (uint32_t i = 0; i < nets_wanted; i++) {
        static struct random_net made;
        char name[48];

        snprintf(name, sizeof(name), "net of seed %u", state);
        make_net(&made);
        cuts += check_net(&made, name);
    }
    printf("%u nets, %u cuts\n", nets_wanted, cuts);
    assert_true(cuts >= nets_wanted);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cuts_of_random_nets_give_the_bits_of_the_whole),
    };

    if (count > 1)
        nets_wanted = (uint32_t)strtoul(arguments[1], NULL, 10);
    if (count > 2)
        state = (uint32_t)strtoul(arguments[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
