// session_world.c - a board that is alone and trains rounds of few samples.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/group/solo.h"
#include "runtime/port/crypto.h"
#include "runtime/update/version.h"
#include "tests/unit/session_world.h"

#define TORCH CAIRN_TEST_DATA "/torch/batch-norm-1d-"

int session_world_set_up(void **state)
{
    struct session_world *world = calloc(1, sizeof(*world));
    struct cn_data_paths *data = &world->settings.data[0];

    *state = world;
    world->directory = strdup("/tmp/cairn-session-XXXXXX");
    if (!world->directory || !mkdtemp(world->directory))
        return -1;
    snprintf(world->settings.state, CN_PATH_SIZE, "%s/state", world->directory);
    world->settings.threads = 1;
    world->settings.data_count = 1;
    snprintf(data->name, sizeof(data->name), "samples");
    snprintf(data->inputs, CN_PATH_SIZE, TORCH "inputs.npy");
    snprintf(data->labels, CN_PATH_SIZE, TORCH "labels.npy");
    world->job = (struct cn_job){
        .seed = 1,
        .data_set = "samples",
        .scale = 1,
        .batch = 16,
        .accumulate = 1,
        .local_steps = 3,
        .learning_rate = 0.05,
        .momentum = 0.9,
        .up = {.mode = CN_UPDATE_Q8},
        .stale_rounds = 3,
        .stale_decay = 0.9,
    };
    return cn_platform_map(CAIRN_TEST_DATA "/models/batch-norm-1d.onnx", 1 << 20, &world->model);
}

int session_world_tear_down(void **state)
{
    struct session_world *world = *state;
    char command[128];

    cn_session_close(world->session);
    world->store->ops->close(world->store);
    cn_collective_solo.close(world->alone);
    cn_platform_unmap(&world->model);
    snprintf(command, sizeof(command), "rm -rf %s", world->directory);
    free(world->directory);
    free(world);
    return system(command); // NOLINT(cert-env33-c): a directory of this test
}

void world_reopen(struct session_world *world)
{
    struct cn_session_config config = {
        .settings = &world->settings,
        .job = &world->job,
        .compute = &cn_compute_cpu,
        .model = world->model.data,
        .model_size = world->model.size,
        .run = world->run ? world->run : 9,
        .group = "lab",
        .stop_fd = -1,
        .given_up = &world->given_up,
    };
    const struct cn_collective_config alone = {.view = {.size = 1}};
    static struct cn_diag diag;
    uint32_t lost;

    if (!world->store)
        assert_int_equal(cn_platform_open_store(world->settings.state, &world->store), CN_OK);
    config.store = world->store;
    cn_diag_init(&diag);
    if (cn_session_open(&config, &diag, &world->session))
        fail_msg("%s", cn_diag_first(&diag));
    if (!world->alone)
        assert_int_equal(cn_collective_solo.open(&alone, &world->alone, &lost), CN_OK);
}

void world_install(struct session_world *world, uint32_t number)
{
    struct cn_session *session = world->session;
    struct cn_version_header header = {.count = session->layout->total};
    size_t size = CN_VERSION_HEADER_SIZE + header.count * sizeof(float);
    float *values = calloc(header.count, sizeof(*values));
    uint8_t *bytes = malloc(size);
    struct cn_session_version version = {.number = number, .bytes = bytes, .size = size};

    assert_int_equal(cn_onnx_weights(session->onnx, session->layout, values), CN_OK);
    cn_version_put_header(&header, bytes);
    memcpy(bytes + CN_VERSION_HEADER_SIZE, values, header.count * sizeof(float));
    cn_crypto_digest(bytes, size, version.digest);
    assert_int_equal(cn_session_install(session, world->alone, &version), CN_OK);
    free(bytes);
    free(values);
}

void world_open_session(struct session_world *world)
{
    world_reopen(world);
    world_install(world, 0);
}

void world_kill_and_reopen(struct session_world *world)
{
    cn_session_close(world->session);
    world->session = NULL;
    world_reopen(world);
}

void world_begin(struct session_world *world, uint32_t round)
{
    const struct cn_link_path_stats link = {0};
    struct cn_round_order order;

    cn_session_plan(world->session, round, &link, 60000, &order);
    assert_int_equal(cn_session_begin(world->session, &order), CN_OK);
}

void world_train(struct session_world *world, uint32_t round)
{
    world_begin(world, round);
    while (!cn_session_round_done(world->session)) {
        struct cn_step_flags flags = {0};

        assert_int_equal(cn_session_step(world->session, world->alone, &flags), CN_OK);
    }
    assert_int_equal(cn_session_finish(world->session, world->alone), CN_OK);
}

void world_decide(struct session_world *world, enum cn_verdict verdict, uint32_t round,
                  const uint8_t *digest)
{
    struct cn_decision decision = {.verdict = verdict, .round = round};

    if (round)
        memcpy(decision.digest, digest, CN_DIGEST_SIZE);
    assert_int_equal(cn_session_decide(world->session, &decision), CN_OK);
}

const struct cn_tensor_info *world_find(const struct session_world *world, const char *name)
{
    const struct cn_layout *layout = world->session->layout;

    for (size_t t = 0; t < layout->tensor_count; t++)
        if (strcmp(layout->tensors[t].name, name) == 0)
            return &layout->tensors[t];
    fail_msg("no tensor %s", name);
    return NULL;
}
