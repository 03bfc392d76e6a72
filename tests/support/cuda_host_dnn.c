// A double of cuDNN. It stores the attributes of descriptors and computes convolutions from them.
#include <stdlib.h>
#include <string.h>

#include "ports/cuda/cuda_library.h"
#include "tests/support/cuda_host.h"
#include "tests/support/cuda_host_short.h"

#define ATTRIBUTES 12
#define ENGINES 3 // that the heuristic proposes: a rounding, a non-repeating and a good one
#define WORKSPACE 1000

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    char value[64];
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool final;
    int engine;
    int count;
    struct attribute attributes[ATTRIBUTES];
};

size_t cudnnGetVersion(void)
{
    return 90300;
}

struct cudnnContext {
    cudaStream_t stream;
};

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = calloc(1, sizeof(**handle));
    if (!*handle)
        return CUDNN_STATUS_ALLOC_FAILED;
    cuda_host_counts.descriptors++;
    cuda_host_counts.handles++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    cuda_host_counts.descriptors--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *made)
{
    struct descriptor *d = calloc(1, sizeof(*d));

    if (!d)
        return CUDNN_STATUS_ALLOC_FAILED;
    d->type = type;
    *made = d;
    cuda_host_counts.descriptors++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t made)
{
    free(made);
    cuda_host_counts.descriptors--;
    return CUDNN_STATUS_SUCCESS;
}

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default: // enums and float
        return 4;
    }
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t made,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *value)
{
    struct descriptor *d = made;
    struct attribute *a = &d->attributes[d->count];
    size_t size = (size_t)count * size_of(type);

    if (d->final || d->count == ATTRIBUTES || size > sizeof(a->value))
        return CUDNN_STATUS_BAD_PARAM;
    *a = (struct attribute){.name = name, .type = type, .count = count};
    memcpy(a->value, value, size);
    d->count++;
    return CUDNN_STATUS_SUCCESS;
}

static const struct attribute *find(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->count; i++)
        if (d->attributes[i].name == name)
            return &d->attributes[i];
    return NULL;
}

static const struct descriptor *part_of(const struct descriptor *d,
                                        cudnnBackendAttributeName_t name)
{
    const struct attribute *a = d ? find(d, name) : NULL;
    void *part = NULL;

    if (a)
        memcpy(&part, a->value, sizeof(part));
    return part;
}

static int64_t number(const struct descriptor *d, cudnnBackendAttributeName_t name, int i)
{
    const struct attribute *a = find(d, name);
    int64_t value = -1;

    if (a && i < a->count)
        memcpy(&value, a->value + 8 * i, sizeof(value));
    return value;
}

static int choice(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct attribute *a = find(d, name);
    int value = -1;

    if (a)
        memcpy(&value, a->value, sizeof(value));
    return value;
}

// The names of a convolution operation's attributes.
struct names {
    cudnnBackendAttributeName_t window, x, weight, y, alpha, beta;
};

static const struct names *names_of(cudnnBackendDescriptorType_t type)
{
    static const struct names forward = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    static const struct names input = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    static const struct names weight = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

    switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return &forward;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return &input;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return &weight;
    default:
        return NULL;
    }
}

static bool is_tensor(const struct descriptor *d)
{
    return d && d->final && d->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR;
}

// Checks the size of y by the library's rule, and that the channels match.
static bool shapes_fit(const struct descriptor *window, const struct descriptor *x,
                       const struct descriptor *weight, const struct descriptor *y)
{
    cudnnBackendAttributeName_t dims = CUDNN_ATTR_TENSOR_DIMENSIONS;

    for (int i = 0; i < 2; i++) {
        int64_t reach = (number(weight, dims, 2 + i) - 1) *
                            number(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, i) +
                        1;
        int64_t padded = number(x, dims, 2 + i) +
                         number(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i) +
                         number(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i);

        if ((padded - reach) / number(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i) + 1 !=
            number(y, dims, 2 + i))
            return false;
    }
    return number(x, dims, 0) == number(y, dims, 0) &&
           number(weight, dims, 0) == number(y, dims, 1) &&
           number(x, dims, 1) % number(weight, dims, 1) == 0;
}

static bool is_convolution(const struct descriptor *d)
{
    const struct names *names = names_of(d->type);
    const struct descriptor *window = part_of(d, names->window);
    const struct descriptor *x = part_of(d, names->x), *weight = part_of(d, names->weight);
    const struct descriptor *y = part_of(d, names->y);
    float alpha = 0, beta = 1;

    if (!find(d, names->alpha) || !find(d, names->beta))
        return false;
    memcpy(&alpha, find(d, names->alpha)->value, sizeof(alpha));
    memcpy(&beta, find(d, names->beta)->value, sizeof(beta));
    return window && window->final && is_tensor(x) && is_tensor(weight) && is_tensor(y) &&
           alpha == 1 && beta == 0 && shapes_fit(window, x, weight, y);
}

static const struct descriptor *operation_of(const struct descriptor *graph)
{
    return part_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t made)
{
    struct descriptor *d = made;
    bool good = true;

    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        good = find(d, CUDNN_ATTR_TENSOR_DATA_TYPE) && find(d, CUDNN_ATTR_TENSOR_UNIQUE_ID) &&
               number(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0) == 16 &&
               number(d, CUDNN_ATTR_TENSOR_DIMENSIONS, 3) > 0 &&
               number(d, CUDNN_ATTR_TENSOR_STRIDES, 3) > 0;
        break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        good = d->count == 7 && choice(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT;
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        good = is_convolution(d);
        break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        good = operation_of(d) && operation_of(d)->final;
        break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        good = part_of(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) != NULL;
        break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        good = part_of(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) != NULL;
        break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        good = d->count == 3;
        break;
    default:
        break;
    }
    d->final = good;
    return good ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

// Most of the library's engines require this; here all do.
static bool has_equal_pads(const struct descriptor *advice)
{
    const struct descriptor *operation =
        operation_of(part_of(advice, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
    const struct descriptor *window = part_of(operation, names_of(operation->type)->window);

    for (int i = 0; i < 2; i++)
        if (number(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i) !=
            number(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i))
            return false;
    return true;
}

static void give_choice(struct descriptor *to, const struct descriptor *graph, int engine)
{
    to->engine = engine;
    to->count = 1;
    to->attributes[0] = (struct attribute){.name = CUDNN_ATTR_ENGINE_OPERATION_GRAPH, .count = 1};
    memcpy(to->attributes[0].value, &graph, sizeof(void *));
    to->final = true;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const made,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t *count, void *values)
{
    static const cudnnBackendNumericalNote_t notes[ENGINES] = {
        CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        CUDNN_NUMERICAL_NOTE_FFT};
    const struct descriptor *d = made;
    int64_t workspace = WORKSPACE;
    void **parts = values;

    (void)type;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        *count = cuda_host_settings.refuse_libraries || !has_equal_pads(d) ? 0
                 : wanted < ENGINES                                        ? wanted
                                                                           : ENGINES;
        for (int i = 0; i < (int)*count; i++)
            give_choice(parts[i], part_of(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), i);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        *count = 1;
        ((struct descriptor *)parts[0])->engine = d->engine;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *count = 1;
        memcpy(values, &notes[d->engine], sizeof(notes[0]));
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *count = 1;
        memcpy(values, &workspace, sizeof(workspace));
        return CUDNN_STATUS_SUCCESS;
    default:
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
}

// A tensor in memory.
struct tensor {
    int64_t dims[4], strides[4];
    cudnnDataType_t type;
    void *memory;
};

struct convolution {
    cudnnBackendDescriptorType_t kind;
    struct tensor x, weight, y;
    int64_t pad[2], stride[2], dilation[2];
    void *workspace;
};

static float load(const struct tensor *t, int64_t at)
{
    const uint16_t *packed = t->memory;
    uint32_t bits;
    float value;

    if (t->type == CUDNN_DATA_FLOAT)
        return ((const float *)t->memory)[at];
    if (t->type == CUDNN_DATA_HALF)
        return cuda_host_from_float16(packed[at]);
    bits = (uint32_t)packed[at] << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// Truncates instead of rounding; results that are stored so are compared with a wide tolerance.
static void store(const struct tensor *t, int64_t at, float value)
{
    uint16_t *packed = t->memory;
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if (t->type == CUDNN_DATA_FLOAT)
        ((float *)t->memory)[at] = value;
    else if (t->type == CUDNN_DATA_BFLOAT16)
        packed[at] = (uint16_t)(bits >> 16);
    else if ((bits & 0x7fffffff) < 0x38800000)
        packed[at] = (uint16_t)(bits >> 16 & 0x8000);
    else
        packed[at] =
            (uint16_t)((bits >> 16 & 0x8000) | (((bits & 0x7fffffff) - (112u << 23)) >> 13));
}

static int64_t place(const struct tensor *t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * t->strides[0] + b * t->strides[1] + c * t->strides[2] + d * t->strides[3];
}

// Finds the place of a tap in x. Returns false if it lies outside.
static bool tap_place(const struct convolution *c, const int64_t y[4], int64_t channel, int64_t ky,
                      int64_t kx, int64_t *at)
{
    int64_t row = y[2] * c->stride[0] - c->pad[0] + ky * c->dilation[0];
    int64_t col = y[3] * c->stride[1] - c->pad[1] + kx * c->dilation[1];

    *at = place(&c->x, y[0], channel, row, col);
    return row >= 0 && row < c->x.dims[2] && col >= 0 && col < c->x.dims[3];
}

// Visits every product of a convolution: x and weight give y, y and weight give x, x and y give the
// weight.
static void visit(const struct convolution *c, const int64_t y[4], float *sum_y, float *sum_x,
                  float *sum_weight)
{
    int64_t of_group = c->weight.dims[1], groups = c->x.dims[1] / of_group;
    int64_t group = y[1] / (c->weight.dims[0] / groups);
    int64_t at_y = place(&c->y, y[0], y[1], y[2], y[3]), at_x;

    for (int64_t i = 0; i < of_group; i++)
        for (int64_t ky = 0; ky < c->weight.dims[2]; ky++)
            for (int64_t kx = 0; kx < c->weight.dims[3]; kx++) {
                int64_t at_weight = place(&c->weight, y[1], i, ky, kx);

                if (!tap_place(c, y, group * of_group + i, ky, kx, &at_x))
                    continue;
                if (sum_y)
                    *sum_y += load(&c->x, at_x) * load(&c->weight, at_weight);
                if (sum_x)
                    sum_x[at_x] += load(&c->y, at_y) * load(&c->weight, at_weight);
                if (sum_weight)
                    sum_weight[at_weight] += load(&c->y, at_y) * load(&c->x, at_x);
            }
}

static int64_t count_of(const struct tensor *t)
{
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

static void run_convolution(const void *context)
{
    const struct convolution *c = context;
    bool forward = c->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    bool input = c->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const struct tensor *result = input ? &c->x : &c->weight;
    float *sums = calloc((size_t)count_of(result), sizeof(*sums));

    memset(c->workspace, 0xee, WORKSPACE); // the library may write all of it
    for (int64_t i = 0; i < count_of(&c->y); i++) {
        const int64_t y[4] = {i / c->y.dims[3] / c->y.dims[2] / c->y.dims[1],
                              i / c->y.dims[3] / c->y.dims[2] % c->y.dims[1],
                              i / c->y.dims[3] % c->y.dims[2], i % c->y.dims[3]};
        float sum = 0;

        visit(c, y, forward ? &sum : NULL, input ? sums : NULL, forward || input ? NULL : sums);
        if (forward)
            store(&c->y, place(&c->y, y[0], y[1], y[2], y[3]), sum);
    }
    for (int64_t i = 0; !forward && i < count_of(result); i++)
        store(result, i, sums[i]);
    free(sums);
}

static bool read_tensor(const struct descriptor *d, const struct descriptor *pack, struct tensor *t)
{
    for (int i = 0; i < 4; i++) {
        t->dims[i] = number(d, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        t->strides[i] = number(d, CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    t->type = (cudnnDataType_t)choice(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    for (int i = 0; i < 3; i++)
        if (number(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) ==
            number(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0))
            t->memory = (void *)(uintptr_t)number(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    return t->memory && (uintptr_t)t->memory % 16 == 0;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    const struct descriptor *config = part_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const struct descriptor *graph = part_of(config, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    const struct descriptor *operation = operation_of(graph);
    const struct names *names = names_of(operation->type);
    const struct descriptor *window = part_of(operation, names->window);
    struct convolution c = {.kind = operation->type};

    c.workspace = (void *)(uintptr_t)number(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0);
    if (!read_tensor(part_of(operation, names->x), pack, &c.x) ||
        !read_tensor(part_of(operation, names->weight), pack, &c.weight) ||
        !read_tensor(part_of(operation, names->y), pack, &c.y) || !c.workspace ||
        (uintptr_t)c.workspace % CUDA_HOST_WORKSPACE_UNIT)
        return CUDNN_STATUS_BAD_PARAM;
    if (cuda_host_settings.turn_down)
        return CUDNN_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < 2; i++) {
        c.pad[i] = number(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
        c.stride[i] = number(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        c.dilation[i] = number(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
    }
    cuda_host_counts.convolutions++;
    cuda_host_warm((void *)handle->stream);
    cuda_host_submit((void *)handle->stream, run_convolution, &c, sizeof(c));
    return CUDNN_STATUS_SUCCESS;
}

void cuda_host_fill_dnn(struct cuda_library *library)
{
    library->dnn = (struct cuda_dnn){CUDA_DNN_FUNCTIONS(CUDA_HOST_ENTRY)};
}
