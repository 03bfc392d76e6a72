#include "aggregator/roster/instances.h"

#include <stdio.h>
#include <string.h>

// Returns the index of the number in recent, or CN_INSTANCES when it is not remembered.
static size_t find(const struct cn_instances *instances, uint64_t number)
{
    size_t place = 0;

    while (place < CN_INSTANCES && instances->recent[place].number != number)
        place++;
    return place;
}

static void put_first(struct cn_instances *instances, size_t place, uint64_t number,
                      const char *from, uint64_t now_ms)
{
    struct cn_instance *recent = instances->recent;

    if (place == CN_INSTANCES)
        place--;
    memmove(recent + 1, recent, place * sizeof(*recent));
    recent[0] = (struct cn_instance){.number = number, .ms = now_ms};
    snprintf(recent[0].from, sizeof(recent[0].from), "%s", from);
}

bool cn_instances_note(struct cn_instances *instances, uint64_t number, const char *from,
                       uint64_t now_ms)
{
    size_t place = find(instances, number);
    bool returns, is_news;

    if (!number)
        return false;
    returns = place > 0 && place < CN_INSTANCES &&
              now_ms - instances->recent[place].ms <= CN_INSTANCES_FORGET_MS;
    put_first(instances, place, number, from, now_ms);
    if (!returns)
        return false;
    is_news = !instances->twice_ms || now_ms - instances->twice_ms > CN_INSTANCES_SHOWN_MS;
    instances->twice_ms = now_ms;
    snprintf(instances->twice, sizeof(instances->twice), "from %s and %s",
             instances->recent[0].from, instances->recent[1].from);
    return is_news;
}
