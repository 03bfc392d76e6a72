#include "aggregator/sweep/sweep_space.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/random.h"
#include "runtime/profile/profile.h"
#include "runtime/profile/schema.h"

// Keys that a sweep may not change: each trial has to learn the same model from the same samples,
// and to be measured in the same way, for as many rounds as the sweep says.
static const char *const fixed[] = {"name",    "model", "seed", "rounds.count", "loss",
                                    "central", "stop",  "data", "gate"};

// --- keys ---

static bool is_fixed(const char *path)
{
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        size_t length = strlen(fixed[i]);
        if (strncmp(path, fixed[i], length) == 0 && (!path[length] || path[length] == '.'))
            return true;
    }
    return false;
}

static bool is_single(enum cn_value_type type)
{
    switch (type) {
    case CN_VALUE_CHOICE:
    case CN_VALUE_BOOL:
    case CN_VALUE_COUNT:
    case CN_VALUE_LONG:
    case CN_VALUE_NUMBER:
    case CN_VALUE_SHARE:
    case CN_VALUE_SIZE:
    case CN_VALUE_DURATION:
        return true;
    default:
        return false;
    }
}

// Says why a key cannot be swept: a row of the schema, a section or none of them.
static void refuse_key(const char *path, bool is_row, bool is_section, struct cn_diag *diag)
{
    char suggestion[CN_PATH_SIZE];
    if (is_fixed(path) && (is_row || is_section)) {
        cn_diag_add(diag,
                    "%s: cannot be swept: it says what is learnt, how it is measured or for how "
                    "long, so trials with other values could not be compared",
                    path);
        return;
    }
    if (is_row) {
        cn_diag_add(diag, "%s: cannot be swept: it has no single value", path);
        return;
    }
    if (is_section) {
        cn_diag_add(diag, "%s: is a section of a job; name one of its keys, as in train.batch",
                    path);
        return;
    }
    cn_profile_suggest_job_key(path, suggestion);
    if (suggestion[0])
        cn_diag_add(diag, "%s: is no key of a job; did you mean '%s'?", path, suggestion);
    else
        cn_diag_add(diag, "%s: is no key of a job; see cairn-profile(5)", path);
}

// Begins a key: the part of the text before "=". Sets *row to its row in the schema.
static struct cn_sweep_key *begin_key(struct cn_sweep_space *space, const char *text,
                                      const struct cn_schema_row **row, struct cn_diag *diag)
{
    char full[CN_SWEEP_PATH_SIZE + sizeof("job.")];
    size_t length = strcspn(text, "=");
    struct cn_sweep_key *key = &space->keys[space->count];
    if (!text[length] || length == 0 || length >= CN_SWEEP_PATH_SIZE) {
        cn_diag_add(diag, "'%.100s': expected KEY=VALUES, as in train.learning_rate=0.1,0.01",
                    text);
        return NULL;
    }
    if (space->count == CN_SWEEP_KEYS_MAX) {
        cn_diag_add(diag, "'%.100s': a sweep has at most %d keys", text, CN_SWEEP_KEYS_MAX);
        return NULL;
    }
    *key = (struct cn_sweep_key){0};
    memcpy(key->path, text, length);
    for (uint32_t i = 0; i < space->count; i++) {
        if (strcmp(space->keys[i].path, key->path) == 0) {
            cn_diag_add(diag, "%s: is given twice", key->path);
            return NULL;
        }
    }
    snprintf(full, sizeof(full), "job.%s", key->path);
    *row = cn_schema_find(full);
    if (*row && !is_fixed(key->path) && is_single((*row)->type))
        return key;
    refuse_key(key->path, *row != NULL, cn_schema_is_section(full, CN_LAYER_SITE), diag);
    return NULL;
}

static bool is_value(const char *text, size_t length)
{
    if (length == 0 || length >= CN_SWEEP_VALUE_SIZE)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && !strchr(" %+-._", c))
            return false;
    }
    return text[0] != ' ' && text[length - 1] != ' ';
}

// Adds the next value of a list. Returns false with a line in diag.
static bool add_value(struct cn_sweep_key *key, const char *from, size_t length,
                      struct cn_diag *diag)
{
    if (!is_value(from, length)) {
        cn_diag_add(diag, "%s: '%.*s' is no value of a list", key->path,
                    (int)(length < 60 ? length : 60), from);
        return false;
    }
    if (key->count == CN_SWEEP_VALUES_MAX) {
        cn_diag_add(diag, "%s: a list has at most %d values", key->path, CN_SWEEP_VALUES_MAX);
        return false;
    }
    memcpy(key->values[key->count], from, length);
    for (uint32_t i = 0; i < key->count; i++) {
        if (strcmp(key->values[i], key->values[key->count]) == 0) {
            cn_diag_add(diag, "%s: %s is in the list twice", key->path, key->values[i]);
            return false;
        }
    }
    key->count++;
    return true;
}

cn_err cn_sweep_space_add_list(struct cn_sweep_space *space, const char *text, struct cn_diag *diag)
{
    const struct cn_schema_row *row;
    struct cn_sweep_key *key = begin_key(space, text, &row, diag);
    if (!key)
        return CN_EINVAL;
    for (const char *from = strchr(text, '=') + 1;;) {
        size_t length = strcspn(from, ",");
        if (!add_value(key, from, length, diag))
            return CN_EINVAL;
        if (!from[length])
            break;
        from += length + 1;
    }
    space->count++;
    return CN_OK;
}

static bool read_range(struct cn_sweep_key *key, const char *text)
{
    char *end;
    const char *dots = strstr(text, "..");
    char low[CN_SWEEP_VALUE_SIZE];
    if (!dots || dots == text || (size_t)(dots - text) >= sizeof(low))
        return false;
    memcpy(low, text, (size_t)(dots - text));
    low[dots - text] = '\0';
    key->low = strtod(low, &end);
    if (*end)
        return false;
    text = dots + 2;
    key->high = strtod(text, &end);
    return end != text && !*end && isfinite(key->low) && isfinite(key->high) &&
           key->low < key->high && (!key->logarithmic || key->low > 0);
}

cn_err cn_sweep_space_add_range(struct cn_sweep_space *space, const char *text, bool logarithmic,
                                struct cn_diag *diag)
{
    const struct cn_schema_row *row;
    struct cn_sweep_key *key = begin_key(space, text, &row, diag);
    if (!key)
        return CN_EINVAL;
    key->logarithmic = logarithmic;
    key->whole = row->type == CN_VALUE_COUNT || row->type == CN_VALUE_LONG;
    if (!key->whole && row->type != CN_VALUE_NUMBER) {
        cn_diag_add(diag, "%s: is no plain number; give a list of values with --set", key->path);
        return CN_EINVAL;
    }
    if (!read_range(key, strchr(text, '=') + 1)) {
        cn_diag_add(diag, "'%.100s': expected KEY=LOW..HIGH, LOW below HIGH%s", text,
                    logarithmic ? " and above 0" : "");
        return CN_EINVAL;
    }
    space->count++;
    return CN_OK;
}

// --- trials ---

cn_err cn_sweep_space_check(struct cn_sweep_space *space, struct cn_diag *diag)
{
    uint64_t trials = 1;
    for (uint32_t i = 0; i < space->count; i++) {
        if (!space->draws && !space->keys[i].count) {
            cn_diag_add(diag, "%s: a range wants --draws N, the number of trials",
                        space->keys[i].path);
            return CN_EINVAL;
        }
        if (trials <= CN_SWEEP_TRIALS_MAX)
            trials *= space->keys[i].count;
    }
    if (space->draws)
        trials = space->draws;
    if (space->count == 0) {
        cn_diag_add(diag, "nothing to try: name keys with --set or --draw");
        return CN_EINVAL;
    }
    if (trials > CN_SWEEP_TRIALS_MAX) {
        cn_diag_add(diag,
                    "these are more than %d trials: take values away, or draw some with "
                    "--draws N",
                    CN_SWEEP_TRIALS_MAX);
        return CN_EINVAL;
    }
    space->trials = (uint32_t)trials;
    return CN_OK;
}

// Returns a number in [0, 1) for a key of a trial.
static double draw(const struct cn_sweep_space *space, uint32_t trial, uint32_t key)
{
    uint32_t bits[4];
    cn_random_block(space->seed, trial, key, bits);
    return ((double)(bits[0] >> 5) * 67108864 + (double)(bits[1] >> 6)) / 9007199254740992.0;
}

static void draw_value(const struct cn_sweep_key *key, double at, char value[CN_SWEEP_VALUE_SIZE])
{
    double number = key->logarithmic ? key->low * exp(at * log(key->high / key->low))
                                     : key->low + at * (key->high - key->low);
    // Four digits: more say nothing, and hide how a machine's logarithm is rounded.
    snprintf(value, CN_SWEEP_VALUE_SIZE, key->whole ? "%.0f" : "%.4g",
             key->whole ? floor(number + 0.5) : number);
}

void cn_sweep_space_value(const struct cn_sweep_space *space, uint32_t trial, uint32_t key,
                          char value[CN_SWEEP_VALUE_SIZE])
{
    const struct cn_sweep_key *wanted = &space->keys[key];
    uint32_t number = trial;
    if (space->draws && !wanted->count) {
        draw_value(wanted, draw(space, trial, key), value);
        return;
    }
    if (space->draws) {
        number = (uint32_t)(draw(space, trial, key) * wanted->count);
    } else { // the last key changes first
        for (uint32_t i = space->count - 1; i > key; i--)
            number /= space->keys[i].count;
    }
    memcpy(value, wanted->values[number % wanted->count], CN_SWEEP_VALUE_SIZE);
}

void cn_sweep_space_values(const struct cn_sweep_space *space, uint32_t trial,
                           char text[CN_SWEEP_VALUES_SIZE])
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < space->count; i++) {
        char value[CN_SWEEP_VALUE_SIZE];
        cn_sweep_space_value(space, trial, i, value);
        at += (size_t)snprintf(text + at, CN_SWEEP_VALUES_SIZE - at, "%s%s=%s", i ? " " : "",
                               space->keys[i].path, value);
    }
}

void cn_sweep_space_describe(const struct cn_sweep_space *space, char text[CN_SWEEP_SPACE_SIZE])
{
    size_t at = (size_t)snprintf(text, CN_SWEEP_SPACE_SIZE, "draws %u seed %" PRIu64 "\n",
                                 space->draws, space->draws ? space->seed : 0);
    for (uint32_t i = 0; i < space->count; i++) {
        const struct cn_sweep_key *key = &space->keys[i];
        at += (size_t)snprintf(text + at, CN_SWEEP_SPACE_SIZE - at, "%s", key->path);
        if (!key->count)
            at += (size_t)snprintf(text + at, CN_SWEEP_SPACE_SIZE - at, " %.17g..%.17g%s", key->low,
                                   key->high, key->logarithmic ? " log" : "");
        for (uint32_t v = 0; v < key->count; v++)
            at += (size_t)snprintf(text + at, CN_SWEEP_SPACE_SIZE - at, "%c%s", v ? ',' : ' ',
                                   key->values[v]);
        at += (size_t)snprintf(text + at, CN_SWEEP_SPACE_SIZE - at, "\n");
    }
}

void cn_sweep_name(uint32_t trial, char name[CN_SWEEP_NAME_SIZE])
{
    snprintf(name, CN_SWEEP_NAME_SIZE, "trial-%u", trial + 1);
}
