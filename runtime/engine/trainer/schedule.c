#include "runtime/engine/trainer/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

// cos(pi x) for x in [0, 1], by Taylor's series on the half where it converges to 1e-12.
static double half_wave(double x)
{
    double y = x > 0.5 ? PI * (1 - x) : PI * x;
    double term = 1, sum = 1;

    for (int i = 1; i < 10; i++) {
        term = term * (-y * y) / (double)((2 * i - 1) * (2 * i));
        sum += term;
    }
    return x > 0.5 ? -sum : sum;
}

static double stepped(const struct cn_rules *rules, uint64_t step)
{
    double share = 1;

    for (uint64_t i = rules->every; rules->every && i <= step && share > 0; i += rules->every)
        share *= rules->factor;
    return share;
}

float cn_schedule_rate(const struct cn_rules *rules, double rate, uint64_t steps, uint64_t step)
{
    double at = steps ? (double)step / (double)steps : 1;

    if (rules->schedule == CN_SCHEDULE_STEP)
        rate *= stepped(rules, step);
    if (rules->schedule == CN_SCHEDULE_COSINE)
        rate *= rules->factor + (1 - rules->factor) * ((1 + half_wave(at < 1 ? at : 1)) / 2);
    if (step < rules->warm_up)
        rate *= (double)(step + 1) / (double)rules->warm_up;
    return (float)rate;
}

float cn_schedule_beta1(const struct cn_rules *rules)
{
    return rules->beta1 > 0 ? (float)rules->beta1 : 0.9f;
}

float cn_schedule_beta2(const struct cn_rules *rules)
{
    return rules->beta2 > 0 ? (float)rules->beta2 : 0.999f;
}

float cn_schedule_epsilon(const struct cn_rules *rules)
{
    return rules->epsilon > 0 ? (float)rules->epsilon : 1e-8f;
}

void cn_schedule_powers_set(const struct cn_rules *rules, uint64_t steps,
                            struct cn_schedule_powers *powers)
{
    double beta1 = (double)cn_schedule_beta1(rules), beta2 = (double)cn_schedule_beta2(rules);

    if (steps < powers->steps || !powers->steps)
        *powers = (struct cn_schedule_powers){.beta1 = 1, .beta2 = 1};
    for (; powers->steps < steps; powers->steps++) {
        powers->beta1 *= beta1;
        powers->beta2 *= beta2;
    }
}

void cn_schedule_corrections(const struct cn_schedule_powers *powers, float *correction1,
                             float *correction2)
{
    *correction1 = (float)(1 - powers->beta1);
    *correction2 = (float)sqrt(1 - powers->beta2);
}
