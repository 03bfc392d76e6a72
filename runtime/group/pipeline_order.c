#include "runtime/group/pipeline_order.h"

uint32_t cn_pipeline_in_flight(uint32_t parts, uint32_t micro, uint32_t part)
{
    uint32_t most = 2 * (parts - part) - 1;

    return most < micro ? most : micro;
}

void cn_pipeline_begin(struct cn_pipeline *pipeline, uint32_t parts, uint32_t micro)
{
    *pipeline = (struct cn_pipeline){.parts = parts, .micro = micro};
}

// Decides by the messages that arrived before the tick. A backward pass comes before a forward
// pass, because it frees memory.
static enum cn_pipeline_pass choose(const struct cn_pipeline *pipeline, uint32_t part)
{
    uint32_t forwards = pipeline->forwards[part], backwards = pipeline->backwards[part];
    uint32_t most = cn_pipeline_in_flight(pipeline->parts, pipeline->micro, part);
    bool last = part + 1 == pipeline->parts;

    if (pipeline->most && most > pipeline->most)
        most = pipeline->most;

    if (backwards < forwards && (last || pipeline->backwards[part + 1] > backwards))
        return CN_PIPELINE_BACKWARD;
    if (forwards < pipeline->micro && (part == 0 || pipeline->forwards[part - 1] > forwards) &&
        forwards - backwards < most)
        return CN_PIPELINE_FORWARD;
    return CN_PIPELINE_REST;
}

bool cn_pipeline_tick(struct cn_pipeline *pipeline)
{
    bool any = false;

    for (uint32_t p = 0; p < pipeline->parts; p++) {
        pipeline->pass[p] = choose(pipeline, p);
        pipeline->batch[p] = pipeline->pass[p] == CN_PIPELINE_BACKWARD ? pipeline->backwards[p]
                                                                       : pipeline->forwards[p];
        any |= pipeline->pass[p] != CN_PIPELINE_REST;
    }
    for (uint32_t p = 0; p < pipeline->parts; p++) {
        pipeline->forwards[p] += pipeline->pass[p] == CN_PIPELINE_FORWARD;
        pipeline->backwards[p] += pipeline->pass[p] == CN_PIPELINE_BACKWARD;
    }
    return any;
}

uint32_t cn_pipeline_messages(const struct cn_pipeline *pipeline,
                              struct cn_pipeline_message messages[CN_PIPELINE_PARTS_MAX])
{
    uint32_t count = 0;

    for (uint32_t p = 1; p < pipeline->parts; p++)
        if (pipeline->pass[p] == CN_PIPELINE_BACKWARD)
            messages[count++] = (struct cn_pipeline_message){
                .from = p, .to = p - 1, .batch = pipeline->batch[p], .gradient = true};
    for (uint32_t p = 0; p + 1 < pipeline->parts; p++)
        if (pipeline->pass[p] == CN_PIPELINE_FORWARD)
            messages[count++] =
                (struct cn_pipeline_message){.from = p, .to = p + 1, .batch = pipeline->batch[p]};
    return count;
}
