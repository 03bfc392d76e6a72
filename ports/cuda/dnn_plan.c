#include "ports/cuda/dnn_plan.h"

#include "runtime/base/log.h"

// Most proposals that the library is asked for. cuDNN 9.26 makes up to 40 for a convolution on an
// H100. With float32 the first that does not round the factors often comes after the 16th.
#define CHOICES 64

// An attribute to be set in a descriptor.
struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *value;
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

// Makes a descriptor, which the plan owns. Returns NULL on errors.
static cudnnBackendDescriptor_t make(const struct cuda_dnn *dnn, struct dnn_plan *plan,
                                     cudnnBackendDescriptorType_t type,
                                     const struct attribute *attributes, size_t count)
{
    cudnnBackendDescriptor_t made = NULL;

    if (plan->count == DNN_PARTS || dnn->describe(type, &made))
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (dnn->set(made, attributes[i].name, attributes[i].type, attributes[i].count,
                     attributes[i].value)) {
            dnn->forget(made);
            return NULL;
        }
    if (dnn->finalize(made)) {
        dnn->forget(made);
        return NULL;
    }
    plan->parts[plan->count++] = made;
    return made;
}

static cudnnDataType_t data_type(enum cn_precision precision)
{
    return precision == CN_PRECISION_BFLOAT16  ? CUDNN_DATA_BFLOAT16
           : precision == CN_PRECISION_FLOAT16 ? CUDNN_DATA_HALF
                                               : CUDNN_DATA_FLOAT;
}

// Describes a tensor. dims are n, channels, rows, cols. The role is the tensor's number in the
// variant pack.
static cudnnBackendDescriptor_t make_tensor(const struct cuda_dnn *dnn, struct dnn_plan *plan,
                                            enum dnn_role role, const int64_t dims[4],
                                            enum cn_precision precision)
{
    bool planes = data_type(precision) == CUDNN_DATA_FLOAT;
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], planes ? dims[2] * dims[3] : 1,
                                planes ? dims[3] : dims[3] * dims[1], planes ? 1 : dims[1]};
    cudnnDataType_t type = data_type(precision);
    int64_t alignment = DNN_ALIGNMENT, number = role + 1;
    const struct attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
    };

    return make(dnn, plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes, LENGTH(attributes));
}

int64_t dnn_plan_least_end(const struct cn_window *w, int axis)
{
    int64_t reach = ((int64_t)w->out[axis] - 1) * w->stride[axis] +
                    ((int64_t)w->kernel[axis] - 1) * w->dilation[axis] + 1;

    return reach - w->in[axis] - w->pad[axis];
}

bool dnn_plan_is_even(const struct cn_window *w, int axis)
{
    int64_t least = dnn_plan_least_end(w, axis);

    return w->pad[axis] >= least && w->pad[axis] < least + w->stride[axis];
}

// Returns the padding at the end. The library derives the output's size from it, so any value will
// do that gives w->out. If the padding before is such a value it is taken, because most of the
// library's engines want both to be equal. Otherwise it is the least.
static int64_t pad_end(const struct cn_window *w, int axis)
{
    int64_t least = dnn_plan_least_end(w, axis);

    if (dnn_plan_is_even(w, axis))
        return w->pad[axis];
    return least > 0 ? least : 0;
}

static cudnnBackendDescriptor_t make_window(const struct cuda_dnn *dnn, struct dnn_plan *plan,
                                            const struct cn_window *w)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT; // type of the sums
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t axes = 2, before[2], after[2], strides[2], dilations[2];
    const struct attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations},
    };

    for (int i = 0; i < 2; i++) {
        before[i] = w->pad[i];
        after[i] = pad_end(w, i);
        strides[i] = w->stride[i];
        dilations[i] = w->dilation[i];
    }
    return make(dnn, plan, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes, LENGTH(attributes));
}

// The descriptor of an operation and its attributes: convolution, x, weight, y, alpha, beta.
struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, tensors[DNN_ROLES], alpha, beta;
};

static const struct operation forward = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
    {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
};

static const struct operation grad_input = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
};

static const struct operation grad_weight = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
};

// Describes the operation graph of one convolution.
static cudnnBackendDescriptor_t make_graph(const struct cuda_dnn *dnn, cudnnHandle_t handle,
                                           const struct operation *kind, const struct cn_window *w,
                                           uint32_t samples, enum cn_precision precision,
                                           struct dnn_plan *plan)
{
    const int64_t dims[DNN_ROLES][4] = {
        {samples, w->channels_in, w->in[0], w->in[1]},
        {w->channels_out, w->channels_in / w->groups, w->kernel[0], w->kernel[1]},
        {samples, w->channels_out, w->out[0], w->out[1]},
    };
    cudnnBackendDescriptor_t tensors[DNN_ROLES], window = make_window(dnn, plan, w), made;
    float one = 1, zero = 0;
    const struct attribute attributes[] = {
        {kind->window, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &window},
        {kind->tensors[DNN_X], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[DNN_X]},
        {kind->tensors[DNN_WEIGHT], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[DNN_WEIGHT]},
        {kind->tensors[DNN_Y], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensors[DNN_Y]},
        {kind->alpha, CUDNN_TYPE_FLOAT, 1, &one},
        {kind->beta, CUDNN_TYPE_FLOAT, 1, &zero},
    };
    const struct attribute of_graph[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &made},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
    };

    if (!window)
        return NULL;
    for (int role = 0; role < DNN_ROLES; role++) {
        tensors[role] = make_tensor(dnn, plan, (enum dnn_role)role, dims[role], precision);
        if (!tensors[role])
            return NULL;
    }
    made = make(dnn, plan, kind->type, attributes, LENGTH(attributes));
    if (!made)
        return NULL;
    return make(dnn, plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, of_graph, LENGTH(of_graph));
}

// Returns whether the engine of a proposal is deterministic and, with float32 and TF32, does not
// round the factors more than that says. Sets *number to the engine's.
static bool acceptable(const struct cuda_dnn *dnn, cudnnBackendDescriptor_t choice,
                       enum cn_precision precision, int64_t *number)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = NULL;
    int64_t count = 0, found = 0;
    bool good = true;

    if (dnn->describe(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine))
        return false;
    if (dnn->get(choice, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found,
                 &engine) ||
        dnn->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes))
        good = false;
    if (dnn->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &found, number))
        *number = -1;
    for (int64_t i = 0; good && i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        bool rounds =
            notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
            notes[i] == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 ||
            (precision == CN_PRECISION_FLOAT32 && notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);

        good = notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
               notes[i] != CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION &&
               (data_type(precision) != CUDNN_DATA_FLOAT || !rounds);
    }
    dnn->forget(engine);
    return good;
}

// Makes a plan from a proposal. Returns false if that fails or it needs too much workspace.
static bool try_choice(const struct cuda_dnn *dnn, cudnnHandle_t handle,
                       cudnnBackendDescriptor_t choice, size_t workspace, struct dnn_plan *plan)
{
    const struct attribute attributes[] = {
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &choice},
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
    };
    int64_t needed = 0, count = 0;
    cudnnBackendDescriptor_t made =
        make(dnn, plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, LENGTH(attributes));

    if (!made)
        return false;
    if (dnn->get(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                 &needed) ||
        needed < 0 || (uint64_t)needed > workspace) {
        dnn->forget(plan->parts[--plan->count]);
        return false;
    }
    plan->plan = made;
    plan->workspace = (size_t)needed;
    return true;
}

// Asks the library for proposals, best first. Of the acceptable ones of which a plan can be made,
// passes over *skip, which it counts down; the next one becomes the plan.
static void choose(const struct cuda_dnn *dnn, cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                   enum cn_precision precision, size_t workspace, cudnnBackendHeurMode_t mode,
                   uint32_t *skip, struct dnn_plan *plan)
{
    const struct attribute attributes[] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph},
        {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
    };
    cudnnBackendDescriptor_t choices[CHOICES] = {0};
    cudnnBackendDescriptor_t advice =
        make(dnn, plan, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, attributes, LENGTH(attributes));
    int64_t count = 0, made = 0;

    if (!advice)
        return;
    while (made < CHOICES && !dnn->describe(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &choices[made]))
        made++;
    if (dnn->get(advice, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &count,
                 choices))
        count = 0;
    for (int64_t i = 0; i < count && i < made && !plan->plan; i++)
        if (acceptable(dnn, choices[i], precision, &plan->engine) &&
            try_choice(dnn, handle, choices[i], workspace, plan)) {
            if (*skip) {
                --*skip;
                dnn->forget(plan->parts[--plan->count]);
                plan->plan = NULL;
                continue;
            }
            // The plan refers to its proposal, so that is kept with the other parts.
            if (plan->count < DNN_PARTS) {
                plan->parts[plan->count++] = choices[i];
                choices[i] = NULL;
            }
        }
    for (int64_t i = 0; i < made; i++)
        if (choices[i])
            dnn->forget(choices[i]);
}

cn_err dnn_plan_open(const struct cuda_dnn *dnn, cudnnHandle_t handle, enum cn_op op,
                     const struct cn_window *window, uint32_t samples, enum cn_precision precision,
                     size_t workspace, struct dnn_plan *plan)
{
    return dnn_plan_open_number(dnn, handle, op, window, samples, precision, workspace, 0, plan);
}

cn_err dnn_plan_open_number(const struct cuda_dnn *dnn, cudnnHandle_t handle, enum cn_op op,
                            const struct cn_window *window, uint32_t samples,
                            enum cn_precision precision, size_t workspace, uint32_t number,
                            struct dnn_plan *plan)
{
    const struct operation *kind = op == CN_OP_CONV              ? &forward
                                   : op == CN_OP_CONV_GRAD_INPUT ? &grad_input
                                                                 : &grad_weight;
    cudnnBackendDescriptor_t graph;

    *plan = (struct dnn_plan){0};
    graph = make_graph(dnn, handle, kind, window, samples, precision, plan);
    if (graph)
        choose(dnn, handle, graph, precision, workspace, CUDNN_HEUR_MODE_A, &number, plan);
    if (graph && !plan->plan)
        choose(dnn, handle, graph, precision, workspace, CUDNN_HEUR_MODE_FALLBACK, &number, plan);
    if (plan->plan)
        return CN_OK;
    dnn_plan_close(dnn, plan);
    return CN_ENOTSUP;
}

void dnn_plan_close(const struct cuda_dnn *dnn, struct dnn_plan *plan)
{
    // In reverse order: a part refers to parts that were made before it.
    while (plan->count > 0)
        dnn->forget(plan->parts[--plan->count]);
    plan->plan = NULL;
}

cn_err dnn_plan_run(const struct cuda_dnn *dnn, cudnnHandle_t handle, const struct dnn_plan *plan,
                    void *tensors[DNN_ROLES], void *workspace)
{
    const int64_t numbers[DNN_ROLES] = {DNN_X + 1, DNN_WEIGHT + 1, DNN_Y + 1};
    const struct attribute attributes[] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, DNN_ROLES, numbers},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, DNN_ROLES, tensors},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace},
    };
    struct dnn_plan once = {0};
    cudnnBackendDescriptor_t pack =
        make(dnn, &once, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes, LENGTH(attributes));
    cudnnStatus_t status;

    if (!pack)
        return CN_ENOTSUP;
    status = dnn->execute(handle, plan->plan, pack);
    dnn_plan_close(dnn, &once);
    if (!status)
        return CN_OK;
    // The library refuses the plan at its run; nothing was queued.
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ||
        CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM) {
        cn_log(CN_LOG_WARN, "cuda", "cuDNN does not take the plan that it made (status %d)",
               (int)status);
        return CN_ENOTSUP;
    }
    cn_log(CN_LOG_ERROR, "cuda", "cudnnBackendExecute: status %d", (int)status);
    return CN_EIO;
}
