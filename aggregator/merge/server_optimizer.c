#include "aggregator/merge/server_optimizer.h"

#include <math.h>

#include "runtime/update/update.h"

// The settings of a step, in float32.
struct constants {
    float rate, momentum, beta1, beta2, rest1, rest2, epsilon;
};

size_t cn_server_rows(enum cn_server_optimizer optimizer)
{
    switch (optimizer) {
    case CN_SERVER_FEDAVG:
        return 0;
    case CN_SERVER_FEDAVGM:
    case CN_SERVER_NESTEROV:
    case CN_SERVER_FEDADAGRAD:
        return 1;
    case CN_SERVER_FEDADAM:
    case CN_SERVER_FEDYOGI:
        return 2;
    }
    return 0;
}

double cn_server_rate(const struct cn_server *server)
{
    if (server->learning_rate > 0)
        return server->learning_rate;
    switch (server->optimizer) {
    case CN_SERVER_FEDAVG:
        return 1;
    // With this rate a constant mean moves the weights as FedAvg does.
    case CN_SERVER_FEDAVGM:
        return 1 - server->momentum;
    case CN_SERVER_NESTEROV:
        return 0.7;
    case CN_SERVER_FEDADAGRAD:
        return 0.1;
    case CN_SERVER_FEDADAM:
    case CN_SERVER_FEDYOGI:
        return 0.03;
    }
    return 1;
}

static bool has_squares(enum cn_server_optimizer optimizer)
{
    return optimizer == CN_SERVER_FEDADAGRAD || optimizer == CN_SERVER_FEDADAM ||
           optimizer == CN_SERVER_FEDYOGI;
}

void cn_server_begin(const struct cn_server *server, const struct cn_layout *layout, float *state)
{
    size_t rows = cn_server_rows(server->optimizer);
    float epsilon = (float)server->epsilon;
    for (size_t row = 0; row < rows; row++) {
        float value = has_squares(server->optimizer) && row == rows - 1 ? epsilon * epsilon : 0;
        for (size_t i = 0; i < layout->total; i++)
            state[row * layout->total + i] = value;
    }
}

static void step_fedavg(const struct constants *c, float *d, size_t count)
{
    for (size_t i = 0; i < count; i++)
        d[i] = c->rate * d[i];
}

static void step_fedavgm(const struct constants *c, float *d, float *m, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        m[i] = c->momentum * m[i] + d[i];
        d[i] = c->rate * m[i];
    }
}

static void step_nesterov(const struct constants *c, float *d, float *m, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        m[i] = c->momentum * m[i] + d[i];
        d[i] = c->rate * (c->momentum * m[i] + d[i]);
    }
}

static void step_fedadagrad(const struct constants *c, float *d, float *v, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        v[i] = v[i] + d[i] * d[i];
        d[i] = c->rate * d[i] / (sqrtf(v[i]) + c->epsilon);
    }
}

static void step_fedadam(const struct constants *c, float *d, float *m, float *v, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        m[i] = c->beta1 * m[i] + c->rest1 * d[i];
        v[i] = c->beta2 * v[i] + c->rest2 * (d[i] * d[i]);
        d[i] = c->rate * m[i] / (sqrtf(v[i]) + c->epsilon);
    }
}

static void step_fedyogi(const struct constants *c, float *d, float *m, float *v, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float square = d[i] * d[i], sign = (float)((v[i] > square) - (v[i] < square));
        m[i] = c->beta1 * m[i] + c->rest1 * d[i];
        v[i] = v[i] - c->rest2 * square * sign;
        d[i] = c->rate * m[i] / (sqrtf(v[i]) + c->epsilon);
    }
}

// Steps one tensor. first and second are the tensor's parts of the rows.
static void step_tensor(enum cn_server_optimizer optimizer, const struct constants *constants,
                        float *mean, float *first, float *second, size_t count)
{
    switch (optimizer) {
    case CN_SERVER_FEDAVG:
        step_fedavg(constants, mean, count);
        return;
    case CN_SERVER_FEDAVGM:
        step_fedavgm(constants, mean, first, count);
        return;
    case CN_SERVER_NESTEROV:
        step_nesterov(constants, mean, first, count);
        return;
    case CN_SERVER_FEDADAGRAD:
        step_fedadagrad(constants, mean, first, count);
        return;
    case CN_SERVER_FEDADAM:
        step_fedadam(constants, mean, first, second, count);
        return;
    case CN_SERVER_FEDYOGI:
        step_fedyogi(constants, mean, first, second, count);
        return;
    }
}

// A larger step would wait in the residual and move the model for many rounds more.
static void limit_step(float *step, size_t count)
{
    const float most = (float)CN_UPDATE_VALUE_MAX;
    for (size_t i = 0; i < count; i++)
        step[i] = step[i] > most ? most : step[i] < -most ? -most : step[i];
}

void cn_server_step(const struct cn_server *server, const struct cn_layout *layout, float *mean,
                    float *state)
{
    const struct constants constants = {
        .rate = (float)cn_server_rate(server),
        .momentum = (float)server->momentum,
        .beta1 = (float)server->beta1,
        .beta2 = (float)server->beta2,
        .rest1 = (float)(1 - server->beta1),
        .rest2 = (float)(1 - server->beta2),
        .epsilon = (float)server->epsilon,
    };
    size_t rows = cn_server_rows(server->optimizer);
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];
        float *first = rows > 0 ? state + tensor->offset : NULL;
        float *second = rows > 1 ? state + layout->total + tensor->offset : NULL;
        if (tensor->class != CN_TENSOR_PARAM)
            continue;
        step_tensor(server->optimizer, &constants, mean + tensor->offset, first, second,
                    tensor->count);
        limit_step(mean + tensor->offset, tensor->count);
    }
}
