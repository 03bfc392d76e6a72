#include "aggregator/daemon/setup_show.h"

#include "aggregator/serve/status.h"
#include "runtime/port/platform.h"

// Returns the number of the model's values, or 0 when its file cannot be read.
static uint64_t count_parameters(const struct cn_settings *settings)
{
    struct cn_model_file model;
    struct cn_diag diag;
    cn_diag_init(&diag);
    uint64_t count =
        cn_model_file_init(&model, settings->model, &diag) == CN_OK ? model.layout.total : 0;
    cn_model_file_deinit(&model);
    return count;
}

cn_err cn_setup_show_open(const struct cn_setup *setup, bool with_model, struct cn_setup_show *show)
{
    show->live = (struct cn_live_state){0};
    show->source = (struct cn_show_source){
        .ledger = setup->ledger,
        .job = &show->job,
        .live = &show->live,
        .now_ms = cn_platform_now_ms(),
        .date_ms = cn_show_date_ms(),
        .parameters = with_model ? count_parameters(setup->settings) : 0,
        .disk_free = cn_show_disk_free(setup->settings->state),
        .disk_reserve = setup->settings->reserve,
    };
    cn_err err = cn_setup_find_job(setup, &show->job);
    return err ? err : cn_status_read(setup->settings->state, show->source.now_ms, &show->live);
}

void cn_setup_show_close(struct cn_setup_show *show)
{
    cn_status_deinit(&show->live);
}
