#include "runtime/group/layout_text.h"

#include <inttypes.h>

static const char *plural(uint32_t count)
{
    return count == 1 ? "" : "s";
}

void cn_layout_name(const struct cn_layout_candidate *layout, char *text, size_t size)
{
    uint32_t micro = layout->parts * layout->micro;
    char stage[24] = "";

    if (layout->shards > 1)
        snprintf(stage, sizeof(stage), ", stage %u", layout->stage);
    if (layout->parts > 1)
        snprintf(text, size, "%u chain%s of %u parts, %u micro-batches a step", layout->replicas,
                 plural(layout->replicas), layout->parts, micro);
    else
        snprintf(text, size, "%u replica%s of %u shard%s%s, %u micro-batch%s a step",
                 layout->replicas, plural(layout->replicas), layout->shards, plural(layout->shards),
                 stage, micro, micro == 1 ? "" : "es");
}

static void put_memory(const struct cn_layout_candidate *layout, const char *const *names,
                       FILE *out)
{
    const struct cn_layout_tightest *tightest = &layout->tightest;

    if (!tightest->has)
        fputs("no member says how much memory it has", out);
    else
        fprintf(out, "%" PRIu64 " KiB of %" PRIu64 " KiB on %.63s", tightest->needs >> 10,
                tightest->has >> 10, names[tightest->member]);
    if (layout->missing)
        fprintf(out, ", %" PRIu64 " KiB are missing: it computes twice or in parts",
                (layout->missing + 1023) >> 10);
}

// Says what keeps another layout from being the best.
static void put_other(const struct cn_layout_search *search, uint32_t index, const char *what,
                      const char *const *names, FILE *out)
{
    const struct cn_layout_candidate *best = &search->candidates[search->best], *second;
    char name[96];

    if (index == search->count)
        return;
    second = &search->candidates[index];
    cn_layout_name(second, name, sizeof(name));
    fprintf(out, "; %s: %s", what, name);
    if (second->missing) {
        fprintf(out, ", which lacks %" PRIu64 " KiB on %.63s", (second->missing + 1023) >> 10,
                names[second->tightest.member]);
        return;
    }
    fprintf(out, ", %.2f times as long for a sample, of which boards wait %.0f %%",
            cn_layout_rate(best) / cn_layout_rate(second),
            100 * (second->step_us - second->busy_us) / second->step_us);
}

// Returns the quickest layout that fits of the kind that neither the best nor the next best is of:
// with a cut or without one.
static uint32_t other_kind(const struct cn_layout_search *search)
{
    bool is_cut = search->candidates[search->best].parts > 1;
    uint32_t found = search->count;

    if (search->second == search->count || (search->candidates[search->second].parts > 1) != is_cut)
        return found;
    for (uint32_t i = 0; i < search->count; i++) {
        const struct cn_layout_candidate *candidate = &search->candidates[i];

        if ((candidate->parts > 1) != is_cut && !candidate->missing &&
            (found == search->count ||
             cn_layout_rate(candidate) > cn_layout_rate(&search->candidates[found])))
            found = i;
    }
    return found;
}

static void put_unfit(const struct cn_layout_search *search, const char *const *names, FILE *out)
{
    const struct cn_layout_candidate *nearest = NULL;
    uint32_t count = 0;

    for (uint32_t i = 0; i < search->count; i++) {
        const struct cn_layout_candidate *candidate = &search->candidates[i];

        count += candidate->missing > 0;
        if (candidate->missing && i != search->best && i != search->second &&
            (!nearest || candidate->missing < nearest->missing))
            nearest = candidate;
    }
    if (nearest)
        fprintf(out, "; %u layout%s not fit: the nearest lacks %" PRIu64 " KiB on %.63s", count,
                count == 1 ? " does" : "s do", (nearest->missing + 1023) >> 10,
                names[nearest->tightest.member]);
}

void cn_layout_text(const struct cn_layout_search *search, const char *const *names, char *text,
                    size_t size)
{
    const struct cn_layout_candidate *best = &search->candidates[search->best];
    FILE *out = fmemopen(text, size, "w");
    char name[96];

    text[0] = '\0';
    if (!out)
        return;
    cn_layout_name(best, name, sizeof(name));
    fprintf(out, "%s: ", name);
    put_memory(best, names, out);
    fprintf(out, "; %.3g ms a step predicted, of which boards wait %.0f %%", 1e-3 * best->step_us,
            best->step_us > 0 ? 100 * (best->step_us - best->busy_us) / best->step_us : 0);
    put_other(search, search->second, "next best", names, out);
    put_other(search, other_kind(search), best->parts > 1 ? "without a cut" : "with a cut", names,
              out);
    put_unfit(search, names, out);
    fclose(out);
    text[size - 1] = '\0';
}

static void put_row(const struct cn_layout_candidate *layout, bool chosen, const char *const *names,
                    FILE *out)
{
    char name[96];

    cn_layout_name(layout, name, sizeof(name));
    fprintf(out, "  %s %-56s %10.2f ms, %6.1f micro-batches/s, waiting %3.0f %%",
            chosen ? "*" : " ", name, 1e-3 * layout->step_us, cn_layout_rate(layout),
            layout->step_us > 0 ? 100 * (layout->step_us - layout->busy_us) / layout->step_us : 0);
    if (layout->missing)
        fprintf(out, "; lacks %" PRIu64 " KiB on %.63s", (layout->missing + 1023) >> 10,
                names[layout->tightest.member]);
    fputc('\n', out);
}

// Returns whether a row comes before another: those that fit first, the quickest first.
static bool is_before(const struct cn_layout_search *search, uint32_t a, uint32_t b)
{
    const struct cn_layout_candidate *x = &search->candidates[a], *y = &search->candidates[b];
    double rate_x = cn_layout_rate(x), rate_y = cn_layout_rate(y);

    if ((x->missing > 0) != (y->missing > 0))
        return y->missing > 0;
    return rate_x > rate_y || (rate_x >= rate_y && a < b);
}

void cn_layout_table(const struct cn_layout_search *search, const char *const *names, FILE *out)
{
    for (uint32_t row = 0; row < search->count; row++)
        for (uint32_t i = 0; i < search->count; i++) {
            uint32_t before = 0;

            for (uint32_t j = 0; j < search->count; j++)
                before += j != i && is_before(search, j, i);
            if (before == row)
                put_row(&search->candidates[i], i == search->best, names, out);
        }
}
