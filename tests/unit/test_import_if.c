// Models with If: names defined in a branch are local to it, and its reads count like all others.
#include "tests/unit/gradient_check.h"

#include "runtime/engine/trainer/trainer_state.h"

#define LINES 8

struct part {
    const char *outputs[3];
    const char *lines[LINES];
};

// Nodes and outputs as a graph in the attribute of an If.
static struct message branch_of(const struct part *part)
{
    struct message branch = {.size = 0};

    for (size_t i = 0; i < LINES && part->lines[i]; i++)
        put_line(&branch, part->lines[i]);
    for (size_t i = 0; i < 3 && part->outputs[i]; i++) {
        struct message value = {.size = 0};

        put_text(&value, 1, part->outputs[i]);
        put_message(&branch, 12, &value);
    }
    return branch;
}

static void put_branch(struct message *node, const char *name, const struct message *branch)
{
    struct message attribute = {.size = 0};

    put_text(&attribute, 1, name);
    put_message(&attribute, 6, branch);
    put_int(&attribute, 20, 5);
    put_message(node, 5, &attribute);
}

static void put_if(struct message *graph, const char *condition, const char *output,
                   const struct message *then, const struct message *otherwise)
{
    struct message node = {.size = 0};

    put_text(&node, 1, condition);
    put_text(&node, 2, output);
    put_text(&node, 3, output);
    put_text(&node, 4, "If");
    put_branch(&node, "then_branch", then);
    put_branch(&node, "else_branch", otherwise);
    put_message(graph, 1, &node);
}

// The weights, and two conditions, the first true and the second false.
static struct message start(void)
{
    static const char *const lines[] = {"weight w 4,4",  "weight v 4,4", "weight m 3",
                                        "weight d 3",    "weight g 3",   "weight b 3",
                                        "numbers yes 1", "numbers no 0"};
    struct message graph = {.size = 0};

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        put_line(&graph, lines[i]);
    return graph;
}

static struct message finish(struct message *graph)
{
    put_text(graph, 2, "net");
    put_value(graph, 11, "x", "3,4");
    put_value(graph, 12, "y", NULL);
    return model_message(graph);
}

// The weights after a step, all positive before it.
static float *train(const struct message *model)
{
    static struct bench bench;
    struct cn_metrics metrics = {0};
    float *weights;

    if (open_message(&bench, model, CN_LOSS_MSE, 2))
        fail_msg("%s", cn_diag_first(&bench.diag));
    weights = calloc(bench.total, sizeof(*weights));
    for (size_t i = 0; i < SAMPLES * 256; i++) {
        bench.inputs[i] = sinf((float)i);
        bench.targets[i] = cosf((float)i);
    }
    for (size_t i = 0; i < bench.total; i++)
        weights[i] = 0.5f + (float)(i % 7) / 8;
    assert_int_equal(cn_trainer_set_weights(bench.trainer, weights), CN_OK);
    assert_int_equal(cn_trainer_accumulate(bench.trainer, &bench.batch, &metrics), CN_OK);
    assert_int_equal(cn_trainer_apply(bench.trainer, metrics.weight), CN_OK);
    assert_int_equal(cn_trainer_get_weights(bench.trainer, weights), CN_OK);
    weights = realloc(weights, (bench.total + 1) * sizeof(*weights));
    weights[bench.total] = (float)metrics.loss;
    close_net(&bench);
    return weights;
}

// One step of both does the same to weights and statistics.
static void assert_same(const struct message *model, const struct message *expected)
{
    float *found = train(model), *wanted = train(expected);

    assert_memory_equal(found, wanted, (16 + 16 + 4 * 3 + 1) * sizeof(*found));
    free(found);
    free(wanted);
}

static void assert_refused(const struct message *model, cn_err wanted, const char *line)
{
    static struct bench bench;

    assert_int_equal(open_message(&bench, model, CN_LOSS_MSE, 1), wanted);
    if (!strstr(cn_diag_first(&bench.diag), line))
        fail_msg("'%s' lacks '%s'", cn_diag_first(&bench.diag), line);
    close_net(&bench);
}

static const struct part by_w = {{"h"}, {"MatMul x w -> p", "Tanh p -> h"}};
static const struct part by_v = {{"h"}, {"MatMul x v -> p", "Relu p -> h"}};

static void branches_may_define_the_same_names(void **state)
{
    static const char *const conditions[] = {"yes", "no"};
    const struct message then = branch_of(&by_w), otherwise = branch_of(&by_v);

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct message graph = start(), plain = start();

        put_if(&graph, conditions[i / 2], "a", &then, &otherwise);
        put_if(&graph, conditions[i % 2], "c", &then, &otherwise);
        put_line(&graph, "Mul a c -> h"); // free again behind them
        put_line(&graph, "Tanh h -> y");
        put_line(&plain, i / 2 ? "MatMul x v -> p" : "MatMul x w -> p");
        put_line(&plain, i / 2 ? "Relu p -> a" : "Tanh p -> a");
        put_line(&plain, i % 2 ? "MatMul x v -> q" : "MatMul x w -> q");
        put_line(&plain, i % 2 ? "Relu q -> c" : "Tanh q -> c");
        put_line(&plain, "Mul a c -> h");
        put_line(&plain, "Tanh h -> y");
        graph = finish(&graph);
        plain = finish(&plain);
        assert_same(&graph, &plain);
    }
}

static void an_if_may_give_what_its_branch_calls_the_same(void **state)
{
    static const struct part same = {{"y"}, {"MatMul x w -> h", "Tanh h -> y"}};
    struct message graph = start(), plain = start(), branch = branch_of(&same);

    (void)state;
    put_if(&graph, "yes", "y", &branch, &branch);
    put_line(&plain, "MatMul x w -> h");
    put_line(&plain, "Tanh h -> y");
    graph = finish(&graph);
    plain = finish(&plain);
    assert_same(&graph, &plain);
}

static void names_are_seen_in_branches_inside(void **state)
{
    static const struct part inner = {{"h"}, {"Tanh p -> h"}};
    const struct message then = branch_of(&inner), otherwise = branch_of(&by_v);
    struct message graph = start(), plain = start(), branch = {.size = 0}, output = {.size = 0};

    (void)state;
    put_line(&branch, "MatMul x w -> p");
    put_if(&branch, "yes", "h", &then, &otherwise); // only one of the two is taken
    put_text(&output, 1, "h");
    put_message(&branch, 12, &output);
    put_if(&graph, "no", "a", &otherwise, &branch);
    put_line(&graph, "Add a x -> y");
    put_line(&plain, "MatMul x w -> p");
    put_line(&plain, "Tanh p -> a");
    put_line(&plain, "Add a x -> y");
    graph = finish(&graph);
    plain = finish(&plain);
    assert_same(&graph, &plain);
}

static void a_name_of_a_branch_is_unknown_behind_it(void **state)
{
    const struct message then = branch_of(&by_w);
    struct message graph = start();

    (void)state;
    put_if(&graph, "yes", "a", &then, &then);
    put_line(&graph, "Add a p -> y");
    graph = finish(&graph);
    assert_refused(&graph, CN_ENOTSUP, "input 'p' is made by no earlier node");
}

static void what_a_branch_may_not_do_is_refused(void **state)
{
    static const struct {
        struct part part;
        cn_err err;
        const char *line;
    } cases[] = {
        {{{"h"}, {"MatMul x w -> x", "Tanh x -> h"}}, CN_EFORMAT, "'x' is defined twice"},
        {{{"h"}, {"Tanh x -> h", "Tanh h -> h"}}, CN_EFORMAT, "'h' is defined twice"},
        {{{"h"}, {"Add x h -> h"}}, CN_ENOTSUP, "input 'h' is made by no earlier node"},
        {{{"h"}, {"Add x y -> h"}}, CN_ENOTSUP, "input 'y' is made by no earlier node"},
        {{{"q"}, {"Tanh x -> h"}}, CN_ENOTSUP, "no node makes the output 'q'"},
        {{{"y"}, {"Tanh x -> h"}}, CN_ENOTSUP, "no node makes the output 'y'"},
        {{{"h", "h"}, {"Tanh x -> h"}}, CN_ENOTSUP, "2 outputs"},
        {{{NULL}, {"Tanh x -> h"}}, CN_ENOTSUP, "0 outputs"},
        {{{"h"}, {"weight u 4,4", "MatMul x u -> h"}}, CN_ENOTSUP, "has initializers"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct message branch = branch_of(&cases[i].part);
        struct message graph = start();

        put_if(&graph, "yes", "y", &branch, &branch);
        graph = finish(&graph);
        assert_refused(&graph, cases[i].err, cases[i].line);
    }
}

// "m" and "d" are statistics, the others are trained.
static void assert_statistics(const struct message *model)
{
    struct cn_onnx *onnx;
    struct cn_layout layout;
    struct cn_diag diag;

    cn_diag_init(&diag);
    assert_int_equal(cn_onnx_open(model->bytes, model->size, &diag, &onnx), CN_OK);
    assert_int_equal(cn_onnx_layout(onnx, &diag, &layout), CN_OK);
    assert_int_equal(layout.tensor_count, 6);
    for (size_t i = 0; i < layout.tensor_count; i++)
        assert_int_equal(layout.tensors[i].class, strchr("md", layout.tensors[i].name[0])
                                                      ? CN_TENSOR_STAT
                                                      : CN_TENSOR_PARAM);
    cn_layout_deinit(&layout);
    cn_onnx_close(onnx);
}

static void statistics_that_a_branch_reads_are_statistics(void **state)
{
    static const struct part parts[] = {
        {{"h"}, {"BatchNormalization x g b m d -> h n e training_mode=1"}},
        {{"h"},
         {"Identity m -> n", "Identity n -> k",
          "BatchNormalization x g b k d -> h i e "
          "training_mode=1"}},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct message graph = start(), plain = start(), branch = branch_of(&parts[i]);
        const struct message other = branch_of(&by_w);

        put_if(&graph, "no", "a", &other, &branch);
        put_line(&graph, "MatMul a w -> y");
        put_line(&plain, "BatchNormalization x g b m d -> h n e training_mode=1");
        put_line(&plain, "MatMul h w -> y");
        graph = finish(&graph);
        plain = finish(&plain);
        assert_same(&graph, &plain);
        assert_statistics(&graph);
    }
}

static struct message value_of(const char *name, const int64_t *dims, size_t rank)
{
    struct message value = {.size = 0}, type = {.size = 0}, tensor = {.size = 0};
    struct message shape = {.size = 0};

    for (size_t i = 0; i < rank; i++) {
        struct message dim = {.size = 0};

        put_int(&dim, 1, dims[i]);
        put_message(&shape, 1, &dim);
    }
    put_int(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &type);
    return value;
}

// All dimensions are fixed: only who reads the samples tells which one the batch is.
static void steps_that_a_branch_reads_come_first(void **state)
{
    static const struct part part = {{"h"}, {"RNN x i r -> _ h"}};
    static const int64_t steps_first[] = {3, SAMPLES, 4};
    const struct message branch = branch_of(&part), other = branch_of(&by_w);
    const struct message x = value_of("x", steps_first, 3);
    static struct bench bench;
    struct message graph = {.size = 0};

    (void)state;
    put_line(&graph, "weight i 1,2,4");
    put_line(&graph, "weight r 1,2,2");
    put_line(&graph, "numbers no 0");
    put_if(&graph, "no", "a", &other, &branch);
    put_line(&graph, "Transpose a -> y perm=1,0,2");
    put_message(&graph, 11, &x);
    put_value(&graph, 12, "y", NULL);
    graph = model_message(&graph);
    if (open_message(&bench, &graph, CN_LOSS_MSE, 1))
        fail_msg("%s", cn_diag_first(&bench.diag));
    close_net(&bench);
}

// The cell is made where a node in a branch reads it, where the branch gives it, and where the
// model does.
static void a_cell_that_only_a_branch_reads_is_made(void **state)
{
    static const struct part parts[] = {
        {{"h"}, {"Transpose c -> h perm=1,0,2"}},
        {{"c"}, {NULL}},
        {{NULL}, {NULL}},
    };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const struct message branch = branch_of(&parts[i]), other = branch_of(&by_w);
        static struct bench bench;
        struct message graph = {.size = 0};

        put_line(&graph, "weight i 1,8,4");
        put_line(&graph, "weight r 1,8,2");
        put_line(&graph, "numbers yes 1");
        put_line(&graph, "Transpose x -> t perm=1,0,2");
        put_line(&graph,
                 i < 2 ? "LSTM t i r -> _ _ c hidden_size=2" : "LSTM t i r -> _ _ y hidden_size=2");
        if (i < 2)
            put_if(&graph, "yes", i ? "a" : "y", &branch, &other);
        if (i == 1)
            put_line(&graph, "Transpose a -> y perm=1,0,2");
        graph = finish(&graph);
        if (open_message(&bench, &graph, CN_LOSS_MSE, 1))
            fail_msg("case %zu: %s", i, cn_diag_first(&bench.diag));
        close_net(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_may_define_the_same_names),
        cmocka_unit_test(an_if_may_give_what_its_branch_calls_the_same),
        cmocka_unit_test(names_are_seen_in_branches_inside),
        cmocka_unit_test(a_name_of_a_branch_is_unknown_behind_it),
        cmocka_unit_test(what_a_branch_may_not_do_is_refused),
        cmocka_unit_test(statistics_that_a_branch_reads_are_statistics),
        cmocka_unit_test(steps_that_a_branch_reads_come_first),
        cmocka_unit_test(a_cell_that_only_a_branch_reads_is_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
