// trainer_places.c - lists the places where a model may be cut, and what lies before each.
#include <stdlib.h>

#include "runtime/engine/trainer/trainer_private.h"

static size_t sent_at(const struct cn_cut_place *place)
{
    return place->words + place->gradient_words;
}

// Keeps at most `most` places: of those with about the same work before them, the one where the
// fewest values travel. Returns their number.
static size_t thin_out(struct cn_cut_place *places, size_t count, const double *work, double all,
                       size_t most)
{
    size_t kept = 0;
    double last = -1;

    if (count <= most || !most)
        return most ? count : 0;
    for (size_t i = 0; i < count; i++) {
        double slot = all > 0 ? (double)(size_t)((double)most * work[places[i].nodes] / all) : 0;

        slot = slot < (double)most ? slot : (double)most - 1;
        if (slot > last)
            places[kept++] = places[i];
        else if (sent_at(&places[i]) < sent_at(&places[kept - 1]))
            places[kept - 1] = places[i];
        last = slot;
    }
    return kept;
}

cn_err cn_trainer_list_places(const struct cn_graph *graph, const struct cn_layout *layout,
                              size_t most, struct cn_trainer_place **places, size_t *count)
{
    double *work = cn_trainer_sum_work(graph);
    struct cn_trainer_place *made = NULL;
    struct cn_cut_place *all = NULL;
    struct cn_cut_sums *sums = NULL;
    size_t nodes = graph->loss + 1, kept = 0;
    cn_err err = work ? cn_cut_places(graph, &all, &kept) : CN_ENOMEM;

    if (!err)
        err = cn_cut_sum(graph, layout, &sums);
    if (!err) {
        kept = thin_out(all, kept, work, work[nodes], most);
        made = calloc(kept + 1, sizeof(*made));
        err = made ? CN_OK : CN_ENOMEM;
    }
    for (size_t i = 0; !err && i <= kept; i++) {
        struct cn_cut_place end = {.nodes = nodes}, *place = i < kept ? &all[i] : &end;

        made[i] = (struct cn_trainer_place){.nodes = place->nodes,
                                            .words = place->words,
                                            .gradient_words = place->gradient_words,
                                            .work = work[place->nodes] / work[nodes],
                                            .sums = sums[place->nodes]};
    }
    free(work);
    free(all);
    free(sums);
    *places = made;
    *count = kept;
    return err;
}
