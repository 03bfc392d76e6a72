#include "aggregator/trial/trial_split.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/random.h"

#define NOBODY (UINT32_MAX - 1) // owner of a row that was not given yet
#define HELD_OUT 10             // one row in HELD_OUT is the gateway's

// Keys that make draws with one seed independent of each other.
enum stream { STREAM_ORDER = 1, STREAM_SHARES = 2 };

struct classes {
    int64_t *values; // different labels, in ascending order
    size_t *counts;  // rows of each label that boards may get
    size_t count;
};

struct division {
    const struct cn_trial_split *split;
    struct classes classes;
    double *shares;                     // groups for each class: bounds of their shares, up to 1
    uint32_t next[CN_TRIAL_BOARDS_MAX]; // of each group: the number of rows given to it
    size_t given[CN_TRIAL_BOARDS_MAX];  // rows of each owner
};

uint32_t cn_trial_first_board(const struct cn_trial_split *split, uint32_t group)
{
    return (uint32_t)((uint64_t)group * split->boards / split->groups);
}

uint32_t cn_trial_group(const struct cn_trial_split *split, uint32_t board)
{
    uint32_t group = 0;
    while (cn_trial_first_board(split, group + 1) <= board)
        group++;
    return group;
}

uint32_t cn_trial_owners(const struct cn_trial_split *split)
{
    return split->shared ? split->groups : split->boards;
}

uint32_t cn_trial_owner(const struct cn_trial_split *split, uint32_t board)
{
    return split->shared ? cn_trial_group(split, board) : board;
}

void cn_trial_owner_name(const struct cn_trial_split *split, uint32_t owner,
                         char name[CN_TRIAL_OWNER_SIZE])
{
    snprintf(name, CN_TRIAL_OWNER_SIZE, "%s-%u", split->shared ? "group" : "board", owner + 1);
}

void cn_trial_hold_out(uint64_t seed, bool hold_out, size_t rows, uint32_t *owners)
{
    size_t central = hold_out ? rows / HELD_OUT : 0;
    for (size_t i = 0; i < rows; i++)
        owners[i] = NOBODY;
    for (size_t i = 0; i < central; i++)
        owners[cn_random_permute(seed, rows, i)] = CN_TRIAL_CENTRAL;
}

// --- the labels ---

static int compare_labels(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static size_t find_class(const struct classes *classes, int64_t label)
{
    const int64_t *found =
        bsearch(&label, classes->values, classes->count, sizeof(label), compare_labels);
    assert(found);
    return (size_t)(found - classes->values);
}

static cn_err list_classes(struct classes *classes, const int64_t *labels, size_t rows,
                           const uint32_t *owners)
{
    size_t count = 0;
    classes->values = malloc((rows + 1) * sizeof(*classes->values));
    if (!classes->values)
        return CN_ENOMEM;
    for (size_t i = 0; i < rows; i++)
        if (owners[i] == NOBODY)
            classes->values[count++] = labels[i];
    qsort(classes->values, count, sizeof(*classes->values), compare_labels);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || classes->values[i] != classes->values[classes->count - 1])
            classes->values[classes->count++] = classes->values[i];
    classes->counts = calloc(classes->count + 1, sizeof(*classes->counts));
    if (!classes->counts)
        return CN_ENOMEM;
    for (size_t i = 0; i < rows; i++)
        if (owners[i] == NOBODY)
            classes->counts[find_class(classes, labels[i])]++;
    return CN_OK;
}

// --- the groups' shares of each label ---

// Gives each group whole labels that follow each other, at least one, with about equal numbers of
// rows.
static void share_labels(struct division *division)
{
    const struct classes *classes = &division->classes;
    uint32_t groups = division->split->groups, group = 0;
    size_t total = 0, before = 0;
    bool has_one = false; // whether group has a label
    for (size_t i = 0; i < classes->count; i++)
        total += classes->counts[i];
    for (size_t i = 0; i < classes->count; i++) {
        // The label's middle decides, as long as enough labels are left for the groups behind.
        bool full = (before + classes->counts[i] / 2) * groups >= total * (group + 1);
        bool last_chance = classes->count - i <= groups - 1 - group;
        if (has_one && group + 1 < groups && (full || last_chance))
            group++;
        has_one = true;
        before += classes->counts[i];
        for (uint32_t g = 0; g < groups; g++)
            division->shares[i * groups + g] = g >= group;
    }
}

struct draws {
    uint64_t key, high, low;
};

// Returns a number between 0 and 1, neither of them.
static double draw(struct draws *draws)
{
    uint32_t words[4];
    cn_random_block(draws->key, draws->high, draws->low++, words);
    return ((double)words[0] + 0.5) / 4294967296.0;
}

static double draw_normal(struct draws *draws)
{
    double radius = sqrt(-2 * log(draw(draws)));
    return radius * cos(6.283185307179586 * draw(draws));
}

// Draws from the gamma distribution of shape alpha (Marsaglia and Tsang, "A simple method for
// generating gamma variables", 2000). Below 1, draws for alpha + 1 and multiplies by U^(1/alpha).
static double draw_gamma(struct draws *draws, double alpha)
{
    double boost = alpha < 1 ? pow(draw(draws), 1 / alpha) : 1;
    double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = draw_normal(draws), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(draw(draws)) < x * x / 2 + d - d * v + d * log(v))
            return boost * d * v;
    }
}

static void share_by_dirichlet(struct division *division)
{
    const struct cn_trial_split *split = division->split;
    for (size_t i = 0; i < division->classes.count; i++) {
        struct draws draws = {.key = split->seed, .high = (uint64_t)STREAM_SHARES << 32 | i};
        double *bounds = division->shares + i * split->groups, sum = 0;
        for (uint32_t g = 0; g < split->groups; g++)
            bounds[g] = sum += draw_gamma(&draws, split->alpha);
        // With a tiny alpha all numbers may be 0: one group then has all of the label.
        uint32_t lucky = (uint32_t)(draw(&draws) * split->groups);
        for (uint32_t g = 0; g < split->groups; g++)
            bounds[g] = sum > 0 ? bounds[g] / sum : g >= lucky;
    }
}

// --- the rows ---

static uint32_t choose_group(const struct division *division, size_t class, size_t place)
{
    const double *bounds = division->shares + class * division->split->groups;
    double at = ((double)place + 0.5) / (double)division->classes.counts[class];
    uint32_t group = 0;
    while (group + 1 < division->split->groups && at >= bounds[group])
        group++;
    return group;
}

static void give(struct division *division, uint32_t owner, uint32_t *row)
{
    *row = owner;
    division->given[owner]++;
}

// Deals the rows to all owners in turn, in an order drawn by the seed.
static void deal_to_all(struct division *division, size_t rows, uint32_t *owners)
{
    uint32_t owner = 0;
    for (size_t i = 0; i < rows; i++) {
        size_t row = cn_random_permute(division->split->seed ^ STREAM_ORDER, rows, i);
        if (owners[row] != NOBODY)
            continue;
        give(division, owner, &owners[row]);
        owner = (owner + 1) % cn_trial_owners(division->split);
    }
}

// Finds the owners of a group's rows.
static void find_owners(const struct cn_trial_split *split, uint32_t group, uint32_t *first,
                        uint32_t *count)
{
    *first = split->shared ? group : cn_trial_first_board(split, group);
    *count = split->shared ? 1 : cn_trial_first_board(split, group + 1) - *first;
}

// Deals the rows of each label to groups by their shares, and in a group to its owners in turn.
static cn_err deal_to_groups(struct division *division, const int64_t *labels, size_t rows,
                             uint32_t *owners)
{
    size_t *places = calloc(division->classes.count + 1, sizeof(*places));
    if (!places)
        return CN_ENOMEM;
    for (size_t i = 0; i < rows; i++) {
        size_t row = cn_random_permute(division->split->seed ^ STREAM_ORDER, rows, i);
        if (owners[row] != NOBODY)
            continue;
        size_t class = find_class(&division->classes, labels[row]);
        uint32_t group = choose_group(division, class, places[class]++);
        uint32_t first, count;
        find_owners(division->split, group, &first, &count);
        give(division, first + division->next[group]++ % count, &owners[row]);
    }
    free(places);
    return CN_OK;
}

static cn_err check_owners(const struct division *division, struct cn_diag *diag)
{
    char name[CN_TRIAL_OWNER_SIZE];
    uint32_t count = cn_trial_owners(division->split);
    for (uint32_t i = 0; i < count; i++) {
        if (division->given[i])
            continue;
        cn_trial_owner_name(division->split, i, name);
        cn_diag_add(diag, "%s of %u would get no row; %s", name, count,
                    division->split->kind == CN_TRIAL_DIRICHLET
                        ? "a larger --alpha or another --seed divides less unequally"
                    : division->split->shared ? "there are too few rows for that many groups"
                                              : "there are too few rows for that many boards");
        return CN_EINVAL;
    }
    return CN_OK;
}

static cn_err divide_by_label(struct division *division, const int64_t *labels, size_t rows,
                              uint32_t *owners, struct cn_diag *diag)
{
    const struct cn_trial_split *split = division->split;
    cn_err err = list_classes(&division->classes, labels, rows, owners);
    if (err)
        return err;
    size_t count = division->classes.count;
    if (split->kind == CN_TRIAL_LABELS && count < split->groups) {
        cn_diag_add(diag,
                    "--split labels: the data has %zu different labels; expected at least one "
                    "for each of %u groups; use --split dirichlet, or --groups %zu",
                    count, split->groups, count);
        return CN_EINVAL;
    }
    if (count > CN_TRIAL_LABELS_MAX) {
        cn_diag_add(diag, "--split: the data has %zu different labels; expected at most %d", count,
                    CN_TRIAL_LABELS_MAX);
        return CN_EINVAL;
    }
    division->shares = calloc(count * split->groups + 1, sizeof(*division->shares));
    if (!division->shares)
        return CN_ENOMEM;
    if (split->kind == CN_TRIAL_LABELS)
        share_labels(division);
    else
        share_by_dirichlet(division);
    return deal_to_groups(division, labels, rows, owners);
}

cn_err cn_trial_divide(const struct cn_trial_split *split, const int64_t *labels, size_t rows,
                       uint32_t *owners, struct cn_diag *diag)
{
    struct division division = {.split = split};
    cn_err err = CN_OK;
    if (split->kind == CN_TRIAL_IID)
        deal_to_all(&division, rows, owners);
    else
        err = divide_by_label(&division, labels, rows, owners, diag);
    if (!err)
        err = check_owners(&division, diag);
    free(division.classes.values);
    free(division.classes.counts);
    free(division.shares);
    return err;
}
