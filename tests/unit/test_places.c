// Places for a cut: the memory of a chain's largest part follows from their sums.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/cut_search.h"

#define BATCH 16
#define EVERY 4 // micro-batches a step for each part

struct scene {
    struct cn_onnx_file file;
    struct cn_onnx *onnx;
    struct cn_graph graph;
    struct cn_layout layout;
};

static const struct cn_rules adam = {.optimizer = CN_OPTIMIZER_ADAM};

static void open_scene(struct scene *scene, const char *name)
{
    struct cn_diag diag;
    char path[512];

    cn_diag_init(&diag);
    snprintf(path, sizeof(path), "%s/%s.onnx", CAIRN_TEST_DATA, name);
    assert_int_equal(cn_onnx_file_open(path, NULL, &scene->file), CN_OK);
    assert_int_equal(cn_onnx_open(scene->file.data, scene->file.size, &diag, &scene->onnx), CN_OK);
    assert_int_equal(cn_trainer_import(scene->onnx, CN_LOSS_CROSS_ENTROPY, &adam, &diag,
                                       &scene->layout, &scene->graph),
                     CN_OK);
}

static void close_scene(struct scene *scene)
{
    cn_graph_deinit(&scene->graph);
    cn_layout_deinit(&scene->layout);
    cn_onnx_close(scene->onnx);
    cn_onnx_file_close(&scene->file);
}

// Returns the bytes of a trainer; cut is NULL for the whole model.
static uint64_t memory_of(const struct scene *scene, const struct cn_cut *cut, uint32_t part)
{
    uint32_t micro = cut ? EVERY * cut->parts : 0;
    uint32_t slots = cut ? cn_pipeline_in_flight(cut->parts, micro, part) : 0;
    struct cn_trainer_config config = {
        .compute = &cn_compute_cpu,
        .threads = 1,
        .batch = BATCH,
        .rules = &adam,
        .cut = cut,
        .part = part,
        .slots = slots,
        .messages = {cut && part ? cn_pipeline_in_flight(cut->parts, micro, part - 1) : 0, slots,
                     slots, slots + 1},
    };
    struct cn_trainer *trainer;
    struct cn_diag diag;
    uint64_t bytes;

    cn_diag_init(&diag);
    if (cn_trainer_open(scene->onnx, &config, &diag, &trainer))
        fail_msg("%s", cn_diag_first(&diag));
    bytes = cn_trainer_memory(trainer);
    cn_trainer_close(trainer);
    return bytes;
}

// Fills in the facts that follow from the places, as a session does.
static void fill_in(const struct cn_trainer_place *places, size_t count, uint64_t whole,
                    struct cn_layout_facts *facts)
{
    const struct cn_layout_place *all = &facts->places[count];

    *facts = (struct cn_layout_facts){.place_count = (uint32_t)count};
    for (size_t i = 0; i <= count; i++)
        facts->places[i] = (struct cn_layout_place){
            .nodes = places[i].nodes,
            .forward = places[i].words * BATCH * sizeof(float),
            .backward = places[i].gradient_words * BATCH * sizeof(float),
            .state = (2 * places[i].sums.parameters + 2 * places[i].sums.trained) * sizeof(float),
            .saved = places[i].sums.kept * BATCH * sizeof(float)};
    facts->rest = whole > all->state + all->saved ? whole - all->state - all->saved : 0;
}

static uint32_t index_of(const struct cn_layout_facts *facts, size_t nodes)
{
    uint32_t i = 0;

    while (i <= facts->place_count && facts->places[i].nodes != nodes)
        i++;
    assert_true(i <= facts->place_count);
    return i;
}

static void check_parts(const char *name, const struct scene *scene,
                        const struct cn_layout_facts *facts, uint32_t parts)
{
    uint64_t largest = 0;
    double of_largest = 0;
    struct cn_diag diag;
    struct cn_cut cut;

    cn_diag_init(&diag);
    assert_int_equal(cn_trainer_choose_cut(&scene->graph, parts, &diag, &cut), CN_OK);
    for (uint32_t p = 0; p < parts; p++) {
        uint32_t begin = p ? index_of(facts, cut.places[p - 1]) : UINT32_MAX;
        uint32_t end = p + 1 < parts ? index_of(facts, cut.places[p]) : facts->place_count;
        uint64_t found = memory_of(scene, &cut, p);
        double ratio =
            (double)cn_cut_memory(facts, parts, EVERY * parts, p, begin, end) / (double)found;

        if (found > largest) {
            largest = found;
            of_largest = ratio;
        }
    }
    if (of_largest < 0.85 || of_largest > 1.25)
        fail_msg("%s in %u parts: %.2f of the largest part's bytes", name, parts, of_largest);
}

static void the_memory_of_a_part_follows_from_the_sums(void **state)
{
    static const char *const names[] = {
        "digits/digits-cnn", "digits/digits-mlp", "digits/digits-norm", "text/char-gpt",
        "models/lenet",      "models/batch-norm", "models/lstm",        "models/residual"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct cn_trainer_place *places;
        struct cn_layout_facts facts;
        struct scene scene;
        uint64_t whole;
        size_t count;

        open_scene(&scene, names[i]);
        whole = memory_of(&scene, NULL, 0);
        assert_int_equal(
            cn_trainer_list_places(&scene.graph, &scene.layout, CN_LAYOUT_PLACES, &places, &count),
            CN_OK);
        fill_in(places, count, whole, &facts);
        check_parts(names[i], &scene, &facts, 2);
        check_parts(names[i], &scene, &facts, 3);
        free(places);
        close_scene(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_memory_of_a_part_follows_from_the_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
