// sweep_table.c - prints the trials of a sweep.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "aggregator/show/bytes_text.h"
#include "aggregator/sweep/sweep.h"
#include "runtime/command/terminal/wrap.h"

// Orders the better trial first: the one that came further, then the lower loss, then the lower
// number.
static int by_place(const void *left, const void *right)
{
    const struct cn_sweep_result *a = left, *b = right;
    if (a->rung != b->rung)
        return a->rung > b->rung ? -1 : 1;
    if (a->loss != b->loss)
        return a->loss < b->loss ? -1 : 1;
    return a->trial < b->trial ? -1 : 1;
}

static void print_row(const struct cn_sweep *sweep, const struct cn_sweep_result *result)
{
    char values[CN_SWEEP_VALUES_SIZE], up[24], down[24], loss[24] = "failed", accuracy[24] = "-";
    char line[CN_SWEEP_VALUES_SIZE + 160];
    cn_sweep_space_values(&sweep->space, result->trial, values);
    cn_bytes_text(result->bytes_up, up);
    cn_bytes_text(result->bytes_down, down);
    if (isfinite(result->loss))
        snprintf(loss, sizeof(loss), "%.5g", result->loss);
    if (!isnan(result->accuracy))
        snprintf(accuracy, sizeof(accuracy), "%.4f", result->accuracy);
    snprintf(line, sizeof(line), "%5u  %6u  %9s  %8s  %10s  %10s  %s", result->trial + 1,
             result->rounds, loss, accuracy, up, down, values);
    cn_wrap_print(line, CN_WRAP_INDENT);
}

static void print_values_json(const struct cn_sweep *sweep, uint32_t trial)
{
    // Keys and values have no characters that JSON writes otherwise (sweep_space.h).
    for (uint32_t i = 0; i < sweep->space.count; i++) {
        char value[CN_SWEEP_VALUE_SIZE];
        cn_sweep_space_value(&sweep->space, trial, i, value);
        printf("%s\"%s\":\"%s\"", i ? "," : "", sweep->space.keys[i].path, value);
    }
}

static void print_json(const struct cn_sweep *sweep, const struct cn_sweep_result *results,
                       uint32_t count)
{
    printf("{\"trials\":[");
    for (uint32_t i = 0; i < count; i++) {
        const struct cn_sweep_result *result = &results[i];
        printf("%s{\"trial\":%u,\"values\":{", i ? "," : "", result->trial + 1);
        print_values_json(sweep, result->trial);
        printf("},\"rung\":%u,\"rounds\":%u", result->rung + 1, result->rounds);
        if (isfinite(result->loss))
            printf(",\"loss\":%.9g", result->loss);
        if (!isnan(result->accuracy))
            printf(",\"accuracy\":%.9g", result->accuracy);
        printf(",\"bytes_up\":%" PRIu64 ",\"bytes_down\":%" PRIu64 ",\"digest\":\"%s\"}",
               result->bytes_up, result->bytes_down, result->digest);
    }
    printf("]");
    if (sweep->winner != UINT32_MAX)
        printf(",\"winner\":%u", sweep->winner + 1);
    printf("}\n");
}

void cn_sweep_print(const struct cn_sweep *sweep, bool json)
{
    struct cn_sweep_result results[CN_SWEEP_TRIALS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < sweep->space.trials; i++) {
        const struct cn_sweep_result *newest = cn_sweep_record_newest(&sweep->record, i);
        if (newest)
            results[count++] = *newest;
    }
    qsort(results, count, sizeof(results[0]), by_place);
    if (json) {
        print_json(sweep, results, count);
        return;
    }
    printf("\n%5s  %6s  %9s  %8s  %10s  %10s  %s\n", "trial", "rounds", "loss", "accuracy",
           "msgs up", "msgs down", "values");
    for (uint32_t i = 0; i < count; i++)
        print_row(sweep, &results[i]);
}
