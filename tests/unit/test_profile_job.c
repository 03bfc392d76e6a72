// Keys of a job that do not go together, or mean nothing where they are written.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/profile_text.h"

static void a_job_can_only_ask_for_less(void **state)
{
    struct cn_profile *profile =
        profile_parse("schema: cairn/site/v1\nthreads: 4\njob: {threads: 2}\n");

    (void)state;
    assert_int_equal(cn_profile_settings(profile)->threads, 2);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_GATEWAY, &diag), CN_EINVAL);
    cn_profile_free(profile);
    assert_non_null(
        strstr(profile_mistake("schema: cairn/site/v1\nthreads: 4\njob: {threads: 5}\n"),
               "test.yaml:3:16: error: job.threads: '5' is more than the site allows"));
    assert_non_null(
        strstr(profile_mistake("schema: cairn/site/v1\nthreads: 4\njob: {threads: all}\n"),
               "is more than the site allows"));
}

static void a_metric_that_the_loss_lacks_is_refused(void **state)
{
    static const struct {
        const char *loss, *metric, *expected;
    } cases[] = {
        {"cross_entropy", "f1", NULL},
        {"cross_entropy", "mae", "expected loss, accuracy, top5 or f1"},
        {"mse", "mae", NULL},
        {"mse", "accuracy", "expected loss or mae"},
        {"l1", "loss", NULL},
        {"binary_cross_entropy", "f1", "expected loss"},
        {"mse", "auto", NULL},
        {"cross_entropy", "accuracy, target: 90", "expected above 0 to 1, such as 0.9"},
        {"cross_entropy", "f1, target: -1", "expected above 0 to 1, such as 0.9"},
        {"mse", "loss, target: -1", "expected a number above 0"},
        {"cross_entropy", "loss, target_accuracy: 90 %", "expected stop.target for that"},
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(text, sizeof(text), "schema: cairn/site/v1\njob: {loss: %s, stop: {metric: %s}}\n",
                 cases[i].loss, cases[i].metric);
        if (cases[i].expected)
            assert_non_null(strstr(profile_mistake(text), cases[i].expected));
        else
            cn_profile_free(profile_parse(text));
    }
}

#define FORTY "0123456789012345678901234567890123456789"

static void of_lists_that_are_too_long_together_the_longest_is_named(void **state)
{
    (void)state;
    assert_non_null(strstr(
        profile_mistake("schema: cairn/job/v1\nloss: {output: a" FORTY FORTY "}\n"
                        "train: {freeze: [b" FORTY "]}\nupdate: {local: [c" FORTY FORTY "]}\n"),
        "test.yaml:2:16: error: loss.output: the longest of the job's lists, which have 203"));
    assert_non_null(strstr(profile_mistake("schema: cairn/job/v1\nloss: {output: a" FORTY "}\n"
                                           "parallel: {train: [b" FORTY FORTY
                                           "]}\nupdate: {local: [c" FORTY FORTY "]}\n"),
                           "error: parallel.train: the longest"));
}

// One board that lies could end the run.
static void a_run_ends_by_what_boards_measure_only_where_they_are_trusted(void **state)
{
    static const struct {
        const char *job;
        bool refused;
    } cases[] = {
        {"stop: {patience: 3}", true},
        {"stop: {target_accuracy: 90 %}", true},
        {"stop: {target_accuracy: 90 %, trust_boards: true}", false},
        {"stop: {metric: loss, target: 0.9}", true},
        {"stop: {metric: loss, target: 0.9, trust_boards: true}", false},
        {"stop: {metric: f1, target: 0.9}, central: {set: a}", false},
        {"stop: {patience: 3}, central: {set: a}", false},
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(text, sizeof(text),
                 "schema: cairn/site/v1\nstate: s\ngateway: {listen: \"1.2.3.4:5\"}\n"
                 "data: {a: {inputs: i.npy, labels: l.npy}}\n"
                 "job: {name: j, model: m.onnx, data: {set: a}, %s}\n",
                 cases[i].job);
        struct cn_profile *profile = profile_parse(text);
        cn_diag_init(&diag);
        cn_err err = cn_profile_require(profile, CN_PROFILE_GATEWAY, &diag);
        assert_int_equal(err, cases[i].refused ? CN_EINVAL : CN_OK);
        if (cases[i].refused)
            assert_non_null(strstr(diag.lines[0], "stop.trust_boards: true"));
        cn_profile_free(profile);
    }
}

static void momentum_of_the_server_is_refused_beside_signs(void **state)
{
    (void)state;
    assert_non_null(
        strstr(profile_mistake("schema: cairn/site/v1\njob:\n  server: {optimizer: nesterov}\n"
                               "  update: {down: {mode: sign}}\n"),
               "server.optimizer: momentum diverges with signs only; expected "
               "update.down.mode other than sign"));
    assert_non_null(
        strstr(profile_mistake("schema: cairn/site/v1\njob: {server: {optimizer: fedprox}}\n"),
               "fedyogi"));
    struct cn_profile *profile =
        profile_parse("schema: cairn/site/v1\njob:\n  server: {optimizer: fedadam}\n"
                      "  update: {down: {mode: sign}}\n");
    assert_int_equal(cn_profile_settings(profile)->job.server.optimizer, CN_SERVER_FEDADAM);
    cn_profile_free(profile);
}

// The first message of a job with these keys, or NULL.
static const char *mistake_of_job(const char *keys)
{
    char text[512];

    snprintf(text, sizeof(text), "schema: cairn/site/v1\njob:\n  %s\n", keys);
    return profile_mistake(text);
}

static void robust_rules_are_refused_where_they_mean_nothing(void **state)
{
    (void)state;
    assert_non_null(
        strstr(mistake_of_job("robust: {rule: trimmed}\n  rounds: {quorum: 3}"),
               ":3:18: error: robust.rule: trimmed with update.up.mode topk: each group"));
    assert_non_null(strstr(mistake_of_job("robust: {rule: median}\n  rounds: {quorum: 3}\n"
                                          "  update: {up: {mode: auto}}"),
                           "median with update.up.mode auto, which may be topk"));
    assert_non_null(
        strstr(mistake_of_job("robust: {rule: multi_krum}\n  rounds: {quorum: 4}"),
               ":4:20: error: rounds.quorum: 4 groups, but the robust rule needs 5 to tolerate 1"));
    assert_non_null(strstr(mistake_of_job("robust: {rule: rfa, tolerate: 2, mix: bucket}\n"
                                          "  rounds: {quorum: 8}"),
                           "needs 9 to tolerate 2"));
    assert_non_null(strstr(mistake_of_job("robust: {rule: rfa}\n  rounds: {quorum: 300}"),
                           "expected at most 256 with a robust rule"));
    assert_non_null(strstr(mistake_of_job("robust: {rule: rfa}\n  rounds: {quorum: 3}\n"
                                          "  limits: {trust_groups: true}"),
                           "trust_groups: true says that no group lies"));
    assert_non_null(strstr(mistake_of_job("robust: {mix: nearest}"),
                           "robust.mix: has a meaning with a rule only"));
    assert_non_null(strstr(mistake_of_job("robust: {rule: krum}"), "multi_krum"));
}

static void every_robust_rule_has_its_word(void **state)
{
    static const char *const words[] = {"none", "median", "trimmed", "multi_krum", "rfa", "cclip"};

    (void)state;
    for (int i = 0; i <= CN_ROBUST_CCLIP; i++) {
        char text[256];

        snprintf(text, sizeof(text),
                 "schema: cairn/site/v1\njob: {robust: {rule: %s}, rounds: {quorum: 5}, "
                 "update: {up: {mode: q8}}}\n",
                 words[i]);
        struct cn_profile *profile = profile_parse(text);
        assert_int_equal(cn_profile_settings(profile)->job.robust.rule, i);
        cn_profile_free(profile);
    }
}

static void a_round_waits_for_what_the_robust_rule_needs_or_takes_its_quorum(void **state)
{
    (void)state;
    struct cn_profile *profile =
        profile_parse("schema: cairn/site/v1\njob: {robust: {rule: multi_krum, short: wait}}\n");
    assert_int_equal(cn_job_updates_needed(&cn_profile_settings(profile)->job), 5);
    cn_profile_free(profile);
    profile =
        profile_parse("schema: cairn/site/v1\njob: {robust: {rule: multi_krum, short: clip}}\n");
    assert_int_equal(cn_job_updates_needed(&cn_profile_settings(profile)->job), 1);
    cn_profile_free(profile);
}

static void asynchronous_rounds_are_refused_where_they_mean_nothing(void **state)
{
    (void)state;
    assert_non_null(strstr(mistake_of_job("rounds: {quorum: 4, mode: asynchronous, async: {buffer: "
                                          "5}}"),
                           "rounds.async.buffer: 5 updates of the 4 groups of rounds.quorum"));
    assert_non_null(strstr(mistake_of_job("rounds: {quorum: 4, mode: asynchronous, async: "
                                          "{max_staleness: 9}}"),
                           "max_staleness"));
    assert_non_null(strstr(mistake_of_job("rounds: {mode: fast}"), "asynchronous"));
    assert_non_null(strstr(mistake_of_job("rounds: {mode: asynchronous}\n  server: {normalize: "
                                          "steps}"),
                           "updates of asynchronous rounds began from several"));
    assert_non_null(
        strstr(mistake_of_job("rounds: {mode: asynchronous, async: {buffer: 0}}"), "buffer"));
    assert_non_null(strstr(mistake_of_job("robust: {rule: rfa}\n  rounds: {quorum: 5, mode: "
                                          "asynchronous, async: {buffer: 4}}"),
                           "a rule needs 5 to tolerate 1"));
    assert_non_null(strstr(mistake_of_job("robust: {rule: multi_krum, tolerate: 2, short: clip}\n  "
                                          "rounds: {quorum: 8, mode: asynchronous}"),
                           "made of 5 updates (rounds.async.buffer), but in asynchronous rounds a "
                           "rule needs 7 to tolerate 2"));
}

// The first warning about a job with these keys; "": none.
static const char *warning_of_job(const char *keys)
{
    char text[512];

    snprintf(text, sizeof(text), "schema: cairn/site/v1\njob:\n  %s\n", keys);
    cn_profile_free(profile_parse(text));
    return diag.count ? cn_diag_first(&diag) : "";
}

static void asynchronous_rounds_warn_of_what_is_weaker_in_them(void **state)
{
    (void)state;
    assert_non_null(strstr(warning_of_job("robust: {rule: rfa}\n  rounds: {quorum: 6, mode: "
                                          "asynchronous, async: {buffer: 5}}"),
                           "warning: robust.rule: judges updates that began from several"));
    assert_non_null(strstr(warning_of_job("server: {learning_rate: 0.5}\n  rounds: {quorum: 4, "
                                          "mode: asynchronous}"),
                           "warning: server.learning_rate: holds for each version, and these are "
                           "made of 3 updates in place of 4"));
    assert_string_equal(warning_of_job("server: {learning_rate: 0.5}\n  rounds: {quorum: 4, mode: "
                                       "asynchronous, async: {buffer: 4}}"),
                        "");
}

static void a_buffer_is_five_eighths_of_the_quorum_unless_it_is_said(void **state)
{
    static const uint32_t buffers[][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 3}, {5, 4}, {8, 5}, {9, 6}};
    struct cn_profile *profile =
        profile_parse("schema: cairn/site/v1\njob: {rounds: {quorum: 10, mode: asynchronous}}\n");
    struct cn_job job = cn_profile_settings(profile)->job;
    (void)state;
    assert_int_equal(cn_job_updates_needed(&job), 7);
    assert_int_equal(job.async.max_staleness, 8);
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        job.quorum = buffers[i][0];
        assert_int_equal(cn_job_updates_needed(&job), buffers[i][1]);
    }
    job.quorum = 10;
    job.async.buffer = 3;
    assert_int_equal(cn_job_updates_needed(&job), 3);
    job.async.mode = CN_ROUNDS_SYNCHRONOUS;
    assert_int_equal(cn_job_updates_needed(&job), 10);
    cn_profile_free(profile);
}

static void personal_layers_are_refused_where_they_mean_nothing(void **state)
{
    (void)state;
    assert_non_null(strstr(mistake_of_job("update: {local: [fc], residual: bf16}"),
                           "update.residual: bf16 would round the tensors of update.local"));
    assert_non_null(strstr(mistake_of_job("update: {local: [fc]}\n  central: {set: test}\n"
                                          "  stop: {target_accuracy: 90 %}"),
                           "stop.target_accuracy: central.set measures versions whose update.local "
                           "tensors nobody trains"));
    assert_non_null(strstr(mistake_of_job("update: {local: [fc]}\n  central: {set: test}\n"
                                          "  gate: {loss: 1}"),
                           "gate.loss: central.set measures versions whose update.local"));
    assert_non_null(strstr(mistake_of_job("update: {frozen: local}"),
                           "update.frozen: local, but nothing is frozen; expected train.freeze"));
}

static void steps_are_compared_where_they_have_a_length(void **state)
{
    (void)state;
    assert_non_null(strstr(mistake_of_job("server: {normalize: steps}\n"
                                          "  train: {optimizer: adam}"),
                           "server.normalize: steps of adam and adamw have no length"));
    assert_non_null(strstr(mistake_of_job("server: {normalize: steps}\n"
                                          "  rounds: {quorum: 3}\n  robust: {rule: rfa}"),
                           "server.normalize: a robust rule combines whole updates"));
}

static void control_variates_need_whole_updates_of_plain_steps(void **state)
{
    static const struct {
        const char *keys, *message;
    } cases[] = {
        {"train: {correction: scaffold, optimizer: adam}", "train.optimizer: does not go with"},
        {"train: {correction: scaffold, keep_optimizer: true}", "train.keep_optimizer: does not"},
        {"update: {up: {mode: topk}}\n  train: {correction: scaffold}",
         "update.up.mode: does not go with train.correction: scaffold: updates that leave values"},
        {"update: {up: {mode: q4}}\n  train: {correction: scaffold}", "update.up.mode: does not"},
        {"update: {up: {mode: auto}}\n  train: {correction: scaffold}", "update.up.mode: does not"},
        {"rounds: {mode: asynchronous, quorum: 4}\n  train: {correction: scaffold}",
         "rounds.mode: does not go with"},
        {"train: {correction: scaffold}", "limits.trust_groups: does not go with"},
        {"server: {optimizer: fedadam}\n  train: {correction: scaffold}",
         "server.optimizer: does not go with"},
        {"parallel: {shard: 2}\n  train: {correction: scaffold}", "parallel.shard: does not"},
        {"parallel: {kind: auto}\n  train: {correction: scaffold}", "parallel.kind: does not"},
        {"train: {correction: scaffold, lr_scaling: linear}", "train.lr_scaling: does not"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char keys[400];

        snprintf(keys, sizeof(keys), "%s%s%s", cases[i].keys,
                 strstr(cases[i].keys, "update:") ? "" : "\n  update: {up: {mode: q8}}",
                 strstr(cases[i].message, "trust") ? "" : "\n  limits: {trust_groups: true}");
        assert_non_null(strstr(mistake_of_job(keys), cases[i].message));
    }
    struct cn_profile *profile = profile_parse(
        "schema: cairn/site/v1\njob:\n  update: {up: {mode: bf16}}\n"
        "  limits: {trust_groups: true}\n  train: {correction: scaffold, momentum: 0.5}\n");
    assert_int_equal(cn_profile_settings(profile)->job.correction.kind, CN_CORRECTION_SCAFFOLD);
    cn_profile_free(profile);
}

static void what_control_variates_contradict_is_shown_where_it_is_written(void **state)
{
    (void)state;
    assert_non_null(strstr(mistake_of_job("limits: {trust_groups: true}\n"
                                          "  train: {batch: 8,\n    correction: scaffold}"),
                           "test.yaml:5:17: error: update.up.mode: does not"));
}

static void a_rate_that_is_too_large_for_adam_is_warned_of(void **state)
{
    (void)state;
    assert_non_null(strstr(warning_of_job("train: {optimizer: adam, learning_rate: 0.05}"),
                           "warning: train.learning_rate: 0.05 moves each weight"));
    assert_non_null(strstr(warning_of_job("train: {optimizer: adamw}"),
                           "warning: train.learning_rate: 0.05, the default, moves each weight by "
                           "about that much in each step of adamw"));
    assert_string_equal(warning_of_job("train: {optimizer: adam, learning_rate: 0.01}"), "");
    assert_string_equal(warning_of_job("train: {learning_rate: 0.05}"), "");
}

#define EXTENDED "schema: cairn/site/v1\nextends: good-gateway.yaml\n"

static void a_key_without_effect_is_a_warning_with_its_place(void **state)
{
    struct cn_profile *profile;

    (void)state;
    cn_profile_free(profile_parse(EXTENDED "job: {train: {optimizer: sgd, momentum: 0.5}}\n"));
    assert_int_equal(diag.count, 0);
    profile = profile_parse(EXTENDED "job:\n"
                                     "  loss: {kind: mse, smoothing: 0.1}\n"
                                     "  train: {beta1: 0.8, schedule: {factor: 0.5}}\n"
                                     "  data: {stride: 2}\n");
    assert_int_equal(diag.count, 4);
    assert_string_equal(diag.lines[0],
                        "test.yaml:5:18: warning: train.beta1: has no effect; it means something "
                        "with train.optimizer: adam or adamw only");
    assert_non_null(strstr(diag.lines[1], "train.schedule.factor"));
    assert_non_null(strstr(diag.lines[2], "loss.smoothing"));
    assert_non_null(strstr(diag.lines[3], "data.stride"));
    cn_profile_free(profile);
}

static void a_job_that_trains_nothing_is_warned_of(void **state)
{
    (void)state;
    cn_profile_free(profile_parse(EXTENDED "job: {train: {freeze: [\"*\"]}}\n"));
    assert_non_null(
        strstr(cn_diag_first(&diag), "test.yaml:3:23: warning: train.freeze: '*' is every tensor"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_can_only_ask_for_less),
        cmocka_unit_test(a_metric_that_the_loss_lacks_is_refused),
        cmocka_unit_test(of_lists_that_are_too_long_together_the_longest_is_named),
        cmocka_unit_test(a_run_ends_by_what_boards_measure_only_where_they_are_trusted),
        cmocka_unit_test(momentum_of_the_server_is_refused_beside_signs),
        cmocka_unit_test(every_robust_rule_has_its_word),
        cmocka_unit_test(asynchronous_rounds_warn_of_what_is_weaker_in_them),
        cmocka_unit_test(asynchronous_rounds_are_refused_where_they_mean_nothing),
        cmocka_unit_test(a_buffer_is_five_eighths_of_the_quorum_unless_it_is_said),
        cmocka_unit_test(steps_are_compared_where_they_have_a_length),
        cmocka_unit_test(control_variates_need_whole_updates_of_plain_steps),
        cmocka_unit_test(what_control_variates_contradict_is_shown_where_it_is_written),
        cmocka_unit_test(a_rate_that_is_too_large_for_adam_is_warned_of),
        cmocka_unit_test(personal_layers_are_refused_where_they_mean_nothing),
        cmocka_unit_test(robust_rules_are_refused_where_they_mean_nothing),
        cmocka_unit_test(a_round_waits_for_what_the_robust_rule_needs_or_takes_its_quorum),
        cmocka_unit_test(a_key_without_effect_is_a_warning_with_its_place),
        cmocka_unit_test(a_job_that_trains_nothing_is_warned_of),
    };

    return cmocka_run_group_tests(tests, profile_enter_data, NULL);
}
