#include "aggregator/run/evaluate.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/port/platform.h"

#define TRIES 3        // measurements of a version whose data set is written to meanwhile
#define LOSS_MAX 1e300 // sum of losses from which a version counts as diverged

struct result {
    struct cn_metrics metrics;
    double f1;
    uint64_t classes; // 0: the loss has no classes
    uint64_t places;  // labels of a sample
};

struct cn_evaluator {
    struct cn_evaluator_config config;
    pid_t child; // 0: none
    int pipe;    // from which the child's struct result is read
    uint32_t version;
    uint64_t deadline_ms;
    struct result result;
    size_t received; // bytes of result that have arrived
};

// The opened model and data set.
struct bench {
    struct cn_trainer *trainer;
    struct cn_dataset *dataset;
    struct cn_batch batch;
};

static void close_bench(struct bench *bench)
{
    cn_batch_deinit(&bench->batch);
    cn_dataset_close(bench->dataset);
    cn_trainer_close(bench->trainer);
}

static cn_err open_trainer(const struct cn_evaluator_config *config, struct cn_diag *diag,
                           struct cn_trainer **trainer)
{
    struct cn_trainer_config trainer_config = {
        .threads = config->threads,
        .batch = config->job->batch,
        .loss = config->job->loss,
        .rules = &config->job->rules,
    };
    cn_err err = CN_ENOTSUP;
    for (size_t i = 0; config->computes[i]; i++) {
        trainer_config.compute = config->computes[i];
        cn_diag_init(diag);
        err = cn_trainer_open(config->onnx, &trainer_config, diag, trainer);
        if (!err)
            break;
    }
    return err;
}

static cn_err open_bench(const struct cn_evaluator_config *config, struct cn_diag *diag,
                         struct bench *bench)
{
    struct cn_dataset_config dataset = {
        .files = {.inputs = config->files->inputs,
                  .labels = config->files->labels,
                  .other_count = config->files->file_count},
        .rules = &config->job->rules,
        .scale = config->job->scale,
        .mean = config->job->mean,
        .seed = config->job->seed,
    };
    struct cn_sample_shape shape;
    for (uint32_t i = 0; i < config->files->file_count; i++)
        dataset.files.others[i] =
            (struct cn_dataset_file){config->files->files[i].name, config->files->files[i].path};
    memset(bench, 0, sizeof(*bench));
    cn_err err = open_trainer(config, diag, &bench->trainer);
    if (err)
        return err;
    cn_trainer_sample_shape(bench->trainer, &shape);
    err = cn_dataset_open(&dataset, &shape, diag, &bench->dataset);
    if (!err)
        err = cn_batch_init(&shape, config->job->batch, &bench->batch);
    if (err)
        close_bench(bench);
    return err;
}

cn_err cn_evaluator_open(const struct cn_evaluator_config *config, struct cn_diag *diag,
                         struct cn_evaluator **evaluator)
{
    struct bench bench;
    *evaluator = NULL;
    cn_err err = open_bench(config, diag, &bench);
    if (err)
        return err;
    close_bench(&bench);
    *evaluator = calloc(1, sizeof(**evaluator));
    if (!*evaluator)
        return CN_ENOMEM;
    (*evaluator)->config = *config;
    (*evaluator)->pipe = -1;
    return CN_OK;
}

static void end_child(struct cn_evaluator *evaluator)
{
    if (evaluator->child == 0)
        return;
    kill(evaluator->child, SIGKILL);
    while (waitpid(evaluator->child, NULL, 0) < 0 && errno == EINTR)
        ;
    close(evaluator->pipe);
    evaluator->child = 0;
    evaluator->pipe = -1;
}

void cn_evaluator_close(struct cn_evaluator *evaluator)
{
    if (!evaluator)
        return;
    end_child(evaluator);
    free(evaluator);
}

// --- in the child ---

static cn_err take_f1(struct cn_trainer *trainer, struct result *result)
{
    size_t classes = cn_trainer_classes(trainer);
    float *counts = calloc(3 * classes + 1, sizeof(float));
    if (!counts)
        return CN_ENOMEM;
    cn_trainer_take_counts(trainer, counts);
    result->classes = classes;
    result->f1 = cn_trainer_f1(counts, classes);
    free(counts);
    return CN_OK;
}

static cn_err measure(const struct cn_evaluator_config *config, const float *weights,
                      struct bench *bench, struct result *result)
{
    struct cn_sample_shape shape;
    uint64_t count = cn_dataset_count(bench->dataset, CN_SPLIT_ALL);
    cn_err err = cn_trainer_set_weights(bench->trainer, weights);
    *result = (struct result){0};
    for (uint64_t first = 0; first < count && !err; first += bench->batch.count) {
        cn_dataset_range(bench->dataset, CN_SPLIT_ALL, first, config->job->batch, &bench->batch);
        err = cn_trainer_evaluate(bench->trainer, &bench->batch, &result->metrics);
    }
    cn_trainer_sample_shape(bench->trainer, &shape);
    result->places = shape.rows;
    return err ? err : take_f1(bench->trainer, result);
}

// Returns CN_ESTALE when a file of the set was written to meanwhile: the result then belongs to no
// content of the file.
static cn_err evaluate(const struct cn_evaluator_config *config, const float *weights,
                       struct result *result)
{
    struct bench bench;
    struct cn_diag diag;
    cn_diag_init(&diag);
    cn_err err = open_bench(config, &diag, &bench);
    if (err) {
        if (diag.count)
            cn_log(CN_LOG_ERROR, "evaluate", "%s", cn_diag_first(&diag));
        return err;
    }
    err = measure(config, weights, &bench, result);
    if (cn_dataset_has_changed(bench.dataset))
        err = CN_ESTALE;
    close_bench(&bench);
    return err;
}

static cn_err evaluate_unchanged(const struct cn_evaluator_config *config, uint32_t version,
                                 const float *weights, struct result *result)
{
    cn_err err = evaluate(config, weights, result);
    for (int i = 1; i < TRIES && err == CN_ESTALE; i++) {
        cn_log(CN_LOG_WARN, "evaluate",
               "version %u is measured again: the central set '%s' changed meanwhile", version,
               config->files->name);
        err = evaluate(config, weights, result);
    }
    return err;
}

static _Noreturn void be_child(const struct cn_evaluator_config *config, uint32_t version,
                               const float *weights, int out)
{
    struct result result = {0};
    signal(SIGINT, SIG_IGN); // the terminal sends it to all processes; the parent decides
    signal(SIGTERM, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cn_platform_close_inherited(out); // else it would keep the store's lock and the sockets open
    cn_err err = evaluate_unchanged(config, version, weights, &result);
    if (err == CN_ESTALE)
        cn_log(CN_LOG_ERROR, "evaluate",
               "the central set '%s' changed during each of %d measurements", config->files->name,
               TRIES);
    else if (err)
        cn_log(CN_LOG_ERROR, "evaluate", "%s", cn_err_text(err));
    bool sent = !err && write(out, &result, sizeof(result)) == (ssize_t)sizeof(result);
    _exit(sent ? 0 : 1);
}

// --- in the parent ---

static cn_err start(void *context, uint32_t version, const float *weights, uint64_t now_ms)
{
    struct cn_evaluator *evaluator = context;
    int ends[2];
    if (evaluator->child)
        return CN_EAGAIN;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return cn_err_from_errno(errno);
    pid_t child = fork();
    if (child == 0)
        be_child(&evaluator->config, version, weights, ends[1]);
    close(ends[1]);
    if (child < 0) {
        cn_err err = cn_err_from_errno(errno);
        close(ends[0]);
        cn_log(CN_LOG_ERROR, "evaluate", "no child for version %u: %s", version, cn_err_text(err));
        return err;
    }
    evaluator->child = child;
    evaluator->pipe = ends[0];
    evaluator->version = version;
    evaluator->received = 0;
    evaluator->deadline_ms = now_ms + evaluator->config.timeout_ms;
    return CN_OK;
}

// Returns CN_EAGAIN while the child works.
static cn_err receive(struct cn_evaluator *evaluator, uint64_t now_ms)
{
    uint8_t *to = (uint8_t *)&evaluator->result;
    for (;;) {
        ssize_t got = read(evaluator->pipe, to + evaluator->received,
                           sizeof(evaluator->result) - evaluator->received);
        if (got > 0)
            evaluator->received += (size_t)got;
        if (evaluator->received == sizeof(evaluator->result))
            return CN_OK;
        if (got == 0)
            return CN_EPEER;
        if (got < 0 && errno == EAGAIN)
            return now_ms > evaluator->deadline_ms ? CN_ETIMEOUT : CN_EAGAIN;
        if (got < 0 && errno != EINTR)
            return cn_err_from_errno(errno);
    }
}

// Sets the measures that the job's loss has.
static void take_measures(const struct cn_evaluator *evaluator, struct cn_ledger_metrics *metrics)
{
    const struct result *result = &evaluator->result;
    enum cn_loss loss = evaluator->config.job->loss;
    double mean = metrics->loss / (double)metrics->count;
    metrics->measures = (struct cn_measures){0};
    if (result->classes)
        metrics->measures.f1 = result->f1;
    if (result->classes > 5)
        metrics->measures.top5 = (double)result->metrics.top5 / (double)result->metrics.rows;
    if (result->classes && result->places > 1 && mean < 60)
        metrics->measures.perplexity = exp(mean);
    if (loss != CN_LOSS_CROSS_ENTROPY && loss != CN_LOSS_BINARY_ENTROPY && result->metrics.values)
        metrics->measures.mae = result->metrics.absolute / (double)result->metrics.values;
    if (!(metrics->measures.mae < 1e30))
        metrics->measures.mae = 0;
}

// A diverged model gives numbers that are not finite. Only finite ones may enter the ledger.
static cn_err take_metrics(const struct cn_evaluator *evaluator, struct cn_ledger_metrics *metrics)
{
    const struct cn_metrics *result = &evaluator->result.metrics;
    if (result->rows == 0 || !cn_loss_can_be(evaluator->config.job->loss, result->loss, LOSS_MAX))
        return CN_EDIVERGED;
    metrics->loss = cn_metrics_row_loss(result);
    metrics->correct = result->correct;
    metrics->count = result->rows;
    take_measures(evaluator, metrics);
    return CN_OK;
}

static cn_err poll_child(void *context, uint64_t now_ms, uint32_t *version,
                         struct cn_ledger_metrics *metrics)
{
    struct cn_evaluator *evaluator = context;
    if (evaluator->child == 0)
        return CN_ENOTFOUND;
    cn_err err = receive(evaluator, now_ms);
    if (err == CN_EAGAIN)
        return err;
    *version = evaluator->version;
    end_child(evaluator);
    if (!err)
        err = take_metrics(evaluator, metrics);
    if (err)
        cn_log(CN_LOG_ERROR, "evaluate", "version %u was not measured: %s", *version,
               err == CN_EPEER ? "the evaluating process failed" : cn_err_text(err));
    return err;
}

void cn_evaluator_measure(struct cn_evaluator *evaluator, struct cn_run_measure *measure)
{
    *measure = (struct cn_run_measure){.context = evaluator, .start = start, .poll = poll_child};
}
