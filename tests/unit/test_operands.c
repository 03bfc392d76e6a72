// Every operand of every op that is no sample, written as an initializer, as a Constant node, and
// computed from either: loss and gradients are the same.
#include "runtime/engine/import/import.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "tests/support/kernels_present.h"
#include "tests/unit/gradient_check.h"
#include "tests/unit/operand_cases.h"

// What a model gives. Its weights are those of the file.
struct result {
    double evaluated, trained; // the loss
    size_t count;              // of tensors
    struct {
        char name[16];
        float gradient[256];
        size_t count; // 0: not trained
    } tensors[8];
};

static void fill_batch(struct bench *bench, size_t words, bool labels)
{
    for (size_t i = 0; i < SAMPLES * 256; i++) {
        bench->inputs[i] = 1.5f * sinf((float)i * 0.7f + 1);
        bench->targets[i] = cosf((float)i * 1.3f);
    }
    for (int32_t i = 0; labels && i < SAMPLES; i++) {
        int32_t label = i * i % 4;

        memcpy(&bench->inputs[((size_t)i + 1) * words - 1], &label, sizeof(label));
    }
}

// A trial of a case: one of its operands, or all, in a form.
struct trial {
    const struct operand_case *of;
    size_t which;
    struct form form, plain; // plain: that of the other operands
};

// Lists the initializers that the trial freezes.
static void list_frozen(const struct trial *trial, char *list, size_t size)
{
    struct operand operand;
    size_t count = 0, length = 0;

    list[0] = '\0';
    for (size_t i = 0; trial->form.frozen && i < NET_LINES && trial->of->net.lines[i]; i++) {
        if (!read_operand(trial->of->net.lines[i], &operand) || operand.fixed)
            continue;
        if (operand.floats && (trial->which == ALL_OPERANDS || trial->which == count))
            length += (size_t)snprintf(list + length, size - length, "%s%s%s", length ? " " : "",
                                       operand.name, trial->form.way == DIRECTLY ? "" : ".0");
        count++;
    }
}

static cn_err open_trial(struct bench *bench, const struct trial *trial)
{
    const struct operand_case *the = trial->of;
    struct cn_rules rules = {.output = "y"};
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = 2,
                                       .batch = SAMPLES,
                                       .loss = the->labels ? CN_LOSS_OUTPUT : CN_LOSS_MSE,
                                       .learning_rate = 0.1f,
                                       .rules = &rules};
    struct cn_sample_shape shape;
    size_t words = 1;
    cn_err err;

    memset(bench, 0, sizeof(*bench));
    list_frozen(trial, rules.freeze, sizeof(rules.freeze));
    bench->model = form_message(&the->net, the->labels, trial->which, &trial->form, &trial->plain);
    cn_diag_init(&bench->diag);
    err = cn_onnx_open(bench->model.bytes, bench->model.size, &bench->diag, &bench->onnx);
    if (!err)
        err = cn_trainer_open(bench->onnx, &config, &bench->diag, &bench->trainer);
    if (err)
        return err;
    bench->total = cn_trainer_layout(bench->trainer)->total;
    cn_trainer_sample_shape(bench->trainer, &shape);
    for (uint32_t d = 0; d < shape.rank; d++)
        words *= (size_t)shape.dims[d];
    fill_batch(bench, words + the->labels, the->labels);
    bench->batch = (struct cn_batch){bench->inputs, bench->labels, bench->targets, SAMPLES};
    return CN_OK;
}

static void take_gradients(struct bench *bench, struct result *result)
{
    const struct cn_layout *layout = cn_trainer_layout(bench->trainer);
    float *gradients;

    memset(result, 0, sizeof(*result));
    assert_int_equal(cn_trainer_gradients(bench->trainer, &gradients), CN_OK);
    result->count = layout->tensor_count;
    assert_true(result->count <= 8);
    for (size_t i = 0; i < layout->tensor_count; i++) {
        size_t place = cn_trainer_gradient_place(bench->trainer, i);

        snprintf(result->tensors[i].name, 16, "%.*s", (int)strcspn(layout->tensors[i].name, "."),
                 layout->tensors[i].name);
        if (place == SIZE_MAX)
            continue;
        result->tensors[i].count = layout->tensors[i].count;
        memcpy(result->tensors[i].gradient, gradients + place,
               layout->tensors[i].count * sizeof(float));
    }
}

static cn_err measure(const struct trial *trial, struct result *result, char *line, size_t size)
{
    static struct bench bench;
    struct cn_metrics trained = {0}, evaluated = {0};
    cn_err err = open_trial(&bench, trial);

    memset(result, 0, sizeof(*result));
    if (err) {
        snprintf(line, size, "%s", cn_diag_first(&bench.diag));
    } else {
        assert_int_equal(cn_trainer_accumulate(bench.trainer, &bench.batch, &trained), CN_OK);
        take_gradients(&bench, result);
        assert_int_equal(cn_trainer_discard(bench.trainer), CN_OK);
        assert_int_equal(cn_trainer_evaluate(bench.trainer, &bench.batch, &evaluated), CN_OK);
        result->trained = trained.loss / trained.weight;
        result->evaluated = evaluated.loss / evaluated.weight;
    }
    close_net(&bench);
    return err;
}

static double difference(double a, double b)
{
    return isfinite(a) && isfinite(b) ? fabs(a - b) / (1 + fabs(a)) : INFINITY;
}

// Returns the largest difference in losses and gradients of what both train.
static double compare(const struct result *a, const struct result *b)
{
    double worst = fmax(difference(a->evaluated, b->evaluated), difference(a->trained, b->trained));

    for (size_t i = 0; i < a->count; i++) {
        for (size_t j = 0; j < b->count; j++) {
            if (strcmp(a->tensors[i].name, b->tensors[j].name) != 0 || !a->tensors[i].count ||
                !b->tensors[j].count)
                continue;
            for (size_t k = 0; k < a->tensors[i].count; k++)
                worst = fmax(worst, difference((double)a->tensors[i].gradient[k],
                                               (double)b->tensors[j].gradient[k]));
        }
    }
    return worst;
}

static size_t count_operands(const struct operand_case *the)
{
    struct operand operand;
    size_t count = 0;

    for (size_t i = 0; i < NET_LINES && the->net.lines[i]; i++)
        count += read_operand(the->net.lines[i], &operand) && !operand.fixed;
    return count;
}

static const struct refusal *refusal_of(const struct operand_case *the)
{
    for (size_t i = 0; i < NET_LINES && the->net.lines[i]; i++)
        for (size_t j = 0; j < sizeof(refusals) / sizeof(refusals[0]); j++)
            if (!strcmp(the->net.lines[i], refusals[j].node))
                return &refusals[j];
    return NULL;
}

// The form of the operands that are not under test.
static struct form plain_form(const struct operand_case *the)
{
    const struct refusal *refusal = refusal_of(the);

    return (struct form){.source =
                             refusal && refusal->kind == WEIGHT ? IN_CONSTANT : IN_INITIALIZER};
}

static void report(const struct trial *trial, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void report(const struct trial *trial, const char *format, ...)
{
    static const char *const ways[] = {"", ", Identity", ", negated twice", ", viewed twice"};
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < NET_LINES && trial->of->net.lines[i]; i++)
        print_error("%s; ", trial->of->net.lines[i]);
    print_error("operand %zd as %s%s%s: %s\n", (ssize_t)trial->which,
                trial->form.source == IN_CONSTANT ? "Constant"
                : trial->form.frozen              ? "frozen initializer"
                                                  : "initializer",
                ways[trial->form.way], "", text);
}

static bool refusal_seen[sizeof(refusals) / sizeof(refusals[0])];

// Returns whether the trial may be refused with this line, and notes that it was.
static bool may_refuse(const struct trial *trial, const char *line)
{
    const struct refusal *refusal = refusal_of(trial->of);
    bool computed = trial->form.way == BY_ARITHMETIC || trial->form.way == BY_VIEW;

    if (!refusal || !strstr(line, refusal->line) ||
        (refusal->kind != ALWAYS &&
         (trial->form.source != IN_INITIALIZER || (refusal->kind != WEIGHT && !computed))))
        return false;
    refusal_seen[refusal - refusals] = true;
    return true;
}

// Equal forms give equal bits. What is computed when the model is read may differ by rounding from
// what is computed at run time.
static double allowed(const struct trial *trial)
{
    return trial->form.source == trial->plain.source && !trial->form.frozen ? 0 : 1e-6;
}

// Returns whether the trial gives what the plain form gives, or is refused as expected.
static bool try_form(const struct trial *trial, const struct result *plain, bool plain_refused)
{
    static struct result other;
    char line[CN_DIAG_LINE_SIZE] = "";
    double off;

    if (measure(trial, &other, line, sizeof(line))) {
        if (may_refuse(trial, line))
            return true;
        report(trial, "%s", line);
        return false;
    }
    off = plain_refused ? INFINITY : compare(plain, &other);
    if (off <= allowed(trial))
        return true;
    report(trial, "off by %g: loss %.9g instead of %.9g", off, other.trained, plain->trained);
    return false;
}

#define FORMS 12 // initializers, Constants, frozen initializers; each in four ways

static size_t try_forms(const struct operand_case *the)
{
    static struct result plain;
    const struct refusal *refusal = refusal_of(the);
    struct trial trial = {.of = the, .which = ALL_OPERANDS};
    char line[CN_DIAG_LINE_SIZE] = "";
    size_t wrong = 0, operands = count_operands(the);
    cn_err err;

    trial.form = trial.plain = plain_form(the);
    err = measure(&trial, &plain, line, sizeof(line));
    if (err && !may_refuse(&trial, line)) {
        report(&trial, "%s", line);
        return 1;
    }
    for (trial.which = 0; trial.which <= operands; trial.which++) {
        for (unsigned k = 0; k < FORMS; k++) {
            struct trial one = trial;

            one.which = trial.which < operands ? trial.which : ALL_OPERANDS;
            one.form = (struct form){.source = k / 4 == 1 ? IN_CONSTANT : IN_INITIALIZER,
                                     .way = k % 4,
                                     .frozen = k / 4 == 2};
            if (one.form.frozen && refusal) // may be no weight
                continue;
            wrong += !try_form(&one, &plain, err != CN_OK);
        }
    }
    return wrong;
}

static void every_form_of_an_operand_gives_the_same(void **state)
{
    size_t wrong = 0;

    (void)state;
    for (size_t i = 0; i < CASE_COUNT; i++)
        wrong += try_forms(&cases[i]);
    assert_int_equal(wrong, 0);
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        if (refusal_seen[i])
            continue;
        print_error("\"%s\" was never refused\n", refusals[i].node);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

// Returns the largest difference between a gradient and the slope of the loss, as a share of the
// largest gradient. Weights where the slopes to both sides differ are left out and counted.
static double check_slopes(struct bench *bench, const struct result *result, enum loss_by by,
                           float *weights, size_t *skipped)
{
    const struct cn_layout *layout = cn_trainer_layout(bench->trainer);
    double largest = 0.1, worst = 0, base = loss_with(bench, by, weights, 0, 0);

    for (size_t t = 0; t < result->count; t++)
        for (size_t k = 0; k < result->tensors[t].count; k++)
            largest = fmax(largest, fabs((double)result->tensors[t].gradient[k]));
    for (size_t t = 0; t < result->count; t++) {
        for (size_t k = 0; k < result->tensors[t].count; k++) {
            size_t i = layout->tensors[t].offset + k;
            double right = (loss_with(bench, by, weights, i, STEP) - base) / (double)STEP;
            double left = (base - loss_with(bench, by, weights, i, -STEP)) / (double)STEP;

            if (fabs(right - left) > 2 * TOLERANCE * largest)
                ++*skipped;
            else
                worst =
                    fmax(worst, fabs((right + left) / 2 - (double)result->tensors[t].gradient[k]));
        }
    }
    return worst / largest;
}

static void gradients_of_operands_agree_with_finite_differences(void **state)
{
    static struct bench bench;
    static struct result result;
    size_t wrong = 0;

    (void)state;
    for (size_t i = 0; i < CASE_COUNT; i++) {
        struct trial trial = {.of = &cases[i], .which = ALL_OPERANDS};
        struct cn_metrics metrics = {0};
        size_t skipped = 0;
        float *weights;
        double off;

        trial.form = trial.plain = plain_form(&cases[i]);
        if (open_trial(&bench, &trial)) {
            close_net(&bench);
            continue; // its line is checked above
        }
        weights = calloc(bench.total, sizeof(*weights));
        assert_int_equal(cn_trainer_get_weights(bench.trainer, weights), CN_OK);
        assert_int_equal(cn_trainer_accumulate(bench.trainer, &bench.batch, &metrics), CN_OK);
        take_gradients(&bench, &result);
        assert_int_equal(cn_trainer_discard(bench.trainer), CN_OK);
        off = check_slopes(&bench, &result, cases[i].trained ? BY_TRAINING : BY_EVALUATION, weights,
                           &skipped);
        if (!(off <= TOLERANCE) || skipped > bench.total / 10) {
            report(&trial, "gradient off by %g, %zu of %zu skipped", off, skipped, bench.total);
            wrong++;
        }
        free(weights);
        close_net(&bench);
    }
    assert_int_equal(wrong, 0);
}

// Returns whether a case has this input of this op as an operand that may have any form.
static bool is_covered(const char *op, size_t input)
{
    for (size_t i = 0; i < CASE_COUNT; i++) {
        char operands[256] = " ";

        for (size_t j = 0; j < NET_LINES && cases[i].net.lines[j]; j++) {
            char line[128], name[32], *words, *word;
            struct operand operand;
            size_t at = 0;

            if (read_operand(cases[i].net.lines[j], &operand)) {
                snprintf(name, sizeof(name), "%s ", operand.fixed ? "" : operand.name);
                strcat(operands, name);
                continue;
            }
            snprintf(line, sizeof(line), "%s", cases[i].net.lines[j]);
            if (strcmp(strtok_r(line, " ", &words), op) != 0)
                continue;
            while ((word = strtok_r(NULL, " ", &words)) && strcmp(word, "->") != 0) {
                snprintf(name, sizeof(name), " %s ", word);
                if (at++ == input && strstr(operands, name))
                    return true;
            }
        }
    }
    return false;
}

static bool is_exception(const char *op, size_t input)
{
    for (size_t i = 0; i < sizeof(exceptions) / sizeof(exceptions[0]); i++)
        if (!strcmp(exceptions[i].op, op) && exceptions[i].operand == input)
            return true;
    return false;
}

static void every_operand_of_every_op_has_a_case(void **state)
{
    size_t missing = 0;
    const char *name;

    (void)state;
    for (size_t i = 0; (name = cn_import_op_name(i)); i++) {
        struct cn_onnx_node node = {.op = {name, strlen(name)}};
        size_t count = cn_import_op_find(&node)->inputs_max;

        if (count == CN_IMPORT_INPUTS)
            count = 2; // a list of operands
        for (size_t input = 0; input < count; input++) {
            if (is_covered(name, input) || is_exception(name, input))
                continue;
            print_error("no case has operand %zu of %s\n", input, name);
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

static void every_exception_is_an_operand_without_a_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(exceptions) / sizeof(exceptions[0]); i++) {
        const struct exception *exception = &exceptions[i];
        struct cn_onnx_node node = {.op = {exception->op, strlen(exception->op)}};
        const struct cn_import_op *op = cn_import_op_find(&node);

        assert_non_null(op);
        if (exception->operand >= op->inputs_max || is_covered(exception->op, exception->operand))
            fail_msg("the exception for operand %zu of %s is not needed", exception->operand,
                     exception->op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operand_of_every_op_has_a_case),
        cmocka_unit_test(every_exception_is_an_operand_without_a_case),
        cmocka_unit_test(every_form_of_an_operand_gives_the_same),
        cmocka_unit_test(gradients_of_operands_agree_with_finite_differences),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
