#include "aggregator/trial/trial_faults.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/types.h>

void cn_trial_faults_init(struct cn_trial_faults *faults, const char *state)
{
    *faults = (struct cn_trial_faults){0};
    snprintf(faults->path, sizeof(faults->path), "%s/%s", state, CN_EVENT_FILE);
    FILE *file = fopen(faults->path, "re");
    if (!file)
        return;
    if (fseek(file, 0, SEEK_END) == 0)
        faults->offset = ftell(file);
    fclose(file);
}

// Notes what an event says of a board. Returns false when it is about no board of the trial.
static bool note(struct cn_trial_faults *faults, const struct cn_event *event)
{
    unsigned number = 0;
    if (sscanf(event->subject, "board-%u", &number) != 1 || number < 1 ||
        number > CN_TRIAL_BOARDS_MAX)
        return false;
    bool failed = event->kind == CN_EVENT_BOARD_FAILED;
    if (!failed && event->kind != CN_EVENT_BOARD_BACK)
        return false;
    faults->boards[number - 1].failed = failed;
    faults->boards[number - 1].gave_up = failed && event->code == -CN_EDIVERGED;
    return true;
}

bool cn_trial_faults_next(struct cn_trial_faults *faults, struct cn_event *event)
{
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    FILE *file = fopen(faults->path, "re");
    if (!file)
        return false;
    // A file that is shorter than before is a new one: the gateway has put the old one aside.
    if (fseek(file, 0, SEEK_END) != 0 || ftell(file) < faults->offset)
        faults->offset = 0;
    if (fseek(file, faults->offset, SEEK_SET) == 0) {
        ssize_t length;
        while (!found && (length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n') {
            faults->offset += length;
            found = cn_event_file_parse(line, (size_t)length - 1, event) && note(faults, event);
        }
    }
    free(line);
    fclose(file);
    return found;
}

static bool can_train(const struct cn_trial_faults *faults, uint32_t first, uint32_t end,
                      uint32_t members)
{
    uint32_t able = 0;
    for (uint32_t i = first; i < end; i++) {
        if (faults->boards[i].gave_up)
            return false;
        able += !faults->boards[i].failed && !faults->boards[i].gone;
    }
    return able >= (members ? members : 1);
}

uint32_t cn_trial_faults_able(const struct cn_trial_faults *faults,
                              const struct cn_trial_split *split, uint32_t members)
{
    uint32_t able = 0;
    for (uint32_t group = 0; group < split->groups; group++)
        able += can_train(faults, cn_trial_first_board(split, group),
                          cn_trial_first_board(split, group + 1), members);
    return able;
}

bool cn_trial_faults_diverged(const struct cn_trial_faults *faults)
{
    for (uint32_t i = 0; i < CN_TRIAL_BOARDS_MAX; i++)
        if (faults->boards[i].gave_up)
            return true;
    return false;
}
