#include "runtime/update/rate.h"

#include <math.h>

#include "runtime/update/update_block.h"
#include "runtime/update/update_frame.h"

#define BIN_SHIFT 5 // bin = code >> 5: a power of two has 256 codes and 8 bins
#define MARGIN 0.15 // share of the deadline kept in reserve
#define GOODPUT_UNKNOWN 64000.0
#define QUALITY_MIN 0.05
#define QUALITY_SLACK 0.01
#define DENSITY_MIN 0.001
#define DENSITY_MAX 0.25
#define FACTOR_MIN (1.0 / 64)
#define FACTOR_MAX 2.0
#define SPARE_MUCH 0.3
#define STREAK 3
#define TRAIN_TO_TRANSFER 3.0
#define FRAME_BYTES (CN_UPDATE_HEADER_SIZE + CN_DIGEST_SIZE)
#define GROUP 256.0 // coordinates that share a scale

// Returns the middle of a bin.
static double magnitude_of(size_t bin)
{
    return (double)cn_update_float(((uint32_t)bin << BIN_SHIFT | 1u << (BIN_SHIFT - 1))
                                   << CN_UPDATE_CODE_SHIFT);
}

static bool is_sparse(const struct cn_tensor_info *tensor)
{
    return tensor->class == CN_TENSOR_PARAM && tensor->count >= CN_UPDATE_SMALL_COUNT &&
           !tensor->stays;
}

// Returns the mean bits of a gap in a limited Rice code at this density (Golomb 1966, Rice 1979).
static double gap_bits(double density)
{
    const double golden = 0.6180339887;
    double b;

    if (density >= 1)
        return 0;
    b = fmax(0, 1 + floor(log2(log(golden) / log1p(-density))));
    return b + 1 / (1 - pow(1 - density, exp2(b)));
}

// Returns the bits of a sparse block's head, checksum and padding (half a byte on average).
static double head_bits(uint32_t value_bits)
{
    return value_bits ? 76 : 60;
}

static void count_own(const struct cn_tensor_info *tensor, struct cn_rate_spectrum *spectrum)
{
    double sent = ceil(tensor->density * (double)tensor->count);

    spectrum->own_total += tensor->count;
    spectrum->own_sent += sent;
    spectrum->own_bits += sent * (gap_bits(tensor->density) + 1) +
                          head_bits(1) * (double)tensor->count / CN_UPDATE_BLOCK_COUNT;
}

static void begin(const struct cn_layout *layout, struct cn_rate_spectrum *spectrum)
{
    *spectrum = (struct cn_rate_spectrum){0};
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (tensor->stays)
            continue;
        *(is_sparse(tensor) ? &spectrum->total : &spectrum->others) += tensor->count;
        spectrum->signs += tensor->signs ? tensor->count : 0;
        if (is_sparse(tensor) && tensor->density > 0)
            count_own(tensor, spectrum);
    }
}

static void measure_tensor(const struct cn_tensor_info *tensor, const float *values,
                           struct cn_rate_spectrum *spectrum)
{
    int moved = tensor->priority * (CN_UPDATE_CODES_OCTAVE >> BIN_SHIFT);

    for (size_t i = 0; i < tensor->count; i++) {
        uint32_t code = cn_update_code(values[i]);
        int bin = (int)(code >> BIN_SHIFT) + moved;

        if (code < CN_UPDATE_CODE_MIN || bin < 0) {
            spectrum->zeros++;
            continue;
        }
        bin = bin < CN_RATE_BINS ? bin : CN_RATE_BINS - 1;
        spectrum->counts[bin]++;
        spectrum->own[bin] += tensor->density > 0;
    }
}

void cn_rate_measure(const struct cn_layout *layout, const float *values,
                     struct cn_rate_spectrum *spectrum)
{
    begin(layout, spectrum);
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (is_sparse(tensor))
            measure_tensor(tensor, values + tensor->offset, spectrum);
    }
}

void cn_rate_measure_share(const struct cn_update_share *share, const float *values,
                           struct cn_rate_spectrum *spectrum)
{
    begin(share->whole, spectrum);
    for (size_t t = 0; t < share->own->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &share->own->tensors[t];

        if (share->owned[t] && is_sparse(tensor))
            measure_tensor(tensor, values + tensor->offset, spectrum);
    }
}

void cn_rate_get_sums(const struct cn_rate_spectrum *spectrum, int64_t sums[CN_RATE_SUMS])
{
    for (uint32_t i = 0; i < CN_RATE_BINS; i++) {
        sums[i] = (int64_t)spectrum->counts[i];
        sums[CN_RATE_BINS + i] = (int64_t)spectrum->own[i];
    }
    sums[CN_RATE_SUMS - 1] = (int64_t)spectrum->zeros;
}

bool cn_rate_of_sums(const struct cn_layout *layout, const int64_t sums[CN_RATE_SUMS],
                     struct cn_rate_spectrum *spectrum)
{
    uint64_t total, left;

    begin(layout, spectrum);
    total = left = spectrum->total;

    for (uint32_t i = 0; i < CN_RATE_SUMS; i++) {
        bool counts = i < CN_RATE_BINS || i == CN_RATE_SUMS - 1;

        if (sums[i] < 0 || (uint64_t)sums[i] > (counts ? left : total))
            return false;
        left -= counts ? (uint64_t)sums[i] : 0;
    }
    if (left)
        return false;
    for (uint32_t i = 0; i < CN_RATE_BINS; i++) {
        spectrum->counts[i] = (uint64_t)sums[i];
        spectrum->own[i] = (uint64_t)sums[CN_RATE_BINS + i];
    }
    spectrum->zeros = (uint64_t)sums[CN_RATE_SUMS - 1];
    return true;
}

void cn_rate_guess(const struct cn_layout *layout, struct cn_rate_spectrum *spectrum)
{
    const size_t top = CN_UPDATE_CODE_MAX >> BIN_SHIFT; // magnitude 16: a share of e^-16 is above
    uint64_t left;

    begin(layout, spectrum);
    left = spectrum->total;
    for (size_t bin = top; bin > top - 160; bin--) {
        double above = exp(-magnitude_of(bin));
        uint64_t wanted = (uint64_t)((1 - above) * (double)spectrum->total);

        // wanted elements lie below this bin; those not counted so far and not below lie in it.
        spectrum->counts[bin] = left > wanted ? left - wanted : 0;
        left -= spectrum->counts[bin];
        if (spectrum->total)
            spectrum->own[bin] = (uint64_t)((double)spectrum->counts[bin] *
                                            (double)spectrum->own_total / (double)spectrum->total);
    }
    spectrum->zeros = left;
}

bool cn_rate_guard_is_valid(const struct cn_rate_guard *guard)
{
    return guard->factor == 0 || (guard->factor >= FACTOR_MIN && guard->factor <= FACTOR_MAX);
}

void cn_rate_guard_add(struct cn_rate_guard *guard, double spare)
{
    if (guard->factor <= 0)
        guard->factor = 1;
    if (spare < 0) {
        guard->factor = fmax(guard->factor / 2, FACTOR_MIN);
        guard->streak = 0;
        return;
    }
    guard->streak = spare > SPARE_MUCH ? guard->streak + 1 : 0;
    if (guard->streak < STREAK)
        return;
    guard->factor = fmin(guard->factor * 1.25, FACTOR_MAX);
    guard->streak = 0;
}

double cn_rate_goodput(const struct cn_link_path_stats *link)
{
    if (link->up_bps > 0)
        return fmax(link->up_bps / 4, link->up_bps - 2 * link->up_deviation_bps);
    // Links are often slower upwards than downwards.
    return link->down_bps > 0 ? link->down_bps / 4 : GOODPUT_UNKNOWN;
}

uint64_t cn_rate_budget(const struct cn_rate_situation *situation)
{
    double seconds = (1 - MARGIN) * situation->remaining_s - situation->steps * situation->step_s -
                     2e-6 * (double)situation->link.rtt_us;
    double bytes = seconds * cn_rate_goodput(&situation->link) / 8 *
                   (situation->factor > 0 ? situation->factor : 1);

    if (!(bytes > 0))
        return 0;
    return bytes < (double)situation->bytes_most ? (uint64_t)bytes : situation->bytes_most;
}

// Sums over the largest values of a histogram.
struct tail {
    double count, sum, square; // number of values, sum of magnitudes, sum of squares
    size_t lowest, highest;    // bins of the smallest and the largest of them
};

// Returns the sums over the count largest values of all without those of less. The lowest bin may
// count in part.
static struct tail tail_of(const uint64_t *all, const uint64_t *less, double count)
{
    struct tail tail = {0};

    for (size_t bin = CN_RATE_BINS; bin-- > 0 && tail.count < count;) {
        double here = fmin((double)(all[bin] - less[bin]), count - tail.count);
        double magnitude = magnitude_of(bin);

        if (here <= 0)
            continue;
        if (tail.count == 0)
            tail.highest = bin;
        tail.lowest = bin;
        tail.count += here;
        tail.sum += here * magnitude;
        tail.square += here * magnitude * magnitude;
    }
    return tail;
}

static const uint64_t none[CN_RATE_BINS];

// Returns the bin that one of count values reaches: about the largest of a group of count values.
static size_t largest_of(const struct cn_rate_spectrum *spectrum, double count)
{
    return tail_of(spectrum->counts, none, fmax(1, (double)spectrum->total / count)).lowest;
}

// Returns the relative error of values rounded to multiples of (the largest of a group) / steps.
static double step_error(const struct cn_rate_spectrum *spectrum, const struct tail *all,
                         double steps)
{
    double step = magnitude_of(largest_of(spectrum, GROUP)) / steps;

    return fmin(1, step * step / 12 * (double)spectrum->total / all->square);
}

// Returns the relative error of values rounded to 2^bits levels between the smallest and the
// largest magnitude sent of a block; with 0 bits, to their mean.
static double level_error(const struct cn_rate_spectrum *spectrum, const struct tail *sent,
                          uint32_t bits)
{
    size_t highest = largest_of(spectrum, CN_UPDATE_BLOCK_COUNT);
    double octaves;

    if (bits == 0)
        return 1 - sent->sum * sent->sum / (sent->count * sent->square);
    octaves = highest > sent->lowest ? (double)(highest - sent->lowest + 1) / 8 : 1.0 / 8;
    octaves *= M_LN2 / (double)(1u << bits);
    return fmin(1, octaves * octaves / 12);
}

static double sparse_bits(const struct cn_update_rule *rule, double density)
{
    double block =
        density < CN_UPDATE_BLOCK_DENSITY ? CN_UPDATE_BLOCK_COUNT_MAX : CN_UPDATE_BLOCK_COUNT;
    double head = head_bits(rule->value_bits);

    if (!(density > 0))
        return head / block;
    return density * (gap_bits(density) + 1 + rule->value_bits) + head / block;
}

// Judges top-k: tensors with a density of their own by that, all others by the rule's density.
static void judge_topk(const struct cn_rate_spectrum *spectrum, const struct cn_update_rule *rule,
                       const struct tail *all, double *bits, double *kept, double *error)
{
    double shared = (double)(spectrum->total - spectrum->own_total);
    struct tail own = tail_of(spectrum->own, none, spectrum->own_sent);
    struct tail sent = tail_of(spectrum->counts, spectrum->own, ceil(rule->density * shared));
    double sum = spectrum->own_bits + rule->value_bits * spectrum->own_sent;

    if (shared > 0)
        sum += shared * sparse_bits(rule, sent.count / shared);
    *bits = spectrum->total ? sum / (double)spectrum->total : 0;
    *kept = (sent.square + own.square) / all->square;
    *error = level_error(spectrum, sent.count > 0 ? &sent : &own, rule->value_bits);
}

void cn_rate_judge(const struct cn_rate_spectrum *spectrum, const struct cn_update_rule *rule,
                   struct cn_rate_choice *choice)
{
    const double scale = 16 / GROUP, checksum = 16.0 / CN_UPDATE_BLOCK_COUNT;
    struct tail all = tail_of(spectrum->counts, none, (double)spectrum->total);
    double bits = 0, small_bits = 8 + scale, error = 0, kept = 1;

    switch (rule->mode) {
    case CN_UPDATE_RAW32:
        bits = small_bits = 32;
        break;
    case CN_UPDATE_BF16:
        bits = small_bits = 16;
        error = 1e-6;
        break;
    case CN_UPDATE_Q8:
        bits = 8 + scale;
        error = step_error(spectrum, &all, 127);
        break;
    case CN_UPDATE_Q4:
        bits = 4 + scale;
        error = step_error(spectrum, &all, 7);
        break;
    case CN_UPDATE_SIGN:
        bits = 1 + scale;
        error = 1 - all.sum * all.sum / ((double)spectrum->total * all.square);
        break;
    case CN_UPDATE_TOPK:
        judge_topk(spectrum, rule, &all, &bits, &kept, &error);
        bits -= checksum;
        break;
    default:
        small_bits = bits = -checksum;
        kept = 0;
        break;
    }
    if (!(all.square > 0)) // the change is zero
        kept = rule->mode == CN_UPDATE_SKIP ? 0 : 1, error = 0;
    choice->rule = *rule;
    choice->quality = kept * (1 - error);
    double total_bits = (bits + checksum) * (double)spectrum->total +
                        (small_bits + checksum) * (double)spectrum->others;

    if (rule->mode == CN_UPDATE_TOPK || rule->mode == CN_UPDATE_SIGN)
        total_bits -= (small_bits - (1 + scale)) * (double)spectrum->signs;
    choice->bytes = FRAME_BYTES + (uint64_t)(total_bits / 8);
}

// Finds the largest density whose frame fits the budget. Returns false when none does.
static bool fit_density(const struct cn_rate_spectrum *spectrum, uint64_t budget,
                        uint32_t value_bits, struct cn_rate_choice *choice)
{
    struct cn_update_rule rule = {CN_UPDATE_TOPK, DENSITY_MIN, value_bits};
    double low = DENSITY_MIN, high = DENSITY_MAX;

    cn_rate_judge(spectrum, &rule, choice);
    if (choice->bytes > budget)
        return false;
    for (int i = 0; i < 24; i++) {
        struct cn_rate_choice tried;

        rule.density = i ? (low + high) / 2 : high;
        cn_rate_judge(spectrum, &rule, &tried);
        if (tried.bytes <= budget) {
            low = rule.density;
            *choice = tried;
        } else {
            high = rule.density;
        }
        if (low == high)
            break;
    }
    return true;
}

static bool is_better(const struct cn_rate_choice *tried, const struct cn_rate_choice *best)
{
    if (fabs(tried->quality - best->quality) <= QUALITY_SLACK)
        return tried->bytes < best->bytes;
    return tried->quality > best->quality;
}

void cn_rate_choose(const struct cn_rate_spectrum *spectrum, uint64_t budget,
                    struct cn_rate_choice *choice)
{
    static const enum cn_update_mode dense[] = {CN_UPDATE_RAW32, CN_UPDATE_BF16, CN_UPDATE_Q8,
                                                CN_UPDATE_Q4, CN_UPDATE_SIGN};
    static const uint32_t value_bits[] = {3, 2, 0};
    const struct cn_update_rule skip = {.mode = CN_UPDATE_SKIP};
    struct cn_rate_choice tried;

    cn_rate_judge(spectrum, &skip, choice);
    for (size_t i = 0; i < sizeof(dense) / sizeof(dense[0]); i++) {
        const struct cn_update_rule rule = {.mode = dense[i]};

        cn_rate_judge(spectrum, &rule, &tried);
        if (tried.bytes <= budget && is_better(&tried, choice))
            *choice = tried;
    }
    for (size_t i = 0; i < sizeof(value_bits) / sizeof(value_bits[0]); i++) {
        if (spectrum->total && fit_density(spectrum, budget, value_bits[i], &tried) &&
            is_better(&tried, choice))
            *choice = tried;
    }
    if (choice->quality < QUALITY_MIN)
        cn_rate_judge(spectrum, &skip, choice);
}

void cn_rate_plan(const struct cn_rate_spectrum *spectrum,
                  const struct cn_rate_situation *situation, struct cn_rate_choice *choice)
{
    double transfer_s, left_s, steps;

    cn_rate_choose(spectrum, cn_rate_budget(situation), choice);
    transfer_s = 8 * (double)choice->bytes / cn_rate_goodput(&situation->link);
    choice->steps = situation->steps;
    if (!(situation->step_s > 0))
        return;
    left_s = (1 - MARGIN) * situation->remaining_s - transfer_s;
    steps = fmin(TRAIN_TO_TRANSFER * transfer_s, left_s) / situation->step_s;
    if (steps > situation->steps_most)
        choice->steps = situation->steps_most;
    else if (steps > situation->steps)
        choice->steps = (uint32_t)steps;
}
