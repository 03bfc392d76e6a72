#include "runtime/profile/rules_text.h"

#include <stdio.h>
#include <string.h>

static void print(const struct cn_rules *r, char text[CN_RULES_TEXT_SIZE])
{
    snprintf(text, CN_RULES_TEXT_SIZE,
             "%s|%s|%s|%d %a %a %d %d %a %a %a %d %u %u %a %a %a|%s|%d %u %u %d %d %u %a %d",
             r->output, r->weights, r->ignore, r->classes_first, r->smoothing, r->delta,
             (int)r->optimizer, r->nesterov, r->beta1, r->beta2, r->epsilon, (int)r->schedule,
             r->warm_up, r->every, r->factor, r->clip, r->proximal, r->freeze, (int)r->normalize,
             r->window, r->stride, r->one_hot, r->flip, r->crop, r->noise, (int)r->batch_norm);
}

void cn_rules_text(const struct cn_rules *rules, char text[CN_RULES_TEXT_SIZE])
{
    static const struct cn_rules none;
    char defaults[CN_RULES_TEXT_SIZE];

    print(rules, text);
    print(&none, defaults);
    if (strcmp(text, defaults) == 0)
        text[0] = '\0';
    if (rules->no_decay[0]) // other jobs keep the digest that they had before there was this list
        snprintf(text + strlen(text), CN_RULES_TEXT_SIZE - strlen(text), "|no decay %s",
                 rules->no_decay);
}
