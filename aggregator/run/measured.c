#include "aggregator/run/measured.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ACCURACY_MARGIN 0.35 // distance from the median at which no group is named
// Distance of a loss at which no group is named, as a share of the median's size.
#define LOSS_MARGIN 0.75

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

// Returns the largest distance from the median that does not stand out: a margin, plus 7/4 of the
// largest distance among all groups except the farthest quarter.
static double far_from(double *values, size_t count, double median, double margin)
{
    for (size_t i = 0; i < count; i++)
        values[i] = fabs(values[i] - median);
    qsort(values, count, sizeof(*values), compare);
    return values[count - 1 - (count + 1) / 4] * 7 / 4 + margin;
}

void cn_measured_find(struct cn_measured_entry *entries, size_t count, double *scratch,
                      struct cn_measured_median *median)
{
    for (size_t i = 0; i < count; i++)
        scratch[i] = entries[i].loss;
    qsort(scratch, count, sizeof(*scratch), compare);
    median->loss = scratch[count / 2];
    double loss_most = far_from(scratch, count, median->loss, LOSS_MARGIN * fabs(median->loss));
    for (size_t i = 0; i < count; i++)
        scratch[i] = entries[i].accuracy;
    qsort(scratch, count, sizeof(*scratch), compare);
    median->accuracy = scratch[(count - 1) / 2];
    double accuracy_most = far_from(scratch, count, median->accuracy, ACCURACY_MARGIN);
    for (size_t i = 0; i < count; i++)
        entries[i].stands_out = count >= CN_MEASURED_LEAST &&
                                (fabs(entries[i].loss - median->loss) > loss_most ||
                                 fabs(entries[i].accuracy - median->accuracy) > accuracy_most);
}

// --- outliers of a round in the ledger ---

struct claim {
    char group[CN_NAME_SIZE];
    uint32_t version; // that the group measured; with asynchronous rounds an older one, too
};

struct groups {
    struct cn_measured_entry *entries;
    struct claim *claims; // claims[i] belongs to entries[i]
    size_t count;
};

static cn_err take_group(void *context, const struct cn_ledger_contribution *accepted)
{
    struct groups *groups = context;
    size_t count = groups->count;

    if (accepted->held_out_count == 0)
        return CN_OK;
    if ((count & (count - 1)) == 0) { // the arrays are full: doubles them
        size_t capacity = count ? 2 * count : 1;
        void *entries = realloc(groups->entries, capacity * sizeof(*groups->entries));
        if (entries)
            groups->entries = entries;
        void *claims = entries ? realloc(groups->claims, capacity * sizeof(*groups->claims)) : NULL;
        if (!claims)
            return CN_ENOMEM;
        groups->claims = claims;
    }
    groups->entries[count] = (struct cn_measured_entry){
        .loss = accepted->held_out_loss / (double)accepted->held_out_count,
        .accuracy = (double)accepted->held_out_correct / (double)accepted->held_out_count};
    groups->claims[count].version = accepted->round - 1;
    snprintf(groups->claims[count].group, CN_NAME_SIZE, "%s", accepted->group);
    groups->count++;
    return CN_OK;
}

static void tell(const struct groups *groups, const struct cn_measured_median *median,
                 cn_measured_visit *visit, void *context)
{
    char text[CN_MEASURED_TEXT];

    for (size_t i = 0; i < groups->count; i++) {
        if (!groups->entries[i].stands_out)
            continue;
        snprintf(text, sizeof(text),
                 "group %s says version %u has loss %.4g and accuracy %.4g, the median of %zu "
                 "groups is %.4g and %.4g",
                 groups->claims[i].group, groups->claims[i].version, groups->entries[i].loss,
                 groups->entries[i].accuracy, groups->count, median->loss, median->accuracy);
        visit(context, groups->claims[i].group, text);
    }
}

cn_err cn_measured_outliers(struct cn_ledger *ledger, uint32_t round, cn_measured_visit *visit,
                            void *context)
{
    struct groups groups = {0};
    struct cn_measured_median median;
    double *scratch = NULL;
    cn_err err = cn_ledger_contributions(ledger, round, take_group, &groups);

    if (!err && groups.count >= CN_MEASURED_LEAST) {
        scratch = calloc(groups.count, sizeof(*scratch));
        err = scratch ? CN_OK : CN_ENOMEM;
    }
    if (scratch) {
        cn_measured_find(groups.entries, groups.count, scratch, &median);
        tell(&groups, &median, visit, context);
    }
    free(scratch);
    free(groups.entries);
    free(groups.claims);
    return err;
}

// --- bounds of a measurement ---

cn_err cn_measured_bound(struct cn_ledger *ledger, const struct cn_roster_group *group,
                         struct cn_ledger_contribution *contribution)
{
    uint64_t each, said = contribution->held_out_count, most = said;
    cn_err err = cn_ledger_first_measured(ledger, contribution->group, &each);

    if (err)
        return err;
    if (each && each < most / contribution->boards)
        most = each * contribution->boards;
    if (group && group->max_weight && most > group->max_weight)
        most = group->max_weight;
    if (most == said)
        return CN_OK;
    double share = (double)most / (double)said;
    contribution->held_out_count = most;
    contribution->held_out_loss *= share;
    contribution->held_out_correct =
        (uint64_t)((unsigned __int128)contribution->held_out_correct * most / said);
    return CN_OK;
}
