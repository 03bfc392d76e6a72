#include <string.h>

#include "runtime/port/crypto.h"
#include "transport/message/message_private.h"

_Static_assert(sizeof(enum cn_loss) == sizeof(uint32_t), "enums are read and written as U32");

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NUMBER(k, t, f, from, to)                                                                  \
    {                                                                                              \
        .key = (k), .kind = U32, .offset = offsetof(struct t, f), .min = (from), .max = (to)       \
    }
#define LONG(k, t, f, from, to)                                                                    \
    {                                                                                              \
        .key = (k), .kind = U64, .offset = offsetof(struct t, f), .min = (from), .max = (to)       \
    }
#define REAL(k, t, f, from, to)                                                                    \
    {                                                                                              \
        .key = (k), .kind = F64, .offset = offsetof(struct t, f), .low = (from), .high = (to)      \
    }
#define FIELD(k, what, t, f)                                                                       \
    {                                                                                              \
        .key = (k), .kind = (what), .offset = offsetof(struct t, f),                               \
        .max = sizeof(((struct t *)0)->f)                                                          \
    }
#define SUB(k, t, f, s)                                                                            \
    {                                                                                              \
        .key = (k), .kind = MAP, .offset = offsetof(struct t, f), .schema = &(s)                   \
    }
#define OPTION(k, t, f)                                                                            \
    {                                                                                              \
        .key = (k), .kind = U64_OR_ZERO, .offset = offsetof(struct t, f), .max = ANY               \
    }
#define SCHEMA(table)                                                                              \
    {                                                                                              \
        (table), COUNT(table)                                                                      \
    }

#define ANY UINT64_MAX
#define HUGE 1e30

static const struct cn_message_field register_fields[] = {
    FIELD(1, PAIR, cn_register_request, protocol),
    FIELD(2, PAIR, cn_register_request, update_format),
    FIELD(3, PAIR, cn_register_request, graph_ops),
    NUMBER(4, cn_register_request, facts.cpu_count, 1, 65536),
    LONG(5, cn_register_request, facts.memory, 0, ANY),
    LONG(6, cn_register_request, facts.power_mw, 0, ANY),
    FIELD(7, NAME_OR_EMPTY, cn_register_request, facts.board_type),
    FIELD(8, TEXT_OR_NONE, cn_register_request, facts.fault),
    OPTION(9, cn_register_request, facts.instance),
    OPTION(12, cn_register_request, facts.ahead_lineage),
    OPTION(13, cn_register_request, facts.ahead_version),
    FIELD(14, TEXT_OR_NONE, cn_register_request, facts.inventory.build),
    FIELD(15, TEXT_OR_NONE, cn_register_request, facts.inventory.system),
    OPTION(16, cn_register_request, facts.inventory.disk_size),
    OPTION(17, cn_register_request, facts.inventory.disk_free),
    OPTION(18, cn_register_request, facts.fault_code),
    FIELD(19, TEXT_OR_NONE, cn_register_request, facts.inventory.slot),
    FIELD(20, TEXT_OR_NONE, cn_register_request, facts.inventory.slot_version),
    FIELD(21, TEXT_OR_NONE, cn_register_request, facts.inventory.update),
    FIELD(22, TEXT_OR_NONE, cn_register_request, facts.inventory.update_version),
    FIELD(23, TEXT_OR_NONE, cn_register_request, facts.data_sets),
    OPTION(24, cn_register_request, facts.fault_run),
    {.key = 25,
     .kind = U64_OR_ZERO,
     .offset = offsetof(struct cn_register_request, facts.gpu),
     .max = UINT16_MAX},
};
static const struct cn_message_schema register_schema = SCHEMA(register_fields);

static const struct cn_message_field rule_fields[] = {
    NUMBER(1, cn_update_rule, mode, 0, CN_UPDATE_AUTO),
    REAL(2, cn_update_rule, density, 0, 1),
    NUMBER(3, cn_update_rule, value_bits, 0, 8),
};
static const struct cn_message_schema rule_schema = SCHEMA(rule_fields);

static const struct cn_message_field rules_fields[] = {
    FIELD(1, TEXT, cn_rules, output),
    FIELD(2, TEXT, cn_rules, weights),
    FIELD(3, TEXT, cn_rules, ignore),
    FIELD(4, BOOL, cn_rules, classes_first),
    REAL(5, cn_rules, smoothing, 0, 1),
    REAL(6, cn_rules, delta, 0, HUGE),
    NUMBER(7, cn_rules, optimizer, 0, CN_OPTIMIZER_ADAMW),
    FIELD(8, BOOL, cn_rules, nesterov),
    REAL(9, cn_rules, beta1, 0, 1),
    REAL(10, cn_rules, beta2, 0, 1),
    REAL(11, cn_rules, epsilon, 0, HUGE),
    NUMBER(12, cn_rules, schedule, 0, CN_SCHEDULE_COSINE),
    NUMBER(13, cn_rules, warm_up, 0, UINT32_MAX),
    NUMBER(14, cn_rules, every, 0, UINT32_MAX),
    REAL(15, cn_rules, factor, 0, 1),
    REAL(16, cn_rules, clip, 0, HUGE),
    REAL(17, cn_rules, proximal, 0, HUGE),
    FIELD(18, TEXT, cn_rules, freeze),
    NUMBER(19, cn_rules, normalize, 0, CN_NORMALIZE_CHANNEL),
    NUMBER(20, cn_rules, window, 0, 1u << 20),
    NUMBER(21, cn_rules, stride, 0, 1u << 20),
    FIELD(22, BOOL, cn_rules, one_hot),
    FIELD(23, BOOL, cn_rules, flip),
    NUMBER(24, cn_rules, crop, 0, 1024),
    REAL(25, cn_rules, noise, 0, HUGE),
    NUMBER(26, cn_rules, batch_norm, 0, CN_BATCH_NORM_FROZEN),
    FIELD(27, TEXT, cn_rules, no_decay),
};
static const struct cn_message_schema rules_schema = SCHEMA(rules_fields);

static const struct cn_message_field parallel_fields[] = {
    FIELD(1, TEXT, cn_parallel, sets),
    FIELD(2, TEXT, cn_parallel, phases),
    FIELD(3, TEXT, cn_parallel, train),
    FIELD(4, TEXT, cn_parallel, measure),
    NUMBER(5, cn_parallel, scope, 0, CN_SCOPE_SHARED),
    NUMBER(6, cn_parallel, lr_scaling, 0, CN_LR_SCALING_LINEAR),
    NUMBER(7, cn_parallel, accumulate, 0, 1u << 20),
    NUMBER(8, cn_parallel, replicate, 0, CN_GROUP_MAX),
    NUMBER(9, cn_parallel, shard, 0, CN_GROUP_MAX),
    FIELD(10, BOOL, cn_parallel, balance),
    NUMBER(11, cn_parallel, stage, 0, CN_SHARING_WEIGHTS),
    NUMBER(12, cn_parallel, kind, 0, CN_PARALLEL_AUTO),
};
static const struct cn_message_schema parallel_schema = SCHEMA(parallel_fields);

static const struct cn_message_field pipeline_fields[] = {
    NUMBER(1, cn_pipeline_settings, parts, 0, CN_GROUP_MAX),
    FIELD(2, TEXT, cn_pipeline_settings, cut),
};
static const struct cn_message_schema pipeline_schema = SCHEMA(pipeline_fields);

static const struct cn_message_field correction_fields[] = {
    NUMBER(1, cn_correction, kind, 0, CN_CORRECTION_SCAFFOLD),
};
static const struct cn_message_schema correction_schema = SCHEMA(correction_fields);

static const struct cn_message_field options_fields[] = {
    FIELD(1, TEXT, cn_update_options, densities),
    FIELD(2, TEXT, cn_update_options, priorities),
    NUMBER(3, cn_update_options, snapshot_every, 0, UINT32_MAX),
    NUMBER(4, cn_update_options, residual, 0, CN_RESIDUAL_BF16),
    FIELD(5, TEXT, cn_update_options, local),
    NUMBER(6, cn_update_options, frozen, 0, CN_FROZEN_LOCAL),
    NUMBER(7, cn_update_options, small, 0, CN_SMALL_SIGN),
};
static const struct cn_message_schema options_schema = SCHEMA(options_fields);

static const struct cn_message_field job_fields[] = {
    FIELD(1, NAME, cn_job, name),
    LONG(2, cn_job, seed, 0, ANY),
    NUMBER(3, cn_job, loss, 0, CN_LOSS_OUTPUT),
    FIELD(4, NAME, cn_job, data_set),
    FIELD(5, NAME_OR_EMPTY, cn_job, central_set),
    REAL(6, cn_job, scale, -HUGE, HUGE),
    REAL(7, cn_job, mean, -HUGE, HUGE),
    REAL(8, cn_job, held_out, 0, 0.9),
    NUMBER(9, cn_job, batch, 1, 1u << 20),
    NUMBER(10, cn_job, accumulate, 1, 1u << 20),
    NUMBER(11, cn_job, local_steps, 1, 1u << 30),
    REAL(12, cn_job, learning_rate, 0, HUGE),
    REAL(13, cn_job, momentum, 0, 1),
    REAL(14, cn_job, weight_decay, 0, HUGE),
    FIELD(15, BOOL, cn_job, keep_optimizer),
    SUB(16, cn_job, up, rule_schema),
    SUB(17, cn_job, down, rule_schema),
    NUMBER(18, cn_job, rounds, 0, UINT32_MAX),
    NUMBER(19, cn_job, quorum, 0, UINT32_MAX),
    REAL(20, cn_job, over_select, 0, HUGE),
    LONG(21, cn_job, deadline_ms, 0, ANY),
    REAL(22, cn_job, max_norm, 0, HUGE),
    LONG(23, cn_job, max_weight, 0, ANY),
    NUMBER(24, cn_job, patience, 0, UINT32_MAX),
    REAL(25, cn_job, target_accuracy, 0, 1),
    {.key = 26, .kind = RULES, .offset = offsetof(struct cn_job, rules), .schema = &rules_schema},
    NUMBER(27, cn_job, local_steps_most, 0, 1u << 30),
    NUMBER(28, cn_job, warm_up, 0, UINT32_MAX),
    NUMBER(29, cn_job, stale_rounds, 0, UINT32_MAX),
    REAL(30, cn_job, stale_decay, 0, 1),
    NUMBER(31, cn_job, statistics, 0, CN_STATISTICS_LOCAL),
    {.key = 32,
     .kind = RULES,
     .offset = offsetof(struct cn_job, options),
     .schema = &options_schema},
    {.key = 33,
     .kind = RULES,
     .offset = offsetof(struct cn_job, parallel),
     .schema = &parallel_schema},
    {.key = 34,
     .kind = RULES,
     .offset = offsetof(struct cn_job, pipeline),
     .schema = &pipeline_schema},
    {.key = 35,
     .kind = RULES,
     .offset = offsetof(struct cn_job, correction),
     .schema = &correction_schema},
};
static const struct cn_message_schema job_schema = SCHEMA(job_fields);

static const struct cn_message_field base_fields[] = {
    FIELD(1, BYTES, cn_base_name, digest),
};
static const struct cn_message_schema base_schema = SCHEMA(base_fields);

static const struct cn_message_field manifest_fields[] = {
    NUMBER(1, cn_register_reply, protocol, 1, UINT32_MAX),
    NUMBER(2, cn_register_reply, update_format, 1, UINT32_MAX),
    NUMBER(3, cn_register_reply, graph_ops, 1, UINT32_MAX),
    NUMBER(4, cn_register_reply, chunk_size, 16, CN_CHUNK_MAX),
    NUMBER(5, cn_register_reply, window, 1, UINT32_MAX),
    LONG(6, cn_register_reply, manifest.run, 0, ANY),
    NUMBER(7, cn_register_reply, manifest.lineage, 0, UINT32_MAX),
    FIELD(8, NAME, cn_register_reply, manifest.group),
    FIELD(9, BYTES, cn_register_reply, manifest.graph),
    LONG(10, cn_register_reply, manifest.graph_size, 1, ANY),
    SUB(11, cn_register_reply, manifest.job, job_schema),
    OPTION(12, cn_register_reply, manifest.key_epoch),
    OPTION(13, cn_register_reply, manifest.group_boards),
    {.key = 22,
     .kind = RULES,
     .offset = offsetof(struct cn_register_reply, manifest.base),
     .schema = &base_schema},
};
static const struct cn_message_schema manifest_schema = SCHEMA(manifest_fields);

static const struct cn_message_field chain_fields[] = {
    FIELD(1, BYTES, cn_delta_chain, digests),
    NUMBER(2, cn_delta_chain, sizes[0], 0, UINT32_MAX),
    NUMBER(3, cn_delta_chain, sizes[1], 0, UINT32_MAX),
    NUMBER(4, cn_delta_chain, sizes[2], 0, UINT32_MAX),
    NUMBER(5, cn_delta_chain, sizes[3], 0, UINT32_MAX),
    NUMBER(6, cn_delta_chain, sizes[4], 0, UINT32_MAX),
    NUMBER(7, cn_delta_chain, sizes[5], 0, UINT32_MAX),
    NUMBER(8, cn_delta_chain, sizes[6], 0, UINT32_MAX),
    NUMBER(9, cn_delta_chain, sizes[7], 0, UINT32_MAX),
};
static const struct cn_message_schema chain_schema = SCHEMA(chain_fields);

static const struct cn_message_field snapshot_fields[] = {
    NUMBER(1, cn_snapshot, number, 0, UINT32_MAX),
    LONG(2, cn_snapshot, size, 0, ANY),
    FIELD(3, BYTES, cn_snapshot, digest),
};
static const struct cn_message_schema snapshot_schema = SCHEMA(snapshot_fields);

static const struct cn_message_field control_fields[] = {
    NUMBER(1, cn_round_control, epoch, 0, UINT32_MAX),
    LONG(2, cn_round_control, size, 0, ANY),
    FIELD(3, BYTES, cn_round_control, digest),
};
static const struct cn_message_schema control_schema = SCHEMA(control_fields);

static const struct cn_message_field order_fields[] = {
    NUMBER(1, cn_order, seq, 0, UINT32_MAX),
    NUMBER(2, cn_order, kind, 0, UINT32_MAX),
    NUMBER(3, cn_order, lines, 0, UINT32_MAX),
};
static const struct cn_message_schema order_schema = SCHEMA(order_fields);

static const struct cn_message_field round_fields[] = {
    LONG(1, cn_round_info, run, 0, ANY),
    NUMBER(2, cn_round_info, lineage, 0, UINT32_MAX),
    NUMBER(3, cn_round_info, state, 0, CN_ROUND_ENDED),
    NUMBER(4, cn_round_info, round, 0, UINT32_MAX),
    LONG(5, cn_round_info, remaining_ms, 0, ANY),
    FIELD(6, BOOL, cn_round_info, invited),
    NUMBER(7, cn_round_info, version, 0, UINT32_MAX),
    FIELD(8, BYTES, cn_round_info, version_digest),
    LONG(9, cn_round_info, version_size, 0, ANY),
    FIELD(10, BYTES, cn_round_info, parent),
    FIELD(11, BYTES, cn_round_info, delta_digest),
    LONG(12, cn_round_info, delta_size, 0, ANY),
    NUMBER(13, cn_round_info, decided_round, 0, UINT32_MAX),
    FIELD(14, BOOL, cn_round_info, decided_accepted),
    FIELD(15, BYTES, cn_round_info, decided_digest),
    {.key = 16,
     .kind = RULES,
     .offset = offsetof(struct cn_round_info, chain),
     .schema = &chain_schema},
    {.key = 17,
     .kind = RULES,
     .offset = offsetof(struct cn_round_info, snapshot),
     .schema = &snapshot_schema},
    OPTION(18, cn_round_info, key_epoch),
    {.key = 19,
     .kind = RULES,
     .offset = offsetof(struct cn_round_info, order),
     .schema = &order_schema},
    OPTION(20, cn_round_info, forget),
    OPTION(21, cn_round_info, group_boards),
    OPTION(25, cn_round_info, oldest),
    {.key = 26,
     .kind = RULES,
     .offset = offsetof(struct cn_round_info, control),
     .schema = &control_schema},
};
static const struct cn_message_schema round_schema = SCHEMA(round_fields);

static const struct cn_message_field measures_fields[] = {
    REAL(1, cn_measures, top5, 0, 1),
    REAL(2, cn_measures, f1, 0, 1),
    REAL(3, cn_measures, mae, 0, HUGE),
    REAL(4, cn_measures, perplexity, 0, HUGE),
};
static const struct cn_message_schema measures_schema = SCHEMA(measures_fields);

static const struct cn_message_field declare_fields[] = {
    LONG(1, cn_declare_request, run, 0, ANY),
    NUMBER(2, cn_declare_request, round, 1, UINT32_MAX),
    LONG(3, cn_declare_request, size, 1, ANY),
    FIELD(4, BYTES, cn_declare_request, digest),
    FIELD(5, BYTES, cn_declare_request, base),
    REAL(6, cn_declare_request, held_out_loss, -HUGE, HUGE),
    LONG(7, cn_declare_request, held_out_correct, 0, ANY),
    LONG(8, cn_declare_request, held_out_count, 0, ANY),
    REAL(9, cn_declare_request, train_loss, -HUGE, HUGE),
    {.key = 10,
     .kind = RULES,
     .offset = offsetof(struct cn_declare_request, measures),
     .schema = &measures_schema},
    {.key = 12,
     .kind = SIGNS,
     .offset = offsetof(struct cn_declare_request, members),
     .max = CN_GROUP_MAX,
     .count_offset = offsetof(struct cn_declare_request, member_count)},
    OPTION(13, cn_declare_request, steps),
    OPTION(14, cn_declare_request, control_epoch),
    OPTION(15, cn_declare_request, control_count),
    OPTION(16, cn_declare_request, down_bps),
};
static const struct cn_message_schema declare_schema = SCHEMA(declare_fields);

static const struct cn_message_field status_fields[] = {
    FIELD(1, BYTES, cn_upload_status, id),
    FIELD(2, BOOL, cn_upload_status, decided),
    NUMBER(3, cn_upload_status, verdict, 0, CN_VERDICT_LATE),
    FIELD(4, BYTES, cn_upload_status, accepted),
    NUMBER(5, cn_upload_status, chunk_count, 0, UINT32_MAX),
    NUMBER(6, cn_upload_status, received, 0, UINT32_MAX),
    {.key = 7,
     .kind = RANGES,
     .offset = offsetof(struct cn_upload_status, missing),
     .max = CN_RANGE_MAX,
     .count_offset = offsetof(struct cn_upload_status, missing_count)},
    FIELD(8, TEXT, cn_upload_status, reason),
    NUMBER(9, cn_upload_status, known, 0, UINT32_MAX),
    {.key = 10,
     .kind = RANGES,
     .offset = offsetof(struct cn_upload_status, recent),
     .max = CN_RECENT_MAX,
     .min = CN_MESSAGE_ANY_ORDER,
     .count_offset = offsetof(struct cn_upload_status, recent_count)},
};
static const struct cn_message_schema status_schema = SCHEMA(status_fields);

#define SMALL_OPTION(k, t, f)                                                                      \
    {                                                                                              \
        .key = (k), .kind = U64_OR_ZERO, .offset = offsetof(struct t, f), .max = UINT32_MAX        \
    }

static const struct cn_message_field health_fields[] = {
    NUMBER(1, cn_health, state, 0, 255),
    NUMBER(2, cn_health, round, 0, UINT32_MAX),
    NUMBER(3, cn_health, step, 0, UINT32_MAX),
    NUMBER(4, cn_health, steps, 0, UINT32_MAX),
    SMALL_OPTION(5, cn_health, temperature_mk),
    SMALL_OPTION(6, cn_health, power_mw),
    SMALL_OPTION(7, cn_health, centisamples),
    SMALL_OPTION(8, cn_health, flags),
    SMALL_OPTION(9, cn_health, error_code),
    FIELD(10, TEXT_OR_NONE, cn_health, error),
    SMALL_OPTION(11, cn_health, seq),
    SMALL_OPTION(12, cn_health, resident_mib),
    FIELD(13, TEXT_OR_NONE, cn_health, rest),
    SMALL_OPTION(14, cn_health, battery),
    SMALL_OPTION(15, cn_health, left_kib),
    SMALL_OPTION(16, cn_health, samples),
    {.key = 17,
     .kind = SIGNS,
     .offset = offsetof(struct cn_health, missing),
     .max = CN_HEALTH_MISSING_MAX,
     .count_offset = offsetof(struct cn_health, missing_count)},
    SMALL_OPTION(18, cn_health, samples_run),
    SMALL_OPTION(19, cn_health, part),
    SMALL_OPTION(20, cn_health, parts),
    SMALL_OPTION(21, cn_health, chain),
    SMALL_OPTION(22, cn_health, chains),
    SMALL_OPTION(23, cn_health, bubble),
};
static const struct cn_message_schema health_schema = SCHEMA(health_fields);

uint32_t cn_message_graph_ops(const struct cn_job *job)
{
    if (job->rules.no_decay[0])
        return 7;
    if (job->pipeline.parts > 1 && job->parallel.scope == CN_SCOPE_OWN)
        return 6;
    if (job->correction.kind)
        return 5;
    if (!cn_message_is_plain(&pipeline_schema, &job->pipeline))
        return 4;
    if (!cn_message_is_plain(&parallel_schema, &job->parallel))
        return 3;
    return job->loss > CN_LOSS_MSE || !cn_message_is_plain(&rules_schema, &job->rules) ? 2 : 1;
}

uint32_t cn_message_update_format(const struct cn_job *job)
{
    if (job->options.small == CN_SMALL_SIGN)
        return 4;
    return job->options.local[0] || job->options.frozen == CN_FROZEN_LOCAL ? 3
                                                                           : CN_UPDATE_FORMAT_MIN;
}

void cn_message_copy_text(char *to, size_t to_size, const uint8_t *from, size_t size)
{
    size_t length = size < to_size ? size : to_size - 1;

    for (size_t i = 0; i < length; i++)
        to[i] = (char)(from[i] < 0x20 || from[i] == 0x7f ? '?' : from[i]);
    to[length] = 0;
}

cn_err cn_message_put_register(const struct cn_register_request *message, uint8_t *bytes,
                               size_t *size)
{
    return cn_message_put(&register_schema, message, bytes, size);
}

cn_err cn_message_get_register(const uint8_t *bytes, size_t size,
                               struct cn_register_request *message)
{
    return cn_message_get(&register_schema, bytes, size, message, sizeof(*message));
}

cn_err cn_message_put_health(const struct cn_health *message, uint8_t *bytes, size_t *size)
{
    cn_err err = cn_message_put(&health_schema, message, bytes, size);

    return !err && *size > CN_HEALTH_MESSAGE_MAX ? CN_ERANGE : err;
}

cn_err cn_message_get_health(const uint8_t *bytes, size_t size, struct cn_health *message)
{
    return cn_message_get(&health_schema, bytes, size, message, sizeof(*message));
}

cn_err cn_message_put_order(const struct cn_order *message, uint8_t *bytes, size_t *size)
{
    return cn_message_put(&order_schema, message, bytes, size);
}

cn_err cn_message_get_order(const uint8_t *bytes, size_t size, struct cn_order *message)
{
    return cn_message_get(&order_schema, bytes, size, message, sizeof(*message));
}

cn_err cn_message_put_manifest(const struct cn_register_reply *message, uint8_t *bytes,
                               size_t *size)
{
    return cn_message_put(&manifest_schema, message, bytes, size);
}

// Computes a job's digest from its encoding. The encoding is deterministic, so boards of one
// release that have the same job compute the same digest.
static cn_err digest_job(const struct cn_job *job, uint8_t digest[CN_DIGEST_SIZE])
{
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    cn_err err = cn_message_put(&job_schema, job, bytes, &size);

    if (!err)
        cn_crypto_digest(bytes, size, digest);
    return err;
}

cn_err cn_message_get_manifest(const uint8_t *bytes, size_t size, struct cn_register_reply *message)
{
    cn_err err = cn_message_get(&manifest_schema, bytes, size, message, sizeof(*message));

    return err ? err : digest_job(&message->manifest.job, message->manifest.job_digest);
}

cn_err cn_message_put_round(const struct cn_round_info *message, uint8_t *bytes, size_t *size)
{
    return cn_message_put(&round_schema, message, bytes, size);
}

cn_err cn_message_get_round(const uint8_t *bytes, size_t size, struct cn_round_info *message)
{
    return cn_message_get(&round_schema, bytes, size, message, sizeof(*message));
}

cn_err cn_message_put_declare(const struct cn_declare_request *message, uint8_t *bytes,
                              size_t *size)
{
    return cn_message_put(&declare_schema, message, bytes, size);
}

cn_err cn_message_get_declare(const uint8_t *bytes, size_t size, struct cn_declare_request *message)
{
    return cn_message_get(&declare_schema, bytes, size, message, sizeof(*message));
}

cn_err cn_message_put_status(const struct cn_upload_status *message, uint8_t *bytes, size_t *size)
{
    if (message->missing_count > CN_RANGE_MAX || message->recent_count > CN_RECENT_MAX)
        return CN_ERANGE;
    return cn_message_put(&status_schema, message, bytes, size);
}

static bool ranges_fit(const struct cn_chunk_range *ranges, uint32_t count, uint32_t end)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ranges[i].first + ranges[i].count > end)
            return false;
    }
    return true;
}

cn_err cn_message_get_status(const uint8_t *bytes, size_t size, struct cn_upload_status *message)
{
    cn_err err = cn_message_get(&status_schema, bytes, size, message, sizeof(*message));

    if (!err && (message->known > message->chunk_count ||
                 !ranges_fit(message->missing, message->missing_count, message->chunk_count) ||
                 !ranges_fit(message->recent, message->recent_count, message->chunk_count))) {
        memset(message, 0, sizeof(*message));
        err = CN_EFORMAT;
    }
    return err;
}

void cn_message_upload_id(const char *board, uint64_t run, uint32_t round,
                          const uint8_t digest[CN_DIGEST_SIZE], uint8_t id[CN_UPLOAD_ID_SIZE])
{
    uint8_t numbers[12], hash[CN_DIGEST_SIZE];
    struct cn_sha256 sha;

    cn_put_u64(numbers, run);
    cn_put_u32(numbers + 8, round);
    cn_sha256_init(&sha);
    cn_sha256_add(&sha, board, strlen(board));
    cn_sha256_add(&sha, numbers, sizeof(numbers));
    cn_sha256_add(&sha, digest, CN_DIGEST_SIZE);
    cn_sha256_finish(&sha, hash);
    memcpy(id, hash, CN_UPLOAD_ID_SIZE);
}
