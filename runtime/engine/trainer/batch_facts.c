#include "runtime/engine/trainer/batch_facts.h"

#include <stdlib.h>
#include <string.h>

cn_err cn_batch_facts_init(const struct cn_graph *graph, const size_t *places,
                           struct cn_batch_facts *facts)
{
    *facts = (struct cn_batch_facts){.count = graph->fact_count};
    for (uint32_t i = 0; i < graph->input_count; i++)
        facts->sample_words += graph->values[graph->inputs[i]].words;
    for (uint32_t i = 0; i < graph->fact_count; i++) {
        struct cn_batch_fact *fact = &facts->facts[i];

        fact->fact = graph->facts[i];
        fact->place = places[i];
        fact->words = graph->values[fact->fact.value].words;
        if (fact->fact.kind != CN_FACT_SIZE)
            fact->labels = graph->values[graph->inputs[fact->fact.labels]].words;
        for (uint32_t j = 0; fact->labels && j < fact->fact.labels; j++)
            fact->first += graph->values[graph->inputs[j]].words;
        fact->row = calloc(fact->words + 1, sizeof(*fact->row));
        fact->counts = calloc(fact->words + 1, sizeof(*fact->counts));
        if (!fact->row || !fact->counts) {
            cn_batch_facts_deinit(facts);
            return CN_ENOMEM;
        }
    }
    return CN_OK;
}

void cn_batch_facts_deinit(struct cn_batch_facts *facts)
{
    for (uint32_t i = 0; i < facts->count; i++) {
        free(facts->facts[i].row);
        free(facts->facts[i].counts);
    }
    *facts = (struct cn_batch_facts){0};
}

// Counts the labels of the batch, by class where there is room for each.
static cn_err count_labels(struct cn_batch_fact *fact, const struct cn_batch *batch,
                           size_t sample_words, uint64_t *counted)
{
    bool by_class = fact->fact.kind == CN_FACT_CLASSES;

    *counted = 0;
    memset(fact->counts, 0, fact->words * sizeof(*fact->counts));
    for (size_t n = 0; n < batch->count; n++)
        for (size_t i = 0; i < fact->labels; i++) {
            int32_t label;

            memcpy(&label, &batch->inputs[n * sample_words + fact->first + i], sizeof(label));
            if (label == fact->fact.ignore)
                continue;
            if (label < 0 || (size_t)label >= fact->fact.classes)
                return CN_ERANGE;
            ++*counted;
            if (by_class)
                fact->counts[label]++;
        }
    return CN_OK;
}

static cn_err find(struct cn_batch_fact *fact, const struct cn_batch *batch, size_t sample_words)
{
    double all = (double)batch->count * (double)fact->labels;
    uint64_t counted;
    cn_err err;

    if (fact->fact.kind == CN_FACT_SIZE) {
        fact->row[0] = (float)batch->count;
        return CN_OK;
    }
    err = count_labels(fact, batch, sample_words, &counted);
    if (err)
        return err;
    if (fact->fact.kind == CN_FACT_COUNTED)
        fact->row[0] = counted ? (float)(all / (double)counted) : 0;
    else
        for (size_t i = 0; i < fact->words; i++)
            fact->row[i] = (float)((double)fact->counts[i] / all);
    return CN_OK;
}

cn_err cn_batch_facts_find(struct cn_batch_facts *facts, const struct cn_batch *batch)
{
    cn_err err = CN_OK;

    for (uint32_t i = 0; !err && batch->count && i < facts->count; i++)
        err = find(&facts->facts[i], batch, facts->sample_words);
    return err;
}

void cn_batch_facts_write(const struct cn_batch_facts *facts, float *arena)
{
    for (uint32_t i = 0; i < facts->count; i++)
        memcpy(arena + facts->facts[i].place, facts->facts[i].row,
               facts->facts[i].words * sizeof(float));
}
