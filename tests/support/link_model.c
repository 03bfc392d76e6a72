#include "tests/support/link_model.h"

#include "runtime/base/random.h"

void cn_link_model_init(struct cn_link_model *model, const struct cn_link_shape *shape)
{
    *model = (struct cn_link_model){.shape = *shape};
}

static bool happens(struct cn_link_model *model, double share)
{
    uint32_t random[4];

    if (share <= 0)
        return false;
    cn_random_block(model->shape.seed, 0, model->draws++, random);
    return random[0] < share * 4294967296.0;
}

// Gilbert's model: a burst continues with probability 1 - 1/length. The probability that one begins
// follows from the share of lost packets.
static bool strikes(struct cn_link_model *model)
{
    const struct cn_link_shape *shape = &model->shape;
    double length = shape->burst_length > 1 ? shape->burst_length : 1;

    if (shape->burst_loss > 0) {
        double begin = shape->burst_loss / (length * (1 - shape->burst_loss));

        model->bad = happens(model, model->bad ? 1 - 1 / length : begin);
        if (model->bad)
            return true;
    }
    return happens(model, shape->loss);
}

unsigned cn_link_model_offer(struct cn_link_model *model, size_t size, uint64_t now_us,
                             uint64_t leave_us[2])
{
    const struct cn_link_shape *shape = &model->shape;
    double bytes = (double)(size + shape->overhead);
    double out_us = (double)now_us;
    uint64_t when;
    unsigned copies = 1;

    model->counts.offered++;
    if (shape->mtu && size > shape->mtu) {
        model->counts.too_large++;
        return 0;
    }
    if (shape->rate_bps) {
        double byte_us = 8e6 / (double)shape->rate_bps;
        double earliest = out_us - byte_us * (double)shape->bucket_bytes;

        if (model->free_us < earliest)
            model->free_us = earliest;
        if (shape->queue_bytes && model->free_us - out_us > byte_us * (double)shape->queue_bytes) {
            model->counts.overflowed++;
            return 0;
        }
        model->free_us += byte_us * bytes;
        if (model->free_us > out_us)
            out_us = model->free_us;
    }
    model->counts.bytes += (uint64_t)bytes;
    if (strikes(model)) {
        model->counts.lost++;
        return 0;
    }
    when = (uint64_t)out_us + shape->delay_us;
    if (happens(model, shape->reorder))
        when += shape->reorder_us;
    if (when >= shape->hold_us && when < shape->hold_us + shape->held_us)
        when = shape->hold_us + shape->held_us;
    leave_us[0] = leave_us[1] = when;
    copies += happens(model, shape->duplicate);
    model->counts.delivered += copies;
    return copies;
}
