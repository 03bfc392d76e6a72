// Profiles: what loads, which value wins, what is printed, and the messages of bad ones.
#include <dirent.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/profile/profile.h"

static struct cn_diag diag;

// A profile of text in the directory of the test data; fails the test with the messages.
static struct cn_profile *parse(const char *text)
{
    struct cn_profile *profile = NULL;

    cn_diag_init(&diag);
    if (cn_profile_parse("test.yaml", text, strlen(text), &diag, &profile))
        fail_msg("%s", cn_diag_first(&diag));
    return profile;
}

// The first message of text, which has a mistake.
static const char *mistake(const char *text)
{
    struct cn_profile *profile = (struct cn_profile *)&diag;

    cn_diag_init(&diag);
    assert_int_equal(cn_profile_parse("test.yaml", text, strlen(text), &diag, &profile), CN_EINVAL);
    assert_null(profile);
    return cn_diag_first(&diag);
}

static struct cn_profile *load(const char *path)
{
    struct cn_profile *profile = NULL;

    cn_diag_init(&diag);
    if (cn_profile_load(path, &diag, &profile))
        fail_msg("%s", cn_diag_first(&diag));
    return profile;
}

// The whole printed profile, to be freed.
static char *print(const struct cn_profile *profile, bool origin)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);

    assert_non_null(stream);
    cn_profile_print(profile, origin, stream);
    fclose(stream);
    return text;
}

static void a_site_is_laid_over_its_board(void **state)
{
    struct cn_profile *profile = load("good-board-1.yaml");
    const struct cn_settings *settings = cn_profile_settings(profile);

    (void)state;
    assert_string_equal(settings->name, "board-1");
    assert_string_equal(settings->board_type, "generic-x86-64");
    assert_int_equal(settings->threads, 2);
    assert_int_equal(settings->memory_limit, UINT64_C(4) << 30);
    assert_int_equal(settings->power_mw, 25000);
    assert_int_equal(settings->uplink_bps, 2000000);
    assert_int_equal(settings->group.rejoin_ms, 500);
    assert_string_equal(settings->state, "state/board-1");
    assert_false(settings->has_job);
    cn_profile_free(profile);
}

static void members_have_the_same_order_on_each_board(void **state)
{
    struct cn_profile *profile = load("good-board-1.yaml");
    const struct cn_group_settings *group = &cn_profile_settings(profile)->group;

    (void)state;
    assert_int_equal(group->member_count, 2);
    assert_string_equal(group->members[0].name, "board-1");
    assert_string_equal(group->members[1].name, "board-2");
    assert_string_equal(group->members[1].address, "127.0.0.1:7103");
    cn_profile_free(profile);
}

static void a_gateway_takes_its_job_from_a_file(void **state)
{
    struct cn_profile *profile = load("good-gateway.yaml");
    const struct cn_settings *settings = cn_profile_settings(profile);
    const struct cn_job *job = &settings->job;

    (void)state;
    assert_true(settings->has_job);
    assert_string_equal(settings->model, "jobs/digits-cnn.onnx");
    assert_string_equal(job->data_set, "digits");
    assert_true(job->held_out == 0.1 && job->up.density == 0.05 && job->scale == 0.0625);
    assert_int_equal(job->deadline_ms, 60000);
    assert_int_equal(job->up.mode, CN_UPDATE_TOPK);
    assert_int_equal(job->down.mode, CN_UPDATE_Q8);
    assert_int_equal(settings->gateway.listen_count, 2);
    assert_int_equal(settings->gateway.keep_rounds, 0);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_GATEWAY, &diag), CN_OK);
    cn_profile_free(profile);
}

static void paths_count_from_the_file_where_they_are_written(void **state)
{
    struct cn_profile *profile;

    (void)state;
    assert_int_equal(chdir("jobs"), 0);
    profile = load("../good-gateway.yaml");
    assert_string_equal(cn_profile_settings(profile)->model, "../jobs/digits-cnn.onnx");
    cn_profile_free(profile);
    assert_int_equal(chdir(".."), 0);
}

static void a_section_is_laid_over_the_job_of_a_lower_site(void **state)
{
    struct cn_profile *profile = parse("schema: cairn/site/v1\n"
                                       "extends: good-gateway.yaml\n"
                                       "job: {rounds: {count: 3}}\n");
    const struct cn_job *job = &cn_profile_settings(profile)->job;

    (void)state;
    assert_int_equal(job->rounds, 3);
    assert_int_equal(job->quorum, 2);
    cn_profile_free(profile);
}

static void a_job_can_only_ask_for_less(void **state)
{
    struct cn_profile *profile = parse("schema: cairn/site/v1\nthreads: 4\njob: {threads: 2}\n");

    (void)state;
    assert_int_equal(cn_profile_settings(profile)->threads, 2);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_GATEWAY, &diag), CN_EINVAL);
    cn_profile_free(profile);
    assert_non_null(strstr(mistake("schema: cairn/site/v1\nthreads: 4\njob: {threads: 5}\n"),
                           "test.yaml:3:16: error: job.threads: '5' is more than the site allows"));
    assert_non_null(strstr(mistake("schema: cairn/site/v1\nthreads: 4\njob: {threads: all}\n"),
                           "is more than the site allows"));
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
        struct cn_profile *profile = parse(text);
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
    assert_non_null(strstr(mistake("schema: cairn/site/v1\njob:\n  server: {optimizer: nesterov}\n"
                                   "  update: {down: {mode: sign}}\n"),
                           "server.optimizer: momentum diverges with signs only; expected "
                           "update.down.mode other than sign"));
    assert_non_null(
        strstr(mistake("schema: cairn/site/v1\njob: {server: {optimizer: fedprox}}\n"), "fedyogi"));
    struct cn_profile *profile =
        parse("schema: cairn/site/v1\njob:\n  server: {optimizer: fedadam}\n"
              "  update: {down: {mode: sign}}\n");
    assert_int_equal(cn_profile_settings(profile)->job.server.optimizer, CN_SERVER_FEDADAM);
    cn_profile_free(profile);
}

// The first message of a job with these keys, or NULL.
static const char *mistake_of_job(const char *keys)
{
    char text[512];

    snprintf(text, sizeof(text), "schema: cairn/site/v1\njob:\n  %s\n", keys);
    return mistake(text);
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
                           "made of 6 updates (rounds.async.buffer), but in asynchronous rounds a "
                           "rule needs 7 to tolerate 2"));
}

// The first warning about a job with these keys; "": none.
static const char *warning_of_job(const char *keys)
{
    char text[512];

    snprintf(text, sizeof(text), "schema: cairn/site/v1\njob:\n  %s\n", keys);
    cn_profile_free(parse(text));
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

static void a_buffer_is_three_quarters_of_the_quorum_unless_it_is_said(void **state)
{
    struct cn_profile *profile =
        parse("schema: cairn/site/v1\njob: {rounds: {quorum: 10, mode: asynchronous}}\n");
    struct cn_job job = cn_profile_settings(profile)->job;
    (void)state;
    assert_int_equal(cn_job_updates_needed(&job), 8);
    assert_int_equal(job.async.max_staleness, 8);
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
    struct cn_profile *profile =
        parse("schema: cairn/site/v1\njob:\n  update: {up: {mode: bf16}}\n"
              "  limits: {trust_groups: true}\n  train: {correction: scaffold, momentum: 0.5}\n");
    assert_int_equal(cn_profile_settings(profile)->job.correction.kind, CN_CORRECTION_SCAFFOLD);
    cn_profile_free(profile);
}

static void a_round_waits_for_what_the_robust_rule_needs_or_takes_its_quorum(void **state)
{
    (void)state;
    struct cn_profile *profile =
        parse("schema: cairn/site/v1\njob: {robust: {rule: multi_krum, short: wait}}\n");
    assert_int_equal(cn_job_updates_needed(&cn_profile_settings(profile)->job), 5);
    cn_profile_free(profile);
    profile = parse("schema: cairn/site/v1\njob: {robust: {rule: multi_krum, short: clip}}\n");
    assert_int_equal(cn_job_updates_needed(&cn_profile_settings(profile)->job), 1);
    cn_profile_free(profile);
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
        struct cn_profile *profile = parse(text);
        assert_int_equal(cn_profile_settings(profile)->job.robust.rule, i);
        cn_profile_free(profile);
    }
}

static void what_a_program_requires_is_told_at_once(void **state)
{
    struct cn_profile *profile = parse("schema: cairn/site/v1\nname: board-1\n");

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_NODE, &diag), CN_EINVAL);
    assert_int_equal(diag.count, 4);
    assert_string_equal(diag.lines[0], "test.yaml:1:1: error: state: not set; expected a path");
    assert_int_equal(cn_profile_use_key(profile, "board.key"), CN_OK);
    assert_string_equal(cn_profile_settings(profile)->key, "board.key");
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_NODE, &diag), CN_EINVAL);
    assert_int_equal(diag.count, 3);
    cn_profile_free(profile);
}

static void a_profile_without_a_job_is_told_so_once(void **state)
{
    struct cn_profile *profile = parse("schema: cairn/site/v1\nname: board-1\nstate: s\n");

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_TRAIN, &diag), CN_EINVAL);
    assert_int_equal(diag.count, 1);
    assert_non_null(strstr(diag.lines[0], "error: the profile names no job: expected"));
    cn_profile_free(profile);
}

static void a_job_is_no_profile_of_a_board(void **state)
{
    struct cn_profile *profile = parse("schema: cairn/job/v1\nname: j\nmodel: m.onnx\n");

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_NODE, &diag), CN_EINVAL);
    assert_int_equal(diag.count, 1);
    assert_string_equal(diag.lines[0], "test.yaml:1:1: error: schema: this file is a job; expected "
                                       "the profile of a site, which names it: 'job: FILE'");
    cn_profile_free(profile);
}

static void a_job_needs_a_mapped_data_set_to_train(void **state)
{
    struct cn_profile *profile = parse("schema: cairn/site/v1\n"
                                       "state: s\n"
                                       "data: {a: {inputs: i.npy, labels: l.npy}}\n"
                                       "job: {name: j, model: m.onnx, data: {set: b}}\n");

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_TRAIN, &diag), CN_EINVAL);
    assert_string_equal(diag.lines[0], "test.yaml:4:43: error: data.set: 'b' is not among the data "
                                       "sets here; expected it below data");
    assert_null(cn_profile_data(cn_profile_settings(profile), "b"));
    assert_string_equal(cn_profile_data(cn_profile_settings(profile), "a")->labels, "l.npy");
    cn_profile_free(profile);
}

static void held_out_names_another_data_set(void **state)
{
    static const char good[] = "schema: cairn/site/v1\n"
                               "data: {a: {inputs: i.npy, labels: l.npy, held_out: b},\n"
                               "       b: {inputs: j.npy, labels: m.npy}}\n";
    static const char *const bad[] = {"held_out: c", "held_out: a"};
    struct cn_profile *profile = parse(good);
    char text[200], *printed = print(profile, false);

    (void)state;
    assert_string_equal(cn_profile_data(cn_profile_settings(profile), "a")->held_out, "b");
    assert_non_null(strstr(printed, "held_out: b"));
    free(printed);
    cn_profile_free(profile);
    for (size_t i = 0; i < 2; i++) {
        snprintf(text, sizeof(text),
                 "schema: cairn/site/v1\ndata: {a: {inputs: i.npy, labels: l.npy, %s}}\n", bad[i]);
        cn_diag_init(&diag);
        assert_int_equal(cn_profile_parse("t.yaml", text, strlen(text), &diag, &profile),
                         CN_EINVAL);
        assert_non_null(strstr(diag.lines[0], "expected the name of another data set"));
    }
}

static void a_printed_profile_loads_to_the_same(const char *path)
{
    struct cn_profile *profile = load(path), *again;
    char *first = print(profile, false), *second;

    again = parse(first);
    second = print(again, false);
    assert_string_equal(first, second);
    cn_profile_free(again);
    free(second);
    second = print(profile, true);
    again = parse(second); // comments do no harm
    cn_profile_free(again);
    free(second);
    free(first);
    cn_profile_free(profile);
}

static void every_good_profile_prints_to_what_loads_to_the_same(void **state)
{
    (void)state;
    a_printed_profile_loads_to_the_same("good-board-1.yaml");
    a_printed_profile_loads_to_the_same("good-gateway.yaml");
    a_printed_profile_loads_to_the_same("good-alone.yaml");
    a_printed_profile_loads_to_the_same("jobs/digits.yaml");
}

static void the_origin_of_each_value_is_printed(void **state)
{
    struct cn_profile *profile = load("good-gateway.yaml");
    char *text = print(profile, true);

    (void)state;
    assert_non_null(strstr(text, "deadline: 1 min                      # jobs/digits.yaml:10\n"));
    assert_non_null(strstr(text, "threads: all                             # default\n"));
    free(text);
    cn_profile_free(profile);
}

static void a_path_with_odd_characters_prints_and_loads(void **state)
{
    struct cn_profile *profile = parse("schema: cairn/site/v1\nstate: '/a \"b\\: #c, {d}'\n");
    char *text = print(profile, false);
    struct cn_profile *again = parse(text);

    (void)state;
    assert_string_equal(cn_profile_settings(again)->state, "/a \"b\\: #c, {d}");
    cn_profile_free(again);
    free(text);
    cn_profile_free(profile);
}

// The messages of a bad profile, as one text.
static void collect(const char *path, char *text, size_t size)
{
    struct cn_profile *profile;
    size_t length = 0;

    cn_diag_init(&diag);
    assert_int_equal(cn_profile_load(path, &diag, &profile), CN_EINVAL);
    assert_true(diag.count > 0 && diag.count <= CN_DIAG_LINES);
    for (size_t i = 0; i < diag.count; i++)
        length += (size_t)snprintf(text + length, size - length, "%s\n", diag.lines[i]);
}

static void every_bad_profile_has_the_expected_messages(void **state)
{
    DIR *directory = opendir(".");
    struct dirent *entry;
    size_t seen = 0;

    (void)state;
    assert_non_null(directory);
    while ((entry = readdir(directory))) {
        static char found[CN_DIAG_LINES * CN_DIAG_LINE_SIZE], wanted[sizeof(found)];
        size_t length = strlen(entry->d_name);
        char path[PATH_MAX];
        FILE *file;

        if (strncmp(entry->d_name, "bad-", 4) != 0 || length < 5 ||
            strcmp(entry->d_name + length - 5, ".yaml") != 0)
            continue;
        collect(entry->d_name, found, sizeof(found));
        snprintf(path, sizeof(path), "%.*s.expected", (int)length - 5, entry->d_name);
        file = fopen(path, "r");
        if (!file)
            fail_msg("%s is missing; found:\n%s", path, found);
        wanted[fread(wanted, 1, sizeof(wanted) - 1, file)] = '\0';
        fclose(file);
        assert_string_equal(found, wanted);
        seen++;
    }
    closedir(directory);
    assert_true(seen >= 15);
}

#define EXTENDED "schema: cairn/site/v1\nextends: good-gateway.yaml\n"

static void a_key_without_effect_is_a_warning_with_its_place(void **state)
{
    struct cn_profile *profile;

    (void)state;
    cn_profile_free(parse(EXTENDED "job: {train: {optimizer: sgd, momentum: 0.5}}\n"));
    assert_int_equal(diag.count, 0);
    profile = parse(EXTENDED "job:\n"
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

static void a_byte_order_mark_is_passed_over_and_a_binary_file_named(void **state)
{
    static const char binary[] = "\tELF\0\n\t\n\t";
    struct cn_profile *profile = NULL;

    (void)state;
    cn_profile_free(parse("\xef\xbb\xbf" EXTENDED));
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_parse("test.yaml", binary, sizeof(binary), &diag, &profile),
                     CN_EINVAL);
    assert_string_equal(cn_diag_first(&diag),
                        "test.yaml:1:1: error: not a text file; expected YAML");
    assert_int_equal(diag.count, 1);
}

static void a_job_that_trains_nothing_is_warned_of(void **state)
{
    (void)state;
    cn_profile_free(parse(EXTENDED "job: {train: {freeze: [\"*\"]}}\n"));
    assert_non_null(
        strstr(cn_diag_first(&diag), "test.yaml:3:23: warning: train.freeze: '*' is every tensor"));
}

static void a_file_that_is_too_large_or_none_is_refused(void **state)
{
    size_t size = 1024 * 1024 + 1;
    char *text = malloc(size);
    struct cn_profile *profile;

    (void)state;
    assert_non_null(text);
    memset(text, '#', size);
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_parse("big.yaml", text, size, &diag, &profile), CN_EINVAL);
    assert_non_null(strstr(cn_diag_first(&diag), "more than 1 MiB"));
    free(text);
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_load("/dev/zero", &diag, &profile), CN_EINVAL);
    assert_non_null(strstr(cn_diag_first(&diag), "it is not a file"));
    assert_int_equal(cn_profile_load("jobs", NULL, &profile), CN_EINVAL);
}

static void mistakes_beyond_the_first_lines_are_counted(void **state)
{
    char text[4096] = "schema: cairn/site/v1\n";

    (void)state;
    for (int i = 0; i < 100; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "unknown-%d: 1\n", i);
    (void)mistake(text);
    assert_int_equal(diag.count, 100);
}

static void more_entries_than_allowed_are_refused(void **state)
{
    char text[8192] = "schema: cairn/site/v1\ngroup: {members: {";

    (void)state;
    for (int i = 0; i < 17; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "b%d: \"h%d:1000\", ", i, i);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "}}\n");
    assert_non_null(strstr(mistake(text), "group.members: a map with too many entries"));
}

static void every_board_loads(void **state)
{
    DIR *directory = opendir("../../../boards");
    struct dirent *entry;
    size_t seen = 0;

    (void)state;
    assert_non_null(directory);
    while ((entry = readdir(directory))) {
        char path[PATH_MAX];
        struct stat status;
        struct cn_profile *profile;

        snprintf(path, sizeof(path), "../../../boards/%s/board.yaml", entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &status) != 0)
            continue;
        profile = load(path);
        assert_string_equal(cn_profile_settings(profile)->board_type, entry->d_name);
        cn_profile_free(profile);
        seen++;
    }
    closedir(directory);
    assert_true(seen >= 2);
}

static void a_template_loads_and_has_what_its_program_requires(void **state)
{
    static const struct cn_profile_entry entries[] = {
        {"extends", "generic-x86-64"},
        {"name", "null"}, // as a name it needs quotes
        {"memory.train_max", "2 GiB"},
        {"aggregator.address", "[\"a.lan:5684\", \"[fe80::7%eth0]:5684\"]"},
    };

    (void)state;
    for (int use = CN_PROFILE_TRAIN; use <= CN_PROFILE_GATEWAY; use++) {
        for (size_t count = 0; count <= 4; count += 4) {
            char *text = NULL;
            size_t size;
            FILE *stream = open_memstream(&text, &size);
            struct cn_profile *profile;

            assert_int_equal(cn_profile_template((enum cn_profile_use)use, entries, count, stream),
                             CN_OK);
            fclose(stream);
            profile = parse(text);
            cn_diag_init(&diag);
            if (cn_profile_require(profile, (enum cn_profile_use)use, &diag))
                fail_msg("%s", cn_diag_first(&diag));
            if (count)
                assert_string_equal(cn_profile_settings(profile)->name, "null");
            cn_profile_free(profile);
            free(text);
        }
    }
}

// Takes "# " away from every line that is a key.
static void uncomment(char *text)
{
    char *to = text, *from = text;

    while (*from) {
        size_t length = strcspn(from, "\n");

        if (strncmp(from, "# ", 2) == 0 && memchr(from, ':', length)) {
            from += 2;
            length -= 2;
        }
        length += from[length] == '\n';
        memmove(to, from, length);
        to += length;
        from += length;
    }
    *to = '\0';
}

static void a_template_loads_with_all_comments_taken_away(void **state)
{
    static const struct cn_profile_entry entries[] = {{"job.update.down.mode", "topk"}};
    char *text = NULL;
    size_t size;
    FILE *stream;

    (void)state;
    for (int use = CN_PROFILE_TRAIN; use <= CN_PROFILE_GATEWAY; use++) {
        stream = open_memstream(&text, &size);
        assert_int_equal(cn_profile_template((enum cn_profile_use)use, entries,
                                             use == CN_PROFILE_GATEWAY, stream),
                         CN_OK);
        fclose(stream);
        uncomment(text);
        cn_profile_free(parse(text));
        free(text);
    }
}

static void a_template_refuses_a_key_that_does_not_exist(void **state)
{
    static const struct cn_profile_entry entry = {"memory.max", "1 GiB"};

    (void)state;
    assert_int_equal(cn_profile_template(CN_PROFILE_NODE, &entry, 1, stdout), CN_EINVAL);
}

static int enter_data(void **state)
{
    (void)state;
    return chdir(CAIRN_TEST_DATA "/profiles");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_site_is_laid_over_its_board),
        cmocka_unit_test(members_have_the_same_order_on_each_board),
        cmocka_unit_test(a_gateway_takes_its_job_from_a_file),
        cmocka_unit_test(paths_count_from_the_file_where_they_are_written),
        cmocka_unit_test(a_section_is_laid_over_the_job_of_a_lower_site),
        cmocka_unit_test(a_job_can_only_ask_for_less),
        cmocka_unit_test(a_run_ends_by_what_boards_measure_only_where_they_are_trusted),
        cmocka_unit_test(momentum_of_the_server_is_refused_beside_signs),
        cmocka_unit_test(asynchronous_rounds_warn_of_what_is_weaker_in_them),
        cmocka_unit_test(every_robust_rule_has_its_word),
        cmocka_unit_test(asynchronous_rounds_are_refused_where_they_mean_nothing),
        cmocka_unit_test(a_buffer_is_three_quarters_of_the_quorum_unless_it_is_said),
        cmocka_unit_test(steps_are_compared_where_they_have_a_length),
        cmocka_unit_test(control_variates_need_whole_updates_of_plain_steps),
        cmocka_unit_test(personal_layers_are_refused_where_they_mean_nothing),
        cmocka_unit_test(robust_rules_are_refused_where_they_mean_nothing),
        cmocka_unit_test(a_round_waits_for_what_the_robust_rule_needs_or_takes_its_quorum),
        cmocka_unit_test(what_a_program_requires_is_told_at_once),
        cmocka_unit_test(a_profile_without_a_job_is_told_so_once),
        cmocka_unit_test(a_job_is_no_profile_of_a_board),
        cmocka_unit_test(a_job_needs_a_mapped_data_set_to_train),
        cmocka_unit_test(held_out_names_another_data_set),
        cmocka_unit_test(every_good_profile_prints_to_what_loads_to_the_same),
        cmocka_unit_test(the_origin_of_each_value_is_printed),
        cmocka_unit_test(a_path_with_odd_characters_prints_and_loads),
        cmocka_unit_test(every_bad_profile_has_the_expected_messages),
        cmocka_unit_test(a_key_without_effect_is_a_warning_with_its_place),
        cmocka_unit_test(a_job_that_trains_nothing_is_warned_of),
        cmocka_unit_test(a_byte_order_mark_is_passed_over_and_a_binary_file_named),
        cmocka_unit_test(a_file_that_is_too_large_or_none_is_refused),
        cmocka_unit_test(mistakes_beyond_the_first_lines_are_counted),
        cmocka_unit_test(more_entries_than_allowed_are_refused),
        cmocka_unit_test(every_board_loads),
        cmocka_unit_test(a_template_loads_and_has_what_its_program_requires),
        cmocka_unit_test(a_template_loads_with_all_comments_taken_away),
        cmocka_unit_test(a_template_refuses_a_key_that_does_not_exist),
    };

    return cmocka_run_group_tests(tests, enter_data, NULL);
}
