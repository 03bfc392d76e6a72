// Values that are known when a model is read are computed then, within limits.
#include "tests/unit/gradient_check.h"

#define REFUSED "known before training takes too long"

// Takes 126 of 134 million steps of work: an exponential counts as 16.
#define WORK                                                                                       \
    "weight w 4,4", "MatMul x w -> h", "numbers n 7000000", "ConstantOfShape n -> a", "Exp a -> e"

static void assert_refused(const struct net *net, const char *line)
{
    static struct bench bench;

    assert_int_equal(open_net(&bench, net, CN_LOSS_MSE, 1), CN_ENOTSUP);
    if (!strstr(cn_diag_first(&bench.diag), line))
        fail_msg("'%s' lacks '%s'", cn_diag_first(&bench.diag), line);
    close_net(&bench);
}

static void what_takes_long_to_work_out_is_refused(void **state)
{
    static const struct net nets[] = {
        {"3,4", {WORK, "ReduceSum a -> s", "ReduceMax a -> t", "Add h s -> y"}},
        {"3,4", {WORK, "ReduceProd a -> s", "ReduceMean e -> t", "Add h t -> y"}},
        {"3,4", {WORK, "Cast a -> i to=7", "Gather h i -> y axis=1"}},
        {"3,4", {WORK, "Sin a -> s", "ReduceSum a -> t", "Add h t -> y"}},
        {"3,4", {WORK, "Pow a e -> p", "ReduceSum a -> t", "Add h t -> y"}},
        {"3,4", {WORK, "Mul a e -> p", "Tanh h -> y", "Add e e -> q"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++)
        assert_refused(&nets[i], REFUSED);
}

static void what_is_worked_out_within_bounds_trains(void **state)
{
    static const struct net net = {"3,4", {WORK, "ReduceSum a -> s keepdims=0", "Add h s -> y"}};
    static struct bench bench;

    (void)state;
    if (open_net(&bench, &net, CN_LOSS_MSE, 1))
        fail_msg("%s", cn_diag_first(&bench.diag));
    close_net(&bench);
}

static void a_cast_like_a_boolean_is_refused(void **state)
{
    static const struct net net = {
        "3,4", {"weight w 4,4", "MatMul x w -> h", "Less h h -> l", "CastLike h l -> y"}};

    (void)state;
    assert_refused(&net, "a cast to booleans");
}

static void a_pad_of_some_axes_is_refused(void **state)
{
    static const struct net net = {"2,3",
                                   {"weight w 3,3", "MatMul x w -> h", "numbers p 0,1,0,2",
                                    "numbers a 1,2", "Pad h p _ a -> y"}};
    static const struct net few = {
        "2,3", {"weight w 3,3", "MatMul x w -> h", "numbers p 0,1,0,2", "Pad h p -> y"}};

    (void)state;
    assert_refused(&net, "axes are not supported");
    assert_refused(&few, "4 pads for rank 3");
}

static void a_list_of_floats_is_only_a_constant_s(void **state)
{
    static const struct net net = {
        "3,4", {"weight w 4,4", "MatMul x w -> h", "Relu h -> y value_floats=1,2"}};

    (void)state;
    assert_refused(&net, "the op has no attribute 'value_floats'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_takes_long_to_work_out_is_refused),
        cmocka_unit_test(a_cast_like_a_boolean_is_refused),
        cmocka_unit_test(a_pad_of_some_axes_is_refused),
        cmocka_unit_test(a_list_of_floats_is_only_a_constant_s),
        cmocka_unit_test(what_is_worked_out_within_bounds_trains),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
