// What an exporter says of its values: which are parameters, and which were folded; branches of
// nodes.
#include <math.h>

#include "tests/unit/onnx_world.h"

#define KIND "pkg.torch.export.graph_signature.InputSpec.kind"

#define FOLDED_FROM "pkg.onnxscript.optimizer.folded_from"

#define SIGNATURE "pkg.torch.export.ExportedProgram.graph_signature"

static void put_entry(struct message *message, uint32_t field, const char *key, const char *text)
{
    struct message entry = {.size = 0};

    put_text(&entry, 1, key);
    put_text(&entry, 2, text);
    put_message(message, field, &entry);
}

// A float32 initializer of that many elements, of which the file may say something under a key.
static void put_told(struct message *graph, const char *name, int64_t count, float number,
                     const char *key, const char *text)
{
    struct message tensor = tensor_message(name, 1, count), value = {.size = 0};
    float numbers[4] = {number, number, number, number};

    put_bytes(&tensor, 9, numbers, (size_t)count * sizeof(float));
    put_message(graph, 5, &tensor);
    if (!text)
        return;
    put_text(&value, 1, name);
    put_entry(&value, 4, key, text);
    put_message(graph, 13, &value);
}

static void put_role(struct message *graph, const char *name, int64_t count, float number,
                     const char *role)
{
    put_told(graph, name, count, number, KIND, role);
}

// The node, or an If of which it is a branch.
static void put_perhaps_in_if(struct message *graph, const struct message *node, bool branches)
{
    struct message branch = {.size = 0}, attribute = {.size = 0}, condition = {.size = 0};

    if (!branches) {
        put_message(graph, 1, node);
        return;
    }
    put_message(&branch, 1, node);
    put_text(&attribute, 1, "else_branch");
    put_message(&attribute, 6, &branch);
    put_text(&condition, 4, "If");
    put_message(&condition, 5, &attribute);
    put_message(graph, 1, &condition);
}

static void put_all_roles(struct message *graph, bool said, bool branches)
{
    struct message lstm = {.size = 0};
    static const char *const inputs[] = {"x", "w", "r", "", "", "state", "state"};

    put_text(&lstm, 4, "LSTM");
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
        put_text(&lstm, 1, inputs[i]);
    put_perhaps_in_if(graph, &lstm, branches);
    put_role(graph, "temperature", 1, 0.5f, said ? "PARAMETER" : NULL);
    put_role(graph, "places", 4, 0.5f, said ? "BUFFER" : NULL);
    put_role(graph, "turned", 4, 0.5f, NULL);
    put_role(graph, "number", 1, 0.5f, NULL);
    put_role(graph, "mask", 4, -1e9f, NULL);
    put_role(graph, "infinite", 4, -INFINITY, NULL);
    put_role(graph, "state", 4, 0, NULL);
}

static void what_an_exporter_says_is_no_parameter_is_a_constant(void **state)
{
    struct fixture *fixture = *state;

    for (int branches = 0; branches < 2; branches++) {
        struct message graph = {.size = 0};

        put_all_roles(&graph, true, branches);
        assert_int_equal(open_graph(fixture, &graph), CN_OK);
        assert_int_equal(cn_onnx_layout(fixture->onnx, &fixture->diag, &fixture->layout), CN_OK);
        assert_int_equal(fixture->layout.tensor_count, 2);
        assert_string_equal(fixture->layout.tensors[0].name, "temperature");
        assert_string_equal(fixture->layout.tensors[1].name, "turned");
    }
}

static void a_file_that_says_nothing_has_no_constants(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0};

    put_all_roles(&graph, false, false);
    assert_int_equal(open_graph(fixture, &graph), CN_OK);
    assert_int_equal(cn_onnx_layout(fixture->onnx, &fixture->diag, &fixture->layout), CN_OK);
    assert_int_equal(fixture->layout.tensor_count, 7);
}

// An If in the branch of an If, and so on.
static struct message nested_if(size_t depth)
{
    struct message node = {.size = 0}, attribute = {.size = 0}, branch = {.size = 0};

    put_text(&node, 4, "If");
    put_text(&node, 1, "x");
    put_text(&node, 2, "y");
    if (!depth)
        return node;
    node = nested_if(depth - 1);
    put_message(&branch, 1, &node);
    put_text(&attribute, 1, "then_branch");
    put_message(&attribute, 6, &branch);
    node = (struct message){.size = 0};
    put_text(&node, 4, "If");
    put_message(&node, 5, &attribute);
    return node;
}

static void branches_are_read_to_a_depth(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0}, node = nested_if(8);
    const struct cn_onnx_branch *branch;

    put_role(&graph, "w", 4, 0.5f, NULL);
    put_message(&graph, 1, &node);
    assert_int_equal(open_graph(fixture, &graph), CN_OK);
    branch = fixture->onnx->nodes[0].attributes[0].branch;
    for (size_t i = 1; i < 8; i++)
        branch = branch->nodes[0].attributes[0].branch;
    assert_int_equal(branch->node_count, 1);
    assert_true(cn_text_equal(branch->nodes[0].outputs[0], "y"));
    graph.size = 0;
    node = nested_if(9);
    put_message(&graph, 1, &node);
    assert_int_equal(open_graph(fixture, &graph), CN_EFORMAT);
    assert_non_null(strstr(fixture->diag.lines[0], "in too many others"));
}

// What an optimizer worked out is a weight where a parameter of the module went into it.
static void put_folded(struct message *graph, const char *signature)
{
    put_role(graph, "weight", 4, 0.5f, "PARAMETER");
    put_told(graph, "turned", 4, 0.5f, FOLDED_FROM, "['val_1', 'body.scale']");
    put_told(graph, "single", 1, 0.5f, FOLDED_FROM, "['temperature']");
    put_told(graph, "ones", 4, 1, FOLDED_FROM, "['val_1', 'val_2']");
    put_told(graph, "turns", 4, 0.5f, FOLDED_FROM, "['places', 'body.scal']");
    if (signature)
        put_entry(graph, 16, SIGNATURE, signature);
}

static void what_was_folded_from_no_parameter_is_a_constant(void **state)
{
    struct fixture *fixture = *state;
    struct message graph = {.size = 0};

    put_folded(&graph, "\n# inputs\np_weight: PARAMETER target='weight'\n"
                       "p_body_scale: PARAMETER target='body.scale'\n"
                       "p_temperature: PARAMETER target='temperature'\n"
                       "b_places: BUFFER target='places' persistent=True\nx: USER_INPUT\n");
    assert_int_equal(open_graph(fixture, &graph), CN_OK);
    assert_int_equal(cn_onnx_layout(fixture->onnx, &fixture->diag, &fixture->layout), CN_OK);
    assert_int_equal(fixture->layout.tensor_count, 3);
    assert_string_equal(fixture->layout.tensors[0].name, "weight");
    assert_string_equal(fixture->layout.tensors[1].name, "turned");
    assert_string_equal(fixture->layout.tensors[2].name, "single");
}

static void without_a_signature_what_was_folded_is_a_weight(void **state)
{
    static const char *const unusable[] = {NULL, "", "p_weight: PARAMETER target='weight'",
                                           "PARAMETER\n:\n: PARAMETER target='\n'\n"};

    for (size_t i = 0; i < sizeof(unusable) / sizeof(unusable[0]); i++) {
        struct fixture *fixture = *state;
        struct message graph = {.size = 0};

        put_folded(&graph, unusable[i]);
        assert_int_equal(open_graph(fixture, &graph), CN_OK);
        assert_int_equal(cn_onnx_layout(fixture->onnx, &fixture->diag, &fixture->layout), CN_OK);
        assert_int_equal(fixture->layout.tensor_count, 4); // "single" is a number
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_an_exporter_says_is_no_parameter_is_a_constant),
        TEST(a_file_that_says_nothing_has_no_constants),
        TEST(branches_are_read_to_a_depth),
        TEST(what_was_folded_from_no_parameter_is_a_constant),
        TEST(without_a_signature_what_was_folded_is_a_weight),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
