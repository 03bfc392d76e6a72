// selftest_speed.c - how fast this board is: memory, training, storage.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/command/board_find.h"
#include "runtime/command/selftest.h"
#include "runtime/command/train_speed.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/port/store.h"

#define BLOCK ((size_t)1 << 20)
#define BLOCKS 16
#define BATCH 32
#define STEPS_US 1000000 // time of training on each device
#define SMALL_WRITES 20
#define FILE_NAME "selftest"

static void add(cJSON *object, const char *name, double value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.5g", value);
    cJSON_AddRawToObject(object, name, text);
}

// Adds a rate in MB/s. Bytes in a microsecond are megabytes in a second.
static void add_rate(cJSON *object, const char *name, uint64_t bytes, uint64_t begun_us)
{
    uint64_t spent_us = cn_platform_now_us() - begun_us;

    add(object, name, (double)bytes / (spent_us ? (double)spent_us : 1));
}

cn_err cn_selftest_memory(cJSON *report)
{
    cJSON *object = cJSON_AddObjectToObject(report, "memory");
    uint8_t *from = calloc(BLOCKS, BLOCK), *to = calloc(BLOCKS, BLOCK);
    uint8_t digest[CN_DIGEST_SIZE];
    uint64_t begun_us;
    cn_err err = from && to ? CN_OK : CN_ENOMEM;

    if (!err) {
        memset(from, 1, BLOCKS * BLOCK);
        memset(to, 2, BLOCKS * BLOCK);
        begun_us = cn_platform_now_us();
        memcpy(to, from, BLOCKS * BLOCK);
        add_rate(object, "copy_mb_s", BLOCKS * BLOCK, begun_us);
        begun_us = cn_platform_now_us();
        cn_crypto_digest(to, BLOCKS * BLOCK, digest);
        add_rate(object, "sha256_mb_s", BLOCKS * BLOCK, begun_us);
    }
    free(to);
    free(from);
    return err;
}

static cn_err train_on(const struct cn_compute_ops *ops, const struct cn_onnx_file *model,
                       cJSON *object)
{
    static struct cn_diag diag;
    struct cn_trainer_config config = {
        .compute = ops,
        .threads = cn_platform_cpu_count(),
        .batch = BATCH,
        .loss = CN_LOSS_CROSS_ENTROPY,
        .learning_rate = 1e-6f,
    };
    struct cn_train_speed speed;
    cn_err err;

    cn_diag_init(&diag);
    err = cn_train_speed(&config, model, STEPS_US, &diag, &speed);
    if (err) {
        cJSON_AddStringToObject(object, "error",
                                diag.count ? cn_diag_first(&diag) : cn_err_text(err));
        return err;
    }
    add(object, "batch", BATCH);
    add(object, "threads", config.threads);
    add(object, "step_ms", speed.median_ms);
    add(object, "samples_per_s", speed.samples_per_s);
    add(object, "planned_mib", (double)speed.planned / 1048576);
    return CN_OK;
}

// Returns whether this board has a chip of NVIDIA's Tegra family: all of them have a GPU.
static bool should_have_gpu(const struct cn_selftest *test)
{
    static struct cn_board_identity identity;

    cn_board_find_identity(test->sysroot, &identity);
    for (size_t i = 0; i < identity.count; i++)
        if (strncmp(identity.names[i], "nvidia,tegra", 12) == 0)
            return true;
    return false;
}

static cn_err train_everywhere(const struct cn_selftest *test, const struct cn_onnx_file *model,
                               cJSON *report)
{
    cJSON *training = cJSON_AddObjectToObject(report, "training");
    bool has_gpu = false;
    cn_err err = CN_OK;

    cJSON_AddStringToObject(training, "model",
                            test->model ? "given" : "built in: 2 convolutions, 3 x 32 x 32");
    for (const struct cn_compute_ops *const *ops = test->ports->computes; *ops; ops++) {
        cJSON *object = cJSON_AddObjectToObject(training, (*ops)->name);
        cn_err failed;

        if (!cn_command_has_device(*ops, 0)) {
            cJSON_AddStringToObject(object, "error", "no such device works here");
            continue;
        }
        has_gpu = has_gpu || strcmp((*ops)->name, "cpu") != 0;
        failed = train_on(*ops, model, object);
        err = err ? err : failed;
    }
    if (has_gpu || !should_have_gpu(test))
        return err;
    cJSON_AddStringToObject(training, "error",
                            "this Jetson's GPU is not found: on an Orin the packages need JetPack "
                            "6.1, a build by CUDA 13 alone JetPack 7.2; and the service needs "
                            "jetson-gpu.conf");
    return err ? err : CN_ENOTFOUND;
}

cn_err cn_selftest_training(const struct cn_selftest *test, cJSON *report)
{
    static struct cn_diag diag;
    struct cn_onnx_file file = {.data = NULL};
    struct cn_buffer built;
    cn_err err;

    cn_diag_init(&diag);
    cn_buffer_init(&built, CN_ONNX_FILE_MAX);
    if (test->model) {
        err = cn_onnx_file_open(test->model, &diag, &file);
    } else {
        err = cn_selftest_model(&built);
        file.data = built.data;
        file.size = built.size;
    }
    if (!err)
        err = train_everywhere(test, &file, report);
    cn_command_print_diag(&diag);
    cn_onnx_file_close(&file);
    cn_buffer_deinit(&built);
    return err;
}

// Measures writing a small durable file, such as a board stores in each round.
static cn_err write_small(struct cn_store *store, cJSON *object)
{
    uint64_t begun_us = cn_platform_now_us();
    cn_err err = CN_OK;

    for (int i = 0; i < SMALL_WRITES && !err; i++)
        err = cn_store_replace(store, FILE_NAME, &i, sizeof(i));
    if (!err)
        add(object, "small_write_ms",
            (double)(cn_platform_now_us() - begun_us) / 1000 / SMALL_WRITES);
    return err;
}

// Measures writing a large durable file, as a checkpoint is: written under another name, synced and
// renamed, and the folder synced.
static cn_err write_durable(struct cn_store *store, cJSON *object)
{
    uint8_t *content = calloc(BLOCKS, BLOCK);
    uint64_t begun_us;
    cn_err err = content ? CN_OK : CN_ENOMEM, removed;

    if (content)
        memset(content, 7, BLOCKS * BLOCK);
    begun_us = cn_platform_now_us();
    if (!err)
        err = cn_store_replace(store, FILE_NAME, content, BLOCKS * BLOCK);
    if (!err)
        add_rate(object, "durable_write_mb_s", BLOCKS * BLOCK, begun_us);
    if (!err)
        err = write_small(store, object);
    removed = store->ops->remove(store, FILE_NAME);
    free(content);
    return err ? err : removed;
}

cn_err cn_selftest_storage(const struct cn_selftest *test, cJSON *report)
{
    cJSON *object;
    struct cn_store *store;
    uint64_t available;
    cn_err err;

    if (!test->state)
        return CN_OK;
    object = cJSON_AddObjectToObject(report, "storage");
    err = cn_platform_open_store(test->state, &store);
    if (!err) {
        err = write_durable(store, object);
        store->ops->close(store);
    }
    if (cn_platform_disk_free(test->state, &available) == CN_OK)
        add(object, "free_gib", (double)available / (1u << 30));
    if (err == CN_EEXIST)
        cJSON_AddStringToObject(object, "error", "not measured: a node is running there");
    else if (err)
        cJSON_AddStringToObject(object, "error", cn_err_text(err));
    return err == CN_EEXIST ? CN_OK : err;
}
