// dataset_sum.c - a sum over all values of a data set, by which members find out that theirs
// differ.
#include <string.h>

#include "runtime/engine/data/dataset_private.h"
#include "runtime/port/crypto.h"

#define WORDS 4096 // words that are converted at a time

// Converts values as a batch has them, before they are scaled: so the sum does not depend on the
// format of a file.
static void convert(const struct cn_npy *npy, bool integers, size_t first, size_t count,
                    uint32_t *words)
{
    if (npy->kind == CN_NPY_FLOAT) {
        memcpy(words, npy->data + first * sizeof(float), count * sizeof(float));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int32_t number = integers ? (int32_t)cn_npy_int(npy, first + i) : npy->data[first + i];
        float value = (float)number;

        memcpy(&words[i], integers ? (const void *)&number : &value, sizeof(words[i]));
    }
}

static uint32_t add_column(const struct column *column, bool integers, uint32_t sum)
{
    const struct cn_npy *npy = &column->source.array;
    uint64_t count = npy->count;
    uint32_t words[WORDS];

    sum = cn_crc32c(sum, &count, sizeof(count));
    for (size_t i = 0; i < count; i += WORDS) {
        size_t some = count - i < WORDS ? (size_t)(count - i) : WORDS;

        convert(npy, integers, i, some, words);
        sum = cn_crc32c(sum, words, some * sizeof(*words));
    }
    return sum;
}

uint32_t cn_dataset_sum(const struct cn_dataset *dataset)
{
    uint32_t sum = cn_crc32c(0, dataset->counts, sizeof(dataset->counts));

    for (size_t s = 0; s < dataset->shard_count; s++) {
        const struct shard *shard = dataset->shards[s];

        for (uint32_t i = 0; i < shard->input_count; i++)
            sum = add_column(&shard->inputs[i], shard->inputs[i].integers, sum);
        if (shard->labels.words)
            sum = add_column(&shard->labels, true, sum);
    }
    return sum;
}
