// Cuts of training graphs: where they are legal, which values cross them, and what each part has.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/trainer/trainer_parts.h"
#include "tests/unit/net.h"

// A residual block between two layers: r reads h again.
static const struct net residual = {
    "4",
    {"weight a 4,6", "Gemm x a -> h", "weight b 6,6", "Gemm h b -> i", "Tanh i -> j",
     "weight c 6,6", "Gemm j c -> k", "Add k h -> r", "weight d 6,3", "Gemm r d -> y"}};

struct cut_scene {
    struct message model;
    struct cn_onnx *onnx;
    struct cn_diag diag;
    struct cn_graph graph;
    struct cn_layout layout;
};

static void open_scene(struct cut_scene *scene, const struct net *net)
{
    static const struct cn_rules none;

    cn_diag_init(&scene->diag);
    scene->model = net_message(net);
    assert_int_equal(
        cn_onnx_open(scene->model.bytes, scene->model.size, &scene->diag, &scene->onnx), CN_OK);
    if (cn_trainer_import(scene->onnx, CN_LOSS_MSE, &none, &scene->diag, &scene->layout,
                          &scene->graph))
        fail_msg("%s", cn_diag_first(&scene->diag));
}

static void close_scene(struct cut_scene *scene)
{
    cn_graph_deinit(&scene->graph);
    cn_layout_deinit(&scene->layout);
    cn_onnx_close(scene->onnx);
}

static struct cn_cut read_cut(struct cut_scene *scene, const char *names)
{
    struct cn_cut cut;

    if (cn_cut_read(&scene->graph, &scene->layout, names, &scene->diag, &cut))
        fail_msg("%s", cn_diag_first(&scene->diag));
    return cut;
}

static void make_part(struct cut_scene *scene, const struct cn_cut *cut, uint32_t index,
                      struct cn_cut_part *part)
{
    assert_int_equal(cn_cut_part_make(&scene->graph, &scene->layout, cut, index, part), CN_OK);
}

static void backward_nodes_have_the_forward_node_that_they_were_made_for(void **state)
{
    static struct cut_scene scene;

    (void)state;
    open_scene(&scene, &residual);
    assert_int_equal(scene.graph.loss, 6); // six nodes come before it
    for (uint32_t i = 0; i <= scene.graph.loss; i++)
        assert_int_equal(scene.graph.nodes[i].origin, i);
    for (size_t i = scene.graph.loss + 1; i < scene.graph.node_count; i++) {
        assert_true(scene.graph.nodes[i].origin < scene.graph.loss);
        assert_true(scene.graph.nodes[i].origin <= scene.graph.nodes[i - 1].origin);
    }
    close_scene(&scene);
}

static const struct cn_cut_place *place_named(const struct cn_cut_place *places, size_t count,
                                              const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (places[i].name && places[i].name_size == strlen(name) &&
            !memcmp(places[i].name, name, places[i].name_size))
            return &places[i];
    fail_msg("no place '%s'", name);
    return NULL;
}

static void a_place_says_what_a_sample_sends_across_it(void **state)
{
    static struct cut_scene scene;
    struct cn_cut_place *places;
    const struct cn_cut_place *at;
    size_t count;

    (void)state;
    open_scene(&scene, &residual);
    assert_int_equal(cn_cut_places(&scene.graph, &places, &count), CN_OK);
    assert_int_equal(count, scene.graph.loss);
    at = place_named(places, count, "h");
    assert_int_equal(at->values, 1);
    assert_int_equal(at->words, 6);
    assert_int_equal(at->gradient_words, 6);
    at = place_named(places, count, "j"); // j, and h past it
    assert_int_equal(at->values, 2);
    assert_int_equal(at->words, 12);
    assert_int_equal(at->gradient_words, 12);
    at = place_named(places, count, "y");
    assert_int_equal(at->nodes, scene.graph.loss);
    assert_int_equal(at->words, 3);
    free(places);
    close_scene(&scene);
}

static void a_value_that_skips_a_part_is_handed_on(void **state)
{
    static struct cut_scene scene;
    struct cn_cut_part part;
    struct cn_cut cut;

    (void)state;
    open_scene(&scene, &residual);
    cut = read_cut(&scene, "h j k");
    make_part(&scene, &cut, 2, &part); // Gemm j c -> k
    assert_int_equal(part.graph.loss, 0);
    assert_int_equal(part.messages[CN_BOUNDARY_INPUTS].count, 2);  // j, and h for the next part
    assert_int_equal(part.messages[CN_BOUNDARY_OUTPUTS].count, 2); // k and h
    // The gradients of k and of h are still one value; below the sum with j's way they are two.
    assert_int_equal(part.messages[CN_BOUNDARY_OUTPUT_GRADIENTS].words, 6);
    assert_int_equal(part.messages[CN_BOUNDARY_INPUT_GRADIENTS].words, 12);
    assert_int_equal(part.layout.tensor_count, 1);
    assert_string_equal(part.layout.tensors[0].name, "c");
    assert_int_equal(part.layout.tensors[0].offset, 0);
    assert_int_equal(part.layout.total, 36);
    cn_cut_part_deinit(&part);
    close_scene(&scene);
}

static void neighbours_list_the_same_message(void **state)
{
    static struct cut_scene scene;
    struct cn_cut_part parts[CN_CUT_PARTS_MAX];
    struct cn_cut cut;
    size_t forward = 0, all = 0;

    (void)state;
    open_scene(&scene, &residual);
    cut = read_cut(&scene, "h i j k y");
    for (uint32_t p = 0; p < cut.parts; p++) {
        make_part(&scene, &cut, p, &parts[p]);
        forward += parts[p].graph.loss + 1;
        all += parts[p].graph.node_count;
    }
    assert_int_equal(forward, scene.graph.loss + 1);
    assert_int_equal(all, scene.graph.node_count); // nothing is tied, so no node is added
    for (uint32_t p = 0; p + 1 < cut.parts; p++)
        for (int back = 0; back < 2; back++) {
            const struct cn_cut_message *mine =
                &parts[p].messages[back ? CN_BOUNDARY_OUTPUT_GRADIENTS : CN_BOUNDARY_OUTPUTS];
            const struct cn_cut_message *next =
                &parts[p + 1].messages[back ? CN_BOUNDARY_INPUT_GRADIENTS : CN_BOUNDARY_INPUTS];

            assert_int_equal(mine->count, next->count);
            assert_int_equal(mine->words, next->words);
            for (size_t i = 0; i < mine->count; i++)
                assert_int_equal(parts[p].graph.values[mine->values[i]].words,
                                 parts[p + 1].graph.values[next->values[i]].words);
        }
    for (uint32_t p = 0; p < cut.parts; p++)
        cn_cut_part_deinit(&parts[p]);
    close_scene(&scene);
}

static void a_tied_tensor_is_held_by_all_that_read_it(void **state)
{
    static const struct net tied = {"4",
                                    {"weight w 4,4", "weight unread 2", "Gemm x w -> h",
                                     "Tanh h -> i", "weight v 4,4", "Gemm i v -> j", "Tanh j -> k",
                                     "Gemm k w -> y"}};
    static struct cut_scene scene;
    struct cn_cut_part parts[3];
    struct cn_cut cut;

    (void)state;
    open_scene(&scene, &tied);
    cut = read_cut(&scene, "i k");
    for (uint32_t p = 0; p < 3; p++)
        make_part(&scene, &cut, p, &parts[p]);
    assert_int_equal(parts[0].layout.tensor_count, 2); // w, and what no node reads
    assert_int_equal(parts[0].holders[0], 1 | 4);
    assert_int_equal(parts[0].holders[1], 1);
    assert_int_equal(parts[1].layout.tensor_count, 1);
    assert_int_equal(parts[1].tensors[0], 2);
    assert_int_equal(parts[2].layout.tensor_count, 1);
    assert_int_equal(parts[2].tensors[0], 0);
    for (uint32_t p = 0; p < 3; p += 2) { // both begin the gradient of w in a step
        size_t steps = 0;

        for (size_t i = parts[p].graph.loss + 1; i < parts[p].graph.node_count; i++)
            steps += parts[p].graph.nodes[i].call.write == CN_WRITE_STEP;
        assert_int_equal(steps, 1);
    }
    for (uint32_t p = 0; p < 3; p++)
        cn_cut_part_deinit(&parts[p]);
    close_scene(&scene);
}

static void a_part_reads_the_inputs_of_its_nodes_only(void **state)
{
    static struct cut_scene scene;
    struct cn_cut_part part;
    struct cn_cut cut;

    (void)state;
    open_scene(&scene, &residual);
    cut = read_cut(&scene, "j");
    make_part(&scene, &cut, 0, &part);
    assert_int_equal(part.graph.unread_inputs, 0);
    assert_int_equal(part.graph.labels, CN_GRAPH_NONE);
    cn_cut_part_deinit(&part);
    make_part(&scene, &cut, 1, &part);
    assert_int_equal(part.graph.unread_inputs, 1);
    assert_int_not_equal(part.graph.labels, CN_GRAPH_NONE);
    cn_cut_part_deinit(&part);
    close_scene(&scene);
}

// The third layer reads the sample again.
static const struct net echo = {"4",
                                {"weight a 4,4", "Gemm x a -> h", "weight b 4,4", "Gemm h b -> i",
                                 "Add i x -> r", "weight c 4,3", "Gemm r c -> y"}};

static void inputs_have_the_parts_that_read_them(void **state)
{
    static struct cut_scene scene;
    uint32_t readers[CN_GRAPH_INPUT_MAX];
    struct cn_cut cut;

    (void)state;
    open_scene(&scene, &residual);
    cut = read_cut(&scene, "h j");
    cn_cut_inputs(&scene.graph, &cut, readers);
    assert_int_equal(readers[0], 1);
    assert_int_equal(readers[1], 0);
    close_scene(&scene);
    open_scene(&scene, &echo);
    cut = read_cut(&scene, "h i");
    cn_cut_inputs(&scene.graph, &cut, readers);
    assert_int_equal(readers[0], 1 << 0 | 1 << 2);
    close_scene(&scene);
}

static void one_part_is_the_whole_graph(void **state)
{
    static struct cut_scene scene;
    const struct cn_cut whole = {.parts = 1};
    struct cn_cut_part part;

    (void)state;
    open_scene(&scene, &residual);
    assert_int_equal(cn_cut_check(&scene.graph, &whole, NULL), CN_OK);
    make_part(&scene, &whole, 0, &part);
    assert_int_equal(part.graph.node_count, scene.graph.node_count);
    assert_int_equal(part.graph.loss, scene.graph.loss);
    assert_int_equal(part.layout.total, scene.layout.total);
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++)
        assert_int_equal(part.messages[which].count, 0);
    cn_cut_part_deinit(&part);
    close_scene(&scene);
}

static void expect_refusal(struct cut_scene *scene, const char *names, const char *text)
{
    struct cn_cut cut;

    cn_diag_init(&scene->diag);
    assert_int_equal(cn_cut_read(&scene->graph, &scene->layout, names, &scene->diag, &cut),
                     CN_EINVAL);
    if (!strstr(cn_diag_first(&scene->diag), text))
        fail_msg("'%s': '%s' is not in '%s'", names, text, cn_diag_first(&scene->diag));
}

static void names_that_are_no_cut_are_refused(void **state)
{
    static struct cut_scene scene;

    (void)state;
    open_scene(&scene, &residual);
    expect_refusal(&scene, "nothing", "'nothing': the model has neither a tensor");
    expect_refusal(&scene, "x", "'x': the model has neither a tensor");
    expect_refusal(&scene, "w", "'w': the model has neither a tensor");
    expect_refusal(&scene, "j h", "'h' comes before 'j'");
    expect_refusal(&scene, "j j", "'j' is at the same place as 'j'");
    close_scene(&scene);
}

static void a_part_begins_with_the_first_node_that_reads_a_tensor(void **state)
{
    static struct cut_scene scene;
    struct cn_cut by_tensor, by_value;

    (void)state;
    open_scene(&scene, &residual);
    by_tensor = read_cut(&scene, "b d");
    by_value = read_cut(&scene, "h r");
    assert_int_equal(by_tensor.parts, 3);
    assert_memory_equal(&by_tensor, &by_value, sizeof(by_value));
    expect_refusal(&scene, "*", "the cut '*': the first node of the model reads such a tensor");
    close_scene(&scene);
}

// Eight layers of the same size, except the narrow third one, whose values are cheap to send.
static const struct net narrow = {"8",
                                  {"weight a 8,8", "Gemm x a -> h", "weight b 8,8", "Gemm h b -> i",
                                   "weight c 8,7", "Gemm i c -> j", "weight d 7,8", "Gemm j d -> k",
                                   "weight e 8,8", "Gemm k e -> l", "weight f 8,8", "Gemm l f -> m",
                                   "weight g 8,8", "Gemm m g -> n", "weight o 8,8",
                                   "Gemm n o -> y"}};

static void the_cut_of_no_name_divides_the_work_equally(void **state)
{
    static struct cut_scene scene;
    struct cn_cut cut;
    char text[512];

    (void)state;
    open_scene(&scene, &narrow);
    assert_int_equal(cn_trainer_choose_cut(&scene.graph, 4, &scene.diag, &cut), CN_OK);
    assert_int_equal(cut.parts, 4);
    for (uint32_t p = 0; p < 3; p++)
        assert_int_equal(cut.places[p], 2 * (p + 1));
    assert_int_equal(cn_trainer_choose_cut(&scene.graph, 2, &scene.diag, &cut), CN_OK);
    assert_int_equal(cut.places[0], 4);
    assert_int_equal(cn_trainer_cut_text(&scene.graph, &cut, text, sizeof(text)), CN_OK);
    assert_non_null(strstr(text, "'k' (8 + 8 values of a sample)"));
    assert_int_equal(cn_trainer_choose_cut(&scene.graph, 16, &scene.diag, &cut), CN_EINVAL);
    assert_non_null(strstr(cn_diag_first(&scene.diag), "wanted 16"));
    close_scene(&scene);
}

// The same layer four times; before and behind its Tanh the same travels.
static const struct net even = {"8",
                                {"weight a 8,8", "Gemm x a -> h", "Tanh h -> i", "weight b 8,8",
                                 "Gemm i b -> j", "Tanh j -> k", "weight c 8,8", "Gemm k c -> l",
                                 "Tanh l -> m", "weight d 8,8", "Gemm m d -> n", "Tanh n -> y"}};

static void of_cuts_that_send_the_same_the_most_even_one_is_chosen(void **state)
{
    static struct cut_scene scene;
    struct cn_cut cut;

    (void)state;
    open_scene(&scene, &even);
    assert_int_equal(cn_trainer_choose_cut(&scene.graph, 2, &scene.diag, &cut), CN_OK);
    assert_int_equal(cut.places[0], 4);
    close_scene(&scene);
}

static void expect_place_refused(struct cut_scene *scene, const struct cn_cut *cut,
                                 const char *text)
{
    cn_diag_init(&scene->diag);
    assert_int_equal(cn_cut_check(&scene->graph, cut, &scene->diag), CN_EINVAL);
    if (!strstr(cn_diag_first(&scene->diag), text))
        fail_msg("'%s' is not in '%s'", text, cn_diag_first(&scene->diag));
}

static void parts_without_nodes_are_refused(void **state)
{
    static struct cut_scene scene;

    (void)state;
    open_scene(&scene, &residual);
    expect_place_refused(&scene, &(struct cn_cut){.parts = 2, .places = {0}},
                         "part 1 has no nodes");
    expect_place_refused(&scene, &(struct cn_cut){.parts = 3, .places = {2, 2}},
                         "part 2 has no nodes");
    expect_place_refused(&scene, &(struct cn_cut){.parts = 2, .places = {7}},
                         "part 2 has no nodes: the cut before it is after 7 of 7 nodes");
    expect_place_refused(&scene, &(struct cn_cut){.parts = 0}, "a cut into 0 parts");
    expect_place_refused(&scene, &(struct cn_cut){.parts = 17},
                         "a cut into 17 parts; wanted 1 to 16");
    close_scene(&scene);
}

static void a_cut_through_a_value_of_all_samples_is_refused(void **state)
{
    static const struct net shared = {"4",
                                      {"weight w 3,4", "Transpose w -> t", "Mul t t -> u",
                                       "weight a 4,4", "Gemm x a -> h", "Tanh h -> i",
                                       "MatMul i u -> y"}};
    static struct cut_scene scene;
    struct cn_cut_place *places;
    size_t count;

    (void)state;
    open_scene(&scene, &shared);
    expect_refusal(&scene, "i", "'u': all samples share it");
    assert_int_equal(cn_cut_places(&scene.graph, &places, &count), CN_OK);
    assert_int_equal(count, 1); // before the loss
    free(places);
    close_scene(&scene);
}

static void a_cut_inside_of_a_recurrent_layer_is_refused(void **state)
{
    static const struct net recurrent = {
        "3,4",
        {"weight a 4,4", "MatMul x a -> h", "Transpose h -> t perm=1,0,2", "weight w 1,8,4",
         "weight r 1,8,2", "LSTM t w r -> o hidden_size=2", "Transpose o -> y perm=2,0,1,3"}};
    static struct cut_scene scene;
    size_t refused = 0;

    (void)state;
    open_scene(&scene, &recurrent);
    for (size_t i = 1; i <= scene.graph.loss; i++) {
        const struct cn_cut cut = {.parts = 2, .places = {i}};

        cn_diag_init(&scene.diag);
        if (cn_cut_check(&scene.graph, &cut, &scene.diag) == CN_EINVAL)
            refused += strstr(cn_diag_first(&scene.diag), "inside of a recurrent layer") != NULL;
    }
    assert_true(refused >= 1);
    read_cut(&scene, "h");
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backward_nodes_have_the_forward_node_that_they_were_made_for),
        cmocka_unit_test(a_place_says_what_a_sample_sends_across_it),
        cmocka_unit_test(a_value_that_skips_a_part_is_handed_on),
        cmocka_unit_test(neighbours_list_the_same_message),
        cmocka_unit_test(a_tied_tensor_is_held_by_all_that_read_it),
        cmocka_unit_test(a_part_reads_the_inputs_of_its_nodes_only),
        cmocka_unit_test(inputs_have_the_parts_that_read_them),
        cmocka_unit_test(one_part_is_the_whole_graph),
        cmocka_unit_test(names_that_are_no_cut_are_refused),
        cmocka_unit_test(a_part_begins_with_the_first_node_that_reads_a_tensor),
        cmocka_unit_test(the_cut_of_no_name_divides_the_work_equally),
        cmocka_unit_test(of_cuts_that_send_the_same_the_most_even_one_is_chosen),
        cmocka_unit_test(parts_without_nodes_are_refused),
        cmocka_unit_test(a_cut_through_a_value_of_all_samples_is_refused),
        cmocka_unit_test(a_cut_inside_of_a_recurrent_layer_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
