#include "runtime/update/variate.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/schedule.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/update_block.h"
#include "runtime/update/version.h"

#define SHORTEST 1e-30 // a distance that makes a gradient of the largest change finite

double cn_variate_distance(const struct cn_job *job, uint32_t round, uint64_t steps)
{
    uint32_t most = cn_job_most_steps(job);
    uint64_t first = round ? (uint64_t)(round - 1) * most : 0;
    uint64_t all = cn_job_schedule_steps(job);
    double base = (double)(float)job->learning_rate;
    double momentum = job->momentum, distance = 0, velocity = 0;

    for (uint64_t i = 0; i < steps; i++) {
        double rate = (double)cn_schedule_rate(&job->rules, base, all, first + i);
        double pulled = job->rules.proximal * distance, gradient = 1 - pulled;
        double kept = momentum * velocity, way;

        velocity = kept + gradient;
        kept = momentum * velocity;
        way = rate * (job->rules.nesterov ? gradient + kept : velocity);
        distance = distance + way;
    }
    return distance >= SHORTEST ? distance : SHORTEST; // a NaN (large proximal) gives SHORTEST
}

float cn_variate_inverse(double distance)
{
    return (float)(1 / distance);
}

uint64_t cn_variate_memory(const struct cn_layout *layout)
{
    return 2 * (uint64_t)layout->total * sizeof(float);
}

bool cn_variate_has(const struct cn_tensor_info *tensor)
{
    return tensor->class == CN_TENSOR_PARAM && !tensor->local && !tensor->stays;
}

// --- a group's own ---

struct advance {
    const struct cn_layout *layout;
    size_t tensor; // index of the tensor of the previous block
    float inverse;
    float *own;
};

static cn_err take_block(void *context, size_t offset, const float *values, size_t count)
{
    struct advance *advance = context;
    const struct cn_tensor_info *tensors = advance->layout->tensors;

    while (offset >= tensors[advance->tensor].offset + tensors[advance->tensor].count)
        advance->tensor++;
    if (!cn_variate_has(&tensors[advance->tensor]))
        return CN_OK;
    for (size_t i = 0; i < count; i++) {
        float gradient = values[i] * advance->inverse;

        advance->own[offset + i] = advance->own[offset + i] - gradient;
    }
    return CN_OK;
}

cn_err cn_variate_advance(const struct cn_layout *layout, const uint8_t *frame, size_t size,
                          const float *server, float inverse, float *own)
{
    struct advance advance = {layout, 0, inverse, own};
    struct cn_update_header header;
    cn_err err = cn_update_check(frame, size, layout, NULL, &header);

    if (err || header.rule.mode == CN_UPDATE_SKIP)
        return err;
    for (size_t t = 0; server && t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        for (size_t i = 0; cn_variate_has(tensor) && i < tensor->count; i++)
            own[tensor->offset + i] = own[tensor->offset + i] - server[tensor->offset + i];
    }
    return cn_update_decode(frame, size, layout, take_block, &advance);
}

// --- the server's ---

static struct cn_update_header header_of(const struct cn_layout *layout, uint64_t run,
                                         uint32_t version, const uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_update_header header = {
        .run = run,
        .round = version,
        .weight = 1,
        .rule = {.mode = CN_UPDATE_Q8},
        .leave_statistics = true,
        .leave_staying = cn_local_tensors_stay(layout),
    };

    memcpy(header.base, digest, CN_DIGEST_SIZE);
    return header;
}

cn_err cn_variate_encode(const struct cn_layout *layout, uint64_t run, uint32_t version,
                         const uint8_t digest[CN_DIGEST_SIZE], const float *server, float *decoded,
                         struct cn_buffer *out)
{
    struct cn_update_header header = header_of(layout, run, version, digest);
    float *rows = malloc((2 * layout->total + 1) * sizeof(*rows));
    cn_err err;

    if (!rows)
        return CN_ENOMEM;
    for (size_t i = 0; i < layout->total; i++)
        rows[i] = cn_update_clip(server[i]);
    err = cn_update_encode(&header, layout, rows, decoded ? decoded : rows + layout->total, out);
    free(rows);
    return err;
}

static cn_err put_block(void *context, size_t offset, const float *values, size_t count)
{
    float *server = context;

    memcpy(server + offset, values, count * sizeof(*values));
    return CN_OK;
}

cn_err cn_variate_decode(const struct cn_layout *layout, uint64_t run, uint32_t version,
                         const uint8_t digest[CN_DIGEST_SIZE], const uint8_t *frame, size_t size,
                         struct cn_diag *diag, float *server)
{
    struct cn_update_header header;
    cn_err err = cn_update_check(frame, size, layout, diag, &header);

    if (err)
        return err;
    if (header.run != run || header.round != version || header.snapshot ||
        memcmp(header.base, digest, CN_DIGEST_SIZE) != 0)
        return CN_ESTALE;
    memset(server, 0, layout->total * sizeof(*server));
    return cn_update_decode(frame, size, layout, put_block, server);
}
