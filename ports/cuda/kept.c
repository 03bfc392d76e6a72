#include "ports/cuda/kept.h"

#include <pthread.h>
#include <string.h>

#define NUMBERS 16 // most GPUs of a machine for which kernels and handles are kept

struct kept {
    CUcontext context; // NULL: nothing is kept
    CUmodule module;
    CUfunction kernels[CUDA_KERNEL_COUNT];
    cublasLtHandle_t blas;
    cudnnHandle_t dnn;
};

static struct kept all[NUMBERS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Returns the place of the device's GPU, or NULL.
static struct kept *place_of(const struct cuda *cuda)
{
    return cuda->library.handles[0] && cuda->number < NUMBERS ? &all[cuda->number] : NULL;
}

bool cuda_kept_take(struct cuda *cuda)
{
    struct kept *place = place_of(cuda);
    struct kept taken = {0};

    if (!place)
        return false;
    pthread_mutex_lock(&mutex);
    if (place->context == cuda->context) {
        taken = *place;
        *place = (struct kept){0};
    }
    pthread_mutex_unlock(&mutex);
    if (!taken.context)
        return false;
    cuda->module = taken.module;
    memcpy(cuda->kernels, taken.kernels, sizeof(cuda->kernels));
    cuda->blas = taken.blas;
    cuda->dnn = taken.dnn;
    return true;
}

void cuda_kept_leave(struct cuda *cuda)
{
    struct kept *place = place_of(cuda);

    if (!place || !cuda->module)
        return;
    pthread_mutex_lock(&mutex);
    if (!place->context) {
        *place = (struct kept){
            .context = cuda->context, .module = cuda->module, .blas = cuda->blas, .dnn = cuda->dnn};
        memcpy(place->kernels, cuda->kernels, sizeof(place->kernels));
        cuda->module = NULL;
        cuda->blas = NULL;
        cuda->dnn = NULL;
    }
    pthread_mutex_unlock(&mutex);
}
