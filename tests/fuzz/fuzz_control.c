// Any bytes as a line of a control socket: it is refused with a sentence, or has a valid id and
// command, and says the same when it is written and read again.
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/control/control_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Compares all except the digests, which are of lines that may be spelled differently.
static bool are_equal(const struct cn_control_request *a, const struct cn_control_request *b)
{
    return strcmp(a->id, b->id) == 0 && strcmp(a->command, b->command) == 0 &&
           a->members == b->members && strcmp(a->state, b->state) == 0 &&
           strcmp(a->board, b->board) == 0 && strcmp(a->group, b->group) == 0 && a->now == b->now &&
           a->yes == b->yes && a->duration_ms == b->duration_ms && a->max_weight == b->max_weight &&
           memcmp(a->key, b->key, sizeof(a->key)) == 0;
}

static void read_again(const struct cn_control_request *request)
{
    static struct cn_control_request again;
    char reason[CN_CONTROL_REASON];
    char *line = cn_control_request_print(request);
    char *arguments = cn_control_request_arguments(request);
    if (!line || !arguments)
        abort();
    if (cn_control_request_parse(line, strlen(line), &again, reason))
        abort();
    if (!are_equal(&again, request))
        abort();
    cJSON_free(line);
    cJSON_free(arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cn_control_request request;
    char reason[CN_CONTROL_REASON];
    char *line = malloc(size + 1);
    if (!line)
        return 0;
    if (size)
        memcpy(line, data, size);
    line[size] = '\0';
    cn_err err = cn_control_request_parse(line, size, &request, reason);
    if (err && (!reason[0] || strlen(reason) >= sizeof(reason)))
        abort();
    if (!err && (!request.id[0] || !request.command[0]))
        abort();
    if (!err)
        read_again(&request);
    free(line);
    return 0;
}
