#include "transport/transfer/path_stats.h"

#define PARCELS_MIN 8 // a smaller transfer does not count
#define WEIGHT 0.25

void cn_path_stats_begin(struct cn_path_stats *measure, bool up,
                         const struct cn_controller *controller, uint64_t now_us)
{
    measure->starts[up] =
        (struct cn_path_stats_start){now_us, controller->delivered, controller->lost};
}

static void add(double *mean, double *deviation, double sample)
{
    double distance = sample > *mean ? sample - *mean : *mean - sample;

    if (*mean <= 0) {
        *mean = sample;
        *deviation = sample / 4;
        return;
    }
    *deviation += WEIGHT * (distance - *deviation);
    *mean += WEIGHT * (sample - *mean);
}

static void add_rate(struct cn_link_path_stats *figures, bool up,
                     const struct cn_controller *controller, uint32_t parcel_size)
{
    double bps = 8 * controller->bandwidth * parcel_size / controller->unit;
    double *mean = up ? &figures->up_bps : &figures->down_bps;
    double ignored = 0;

    if (bps > 0 && (controller->full || bps > *mean))
        add(mean, up ? &figures->up_deviation_bps : &ignored, bps);
}

bool cn_path_stats_end(struct cn_path_stats *measure, bool up,
                       const struct cn_controller *controller, uint64_t size, uint32_t parcel_size,
                       uint64_t now_us)
{
    const struct cn_path_stats_start *start = &measure->starts[up];
    struct cn_link_path_stats *figures = &measure->figures;
    uint64_t delivered = controller->delivered - start->delivered;
    uint64_t lost = controller->lost - start->lost;
    uint64_t elapsed_us = now_us > start->now_us ? now_us - start->now_us : 1;

    if (size < (uint64_t)PARCELS_MIN * parcel_size)
        return controller->stream;
    add_rate(figures, up, controller, parcel_size);
    if (delivered + lost)
        figures->loss += WEIGHT * ((double)lost / (double)(delivered + lost) - figures->loss);
    if (controller->min_rtt_us)
        figures->rtt_us = controller->min_rtt_us;
    return cn_transport_choice_add(&measure->way, controller->stream, size,
                                   8e6 * (double)size / (double)elapsed_us);
}
