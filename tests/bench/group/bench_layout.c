// bench_layout.c - prints what layout_search chooses for four models, 2, 4 and 8 boards, and links
// of 0.1, 1 and 10 Gbit/s. Everything is computed, nothing is measured.
//
// Boards of 1.5 TFLOP/s, blocks of equal work, 4 micro-batches a member or more, 94 % of the link,
// 0.3 ms for a message without bytes. In every case no memory limit holds a layout back.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/group/layout_text.h"

static const struct model {
    const char *name;
    uint32_t blocks;
    uint64_t weights, activations; // bytes; activations of a micro-batch at a cut
    double micro_us;               // computing time of a micro-batch
} models[] = {
    {"BERT-base, 128 tokens, b = 8", 12, 440000000, 3100000, 379000},
    {"GPT-2, 512 tokens, b = 2", 12, 496000000, 3100000, 547000},
    {"ViT-B/16, b = 8", 12, 346000000, 4800000, 560000},
    {"ResNet-50, b = 16", 16, 102400000, 12800000, 160000},
};

static void fill(const struct model *model, uint32_t count, uint64_t kbps,
                 struct cn_layout_facts *facts)
{
    *facts = (struct cn_layout_facts){.count = count,
                                      .place_count = model->blocks - 1,
                                      .forward_share = 1.0 / 3,
                                      .call_us = 300,
                                      .bucket = 1u << 20,
                                      .micro = 4,
                                      .most_parts = CN_PIPELINE_PARTS_MAX};
    for (uint32_t i = 0; i < model->blocks; i++) {
        bool ends = i + 1 == model->blocks;

        facts->places[i] =
            (struct cn_layout_place){.nodes = i + 1,
                                     .forward = ends ? 0 : model->activations,
                                     .backward = ends ? 0 : model->activations,
                                     .gradients = model->weights * (i + 1) / model->blocks};
        for (uint32_t m = 0; m < count; m++)
            facts->members[m].us[i] = model->micro_us * (i + 1) / model->blocks;
    }
    for (uint32_t m = 0; m < count; m++)
        facts->members[m].kbps = kbps * 94 / 100;
}

static void print_case(const struct model *model, uint32_t count, uint64_t kbps,
                       struct cn_layout_search *search)
{
    struct cn_layout_facts facts;
    const struct cn_layout_candidate *best, *second;
    char first[96], next[96];

    fill(model, count, kbps, &facts);
    cn_layout_search(&facts, search);
    best = &search->candidates[search->best];
    second = &search->candidates[search->second];
    cn_layout_name(best, first, sizeof(first));
    cn_layout_name(second, next, sizeof(next));
    printf("| %s | %u | %g | %s | %.1f | %s | %.2f |\n", model->name, count, 1e-6 * (double)kbps,
           first, 1e-6 * best->step_us, next, cn_layout_rate(best) / cn_layout_rate(second));
}

// Prints how long the search takes on this machine for boards that are all unlike, with as many
// places as are compared: the others of a group wait for it.
static void time_search(uint32_t count, struct cn_layout_search *search)
{
    static const struct model deep = {"", CN_LAYOUT_PLACES + 1, 440000000, 3100000, 379000};
    struct cn_layout_facts facts;
    struct timespec begin, end;

    fill(&deep, count, 1000000, &facts);
    for (uint32_t m = 0; m < count; m++) {
        facts.members[m].kbps /= 1 + m % 5;
        for (uint32_t i = 0; i < CN_LAYOUT_PLACES + 1; i++)
            facts.members[m].us[i] *= 1 + 0.2 * m;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    cn_layout_search(&facts, search);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%u unlike boards, %d places: %.2f s\n", count, CN_LAYOUT_PLACES,
           (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
}

int main(void)
{
    struct cn_layout_search *search = calloc(1, sizeof(*search));

    if (!search)
        return 1;
    printf("| model | boards | Gbit/s | chosen | step s | next best | times as long |\n"
           "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        for (uint32_t count = 2; count <= 8; count *= 2)
            for (uint64_t kbps = 100000; kbps <= 10000000; kbps *= 10)
                print_case(&models[i], count, kbps, search);
    for (uint32_t count = 4; count <= 16; count *= 2)
        time_search(count, search);
    free(search);
    return 0;
}
