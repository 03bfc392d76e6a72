#include "aggregator/merge/robust_rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 3 // number of steps of RFA and of CenteredClip

static int compare_numbers(const void *a, const void *b)
{
    cn_robust_number left = *(const cn_robust_number *)a, right = *(const cn_robust_number *)b;

    return left < right ? -1 : left > right;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

// Sets scores: of each row the sum of its `nearest` smallest distances to the others.
static void score(const cn_robust_number *distances, size_t n, size_t nearest,
                  cn_robust_number *sorted, cn_robust_number *scores)
{
    for (size_t r = 0; r < n; r++) {
        size_t count = 0;

        for (size_t s = 0; s < n; s++)
            if (s != r)
                sorted[count++] = distances[r * n + s];
        qsort(sorted, count, sizeof(*sorted), compare_numbers);
        scores[r] = 0;
        for (size_t k = 0; k < nearest; k++)
            scores[r] += sorted[k];
    }
}

cn_err cn_robust_choose(const cn_robust_number *distances, size_t n, size_t tolerate, bool *chosen)
{
    cn_robust_number *scores = calloc(2 * n, sizeof(*scores));

    if (!scores)
        return CN_ENOMEM;
    score(distances, n, n > tolerate + 2 ? n - tolerate - 2 : 0, scores + n, scores);
    memset(chosen, 0, n * sizeof(*chosen));
    for (size_t k = 0; k < n - tolerate; k++) {
        size_t best = n;

        for (size_t r = 0; r < n; r++)
            if (!chosen[r] && (best == n || scores[r] < scores[best]))
                best = r;
        chosen[best] = true;
    }
    free(scores);
    return CN_OK;
}

// Returns half of the mean squared distance between two points drawn by shares.
static double spread(const cn_robust_number *distances, size_t n, const double *shares)
{
    double sum = 0;

    for (size_t h = 0; h < n; h++)
        for (size_t k = 0; k < n; k++)
            sum += shares[h] * shares[k] * (double)distances[h * n + k];
    return sum / 2;
}

// Returns the distance of row r from the mean of all rows by shares.
static double distance_to_mean(const cn_robust_number *distances, size_t n, const double *shares,
                               double spread, size_t r)
{
    double sum = 0;

    for (size_t h = 0; h < n; h++)
        sum += shares[h] * (double)distances[r * n + h];
    sum -= spread;
    return sum > 0 ? sqrt(sum) : 0;
}

static void normalize(double *shares, size_t n)
{
    double total = 0;

    for (size_t r = 0; r < n; r++)
        total += shares[r];
    for (size_t r = 0; r < n; r++)
        shares[r] /= total;
}

void cn_robust_weigh(const cn_robust_number *distances, size_t n, const uint64_t *weights,
                     double nearest, double *shares)
{
    double far[CN_ROBUST_MOST];

    for (size_t r = 0; r < n; r++)
        shares[r] = (double)weights[r];
    normalize(shares, n);
    for (int step = 0; step < STEPS; step++) {
        double around = spread(distances, n, shares);

        for (size_t r = 0; r < n; r++)
            far[r] = distance_to_mean(distances, n, shares, around, r);
        for (size_t r = 0; r < n; r++)
            shares[r] = (double)weights[r] / (far[r] > nearest ? far[r] : nearest);
        normalize(shares, n);
    }
}

cn_err cn_robust_clip(const cn_robust_number *distances, size_t n, double *shares, double *kept)
{
    size_t updates = n - 1;
    double *far = calloc(2 * n, sizeof(*far)), *sorted = far + n;

    if (!far)
        return CN_ENOMEM;
    for (size_t r = 0; r < n; r++)
        shares[r] = r == updates;
    for (int step = 0; step < STEPS; step++) {
        double around = spread(distances, n, shares), radius, sum = 0;

        for (size_t r = 0; r < updates; r++)
            far[r] = sorted[r] = distance_to_mean(distances, n, shares, around, r);
        qsort(sorted, updates, sizeof(*sorted), compare_doubles);
        radius = sorted[(updates - 1) / 2];
        for (size_t r = 0; r < updates; r++) {
            kept[r] = far[r] > radius ? radius / far[r] : 1;
            sum += kept[r];
        }
        for (size_t r = 0; r < n; r++)
            shares[r] *= 1 - sum / (double)updates;
        for (size_t r = 0; r < updates; r++)
            shares[r] += kept[r] / (double)updates;
    }
    free(far);
    return CN_OK;
}
