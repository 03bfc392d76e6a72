#include "ports/nccl/failures.h"

#include <pthread.h>
#include <stdint.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"

#define FAILURES 3     // failures in a row after which NCCL is given up
#define IN_A_ROW 60000 // ms between two failures in a row, at most

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned count;
static uint64_t last_ms;

void nccl_note_failure(void)
{
    uint64_t now_ms = cn_platform_now_ms();

    pthread_mutex_lock(&mutex);
    if (count < FAILURES) {
        count = count && now_ms - last_ms < IN_A_ROW ? count + 1 : 1;
        last_ms = now_ms;
        if (count == FAILURES)
            cn_log(CN_LOG_WARN, "nccl",
                   "failed %d times in a row: not used until this node is started again", FAILURES);
    }
    pthread_mutex_unlock(&mutex);
}

bool nccl_is_given_up(void)
{
    bool given_up;

    pthread_mutex_lock(&mutex);
    given_up = count == FAILURES;
    pthread_mutex_unlock(&mutex);
    return given_up;
}
