#include "runtime/profile/schema.h"

#include <string.h>

#define BOARD (1u << CN_LAYER_BOARD)
#define SITE (1u << CN_LAYER_SITE)
#define JOB (1u << CN_LAYER_JOB)

#define TRAIN CN_USE_TRAIN
#define NODE CN_USE_NODE
#define GATEWAY CN_USE_GATEWAY

#define AT(member) .offset = offsetof(struct cn_settings, member)

#define MIB 1048576.0
#define TIB 1099511627776.0
#define DAY 86400000.0           // ms
#define EXACT 9007199254740991.0 // 2^53 - 1: whole in JSON and in a double

static const char *const precisions[] = {"float32", "bfloat16", "float16", "tf32", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const losses[] = {"cross_entropy", "mse", "binary_cross_entropy", "huber", "l1",
                                     "output",        NULL};
static const char *const batch_norms[] = {"model", "train", "frozen", NULL};
static const char *const optimizers[] = {"sgd", "adam", "adamw", NULL};
static const char *const schedules[] = {"constant", "step", "cosine", NULL};
static const char *const normalizations[] = {"none", "feature", "channel", NULL};
static const char *const wires[] = {"float32", "bfloat16", NULL};
static const char *const row_places[] = {"auto", "memory", "disk", NULL};
static const char *const remotes[] = {"none", "log", "selftest", NULL};
static const char *const lans[] = {"untrusted", "trusted", NULL};
static const char *const transports[] = {"auto", "udp", "tcp", NULL};
static const char *const up_modes[] = {"raw32", "q8", "topk", "bf16", "q4", "sign", "auto", NULL};
static const char *const down_modes[] = {"raw32", "q8", "topk", "bf16", "q4", "sign", "auto", NULL};
static const char *const residuals[] = {"fp32", "bf16", NULL};
static const char *const stages[] = {"1", "2", "3", NULL};
static const char *const scopes[] = {"own", "shared", NULL};
static const char *const lr_scalings[] = {"none", "sqrt", "linear", NULL};
static const char *const parallel_kinds[] = {"given", "auto", NULL};
static const char *const server_optimizers[] = {"fedavg",  "fedavgm", "nesterov", "fedadagrad",
                                                "fedadam", "fedyogi", NULL};
static const char *const robust_rules[] = {"none", "median", "trimmed", "multi_krum",
                                           "rfa",  "cclip",  NULL};
static const char *const robust_mixes[] = {"none", "bucket", "nearest", NULL};
static const char *const robust_shorts[] = {"wait", "clip", NULL};
static const char *const round_modes[] = {"synchronous", "asynchronous", NULL};
static const char *const metrics[] = {"auto", "accuracy", "loss", "top5", "f1", "mae", NULL};
static const char *const server_normalizes[] = {"off", "steps", NULL};
static const char *const corrections[] = {"none", "scaffold", NULL};
static const char *const frozens[] = {"shared", "local", NULL};
static const char *const smalls[] = {"q8", "sign", NULL};
static const char *const statistics[] = {"shared", "local", NULL};

const struct cn_schema_row cn_schema[] = {
    {"schema", CN_VALUE_LINK, BOARD | SITE | JOB, .uses = CN_USE_ALL,
     .about = "kind and version of this file; its first line"},
    {"extends", CN_VALUE_LINK, BOARD | SITE | JOB, .uses = TRAIN | NODE,
     .example = "generic-x86-64", .about = "file or type of board that this file adds to"},
    {"name", CN_VALUE_NAME, SITE, AT(name), .example = "board-1", .required = NODE,
     .uses = NODE | GATEWAY, .about = "identity of this device"},
    {"board", CN_VALUE_NAME, BOARD | SITE, AT(board_type), .example = "generic-x86-64",
     .uses = NODE, .about = "type of board, told to the aggregator"},
    {"state", CN_VALUE_PATH, BOARD | SITE, AT(state), .example = "state",
     .required = TRAIN | NODE | GATEWAY | CN_USE_LOOK, .uses = CN_USE_ALL,
     .about = "directory in which everything is stored"},
    {"base", CN_VALUE_PATH, BOARD | SITE, AT(base), .example = "model.onnx", .uses = NODE,
     .about = "the job's model on this board, an ONNX file: its weights are not fetched"},
    {"remote", CN_VALUE_CHOICE, BOARD | SITE, AT(remote), .choices = remotes, .initial = "none",
     .uses = NODE,
     .about = "what operators may ask for: log, its newest lines; selftest: that too"},
    {"device", CN_VALUE_CHOICE, BOARD | SITE, AT(device), .choices = devices, .initial = "auto",
     .uses = TRAIN | NODE,
     .about = "device that trains; auto: the GPU if there is one, else the CPU"},
    {"gpus", CN_VALUE_WORDS, BOARD | SITE, AT(gpus), 0, 63, "first", .initial = "first",
     .uses = TRAIN | NODE,
     .about = "numbers of the GPUs that train; run makes each of several a member of the group"},
    {"compute.precision", CN_VALUE_CHOICE, BOARD | SITE, AT(precision), .choices = precisions,
     .initial = "float32", .uses = TRAIN | NODE,
     .about = "the GPU rounds the factors of products to this; sums stay float32"},
    {"threads", CN_VALUE_COUNT, BOARD | SITE | JOB, AT(threads), 1, 1024, "all", .initial = "all",
     .uses = TRAIN | NODE, .about = "processors used for training"},
    {"cpu.cores", CN_VALUE_COUNT, BOARD | SITE, AT(cpu_cores), 1, 1024, .example = "4",
     .uses = TRAIN | NODE, .about = "processors of the board; threads may not exceed them"},
    {"memory.size", CN_VALUE_SIZE, BOARD | SITE, AT(memory_size), MIB, 64 * TIB, .example = "8 GiB",
     .uses = TRAIN | NODE, .about = "memory of the board; train_max may not exceed it"},
    {"memory.train_max", CN_VALUE_SIZE, BOARD | SITE | JOB, AT(memory_limit), MIB, 64 * TIB, "none",
     .initial = "none", .uses = TRAIN | NODE,
     .about = "most memory for training and for copies of the model; at most what the machine "
              "has"},
    {"memory.rows", CN_VALUE_CHOICE, BOARD | SITE, AT(row_place), .choices = row_places,
     .initial = "auto", .uses = NODE,
     .about = "where copies of the model lie; auto: on disk if members divide it"},
    {"power.budget", CN_VALUE_POWER, BOARD | SITE, AT(power_mw), 100, 1e7, "none",
     .initial = "none", .uses = TRAIN | NODE, .about = "power budget, told to the aggregator"},
    {"power.sensor", CN_VALUE_WORDS, BOARD | SITE, AT(care.power_sensors), .zero = "none",
     .initial = "none", .uses = TRAIN | NODE,
     .about = "label of the sensor of total power, or rails to add (A+B); a list: the first found"},
    {"power.mode", CN_VALUE_WORDS, BOARD | SITE, AT(care.power_mode), .zero = "none",
     .initial = "none", .uses = TRAIN | NODE,
     .about = "name of the power mode to set; a list: the first that the board has"},
    {"power.enforce", CN_VALUE_BOOL, BOARD | SITE, AT(care.enforce_power), .initial = "false",
     .uses = TRAIN | NODE, .about = "true: training pauses while the sensor is above the budget"},
    {"thermal.zone", CN_VALUE_WORDS, BOARD | SITE, AT(care.zones), .zero = "all", .initial = "all",
     .uses = TRAIN | NODE, .about = "types of thermal zones to watch; the hottest counts"},
    {"thermal.pause_above", CN_VALUE_HEAT, BOARD | SITE, AT(care.pause_above_mc), 20000, 125000,
     "none", .initial = "none", .uses = TRAIN | NODE,
     .about = "training pauses at this temperature"},
    {"thermal.resume_below", CN_VALUE_HEAT, BOARD | SITE, AT(care.resume_below_mc), 10000, 125000,
     "auto", .initial = "auto", .uses = TRAIN | NODE,
     .about = "a pause for heat ends below this; auto: 8 C below pause_above"},
    {"window.from", CN_VALUE_DURATION, BOARD | SITE, AT(care.window_from_ms), 0, DAY,
     .initial = "0", .uses = TRAIN | NODE,
     .about = "time after local midnight when training may begin, such as 22 h"},
    {"window.to", CN_VALUE_DURATION, BOARD | SITE, AT(care.window_to_ms), 0, DAY, .initial = "0",
     .uses = TRAIN | NODE,
     .about = "time after local midnight when it must end; equal to from: all day"},
    {"idle.others_max", CN_VALUE_SHARE, BOARD | SITE, AT(care.others_max), 0.001, 1, "none",
     .initial = "none", .uses = TRAIN | NODE,
     .about = "training pauses while other programs use more of the processors"},
    {"hooks.on_round", CN_VALUE_PATH, BOARD | SITE, AT(care.on_round), .uses = TRAIN | NODE,
     .example = "/usr/local/bin/on-round", .about = "program to run at each new round"},
    {"hooks.on_version", CN_VALUE_PATH, BOARD | SITE, AT(care.on_version), .uses = TRAIN | NODE,
     .example = "/usr/local/bin/on-version", .about = "program to run at each new version"},
    {"hooks.on_pause", CN_VALUE_PATH, BOARD | SITE, AT(care.on_pause), .uses = TRAIN | NODE,
     .example = "/usr/local/bin/on-pause", .about = "program to run at each pause and its end"},
    {"hooks.limit", CN_VALUE_DURATION, BOARD | SITE, AT(care.hook_limit_ms), 1000, 3600000,
     .initial = "30 s", .uses = TRAIN | NODE | GATEWAY,
     .about = "longest time that a hook may run"},
    {"hooks.on_event", CN_VALUE_PATH, SITE, AT(event_hook.path), .uses = GATEWAY,
     .example = "/usr/local/bin/on-event",
     .about = "gateway: program to run for an event, such as a board that fails"},
    {"hooks.events", CN_VALUE_WORDS, SITE, AT(event_hook.events), .zero = "alarms",
     .initial = "alarms", .uses = GATEWAY,
     .about = "gateway: kinds of events for on_event; board_*: all that begin so; *: all"},
    {"storage.reserve", CN_VALUE_SIZE, BOARD | SITE, AT(reserve), 0, 64 * TIB, .initial = "64 MiB",
     .uses = CN_USE_ALL, .about = "free space to leave on the disk of state"},
    {"storage.wear_budget", CN_VALUE_SIZE, BOARD | SITE, AT(care.wear_bytes), MIB, 64 * TIB, "none",
     .initial = "none", .uses = TRAIN | NODE,
     .about = "training pauses when the node has written this much in 24 h"},
    {"network.uplink", CN_VALUE_RATE, BOARD | SITE, AT(uplink_bps), 1000, 1e12, "none",
     .initial = "none", .uses = NODE,
     .about = "most bits per second that this board sends to the aggregator"},
    {"network.transport", CN_VALUE_CHOICE, BOARD | SITE, AT(transport), .choices = transports,
     .initial = "auto", .uses = NODE,
     .about = "udp or tcp to the aggregator; auto: udp, or tcp where udp gets no answer or carries "
              "less"},
    {"network.round_max", CN_VALUE_SIZE, BOARD | SITE, AT(round_bytes), 1024, 64 * TIB, "none",
     .initial = "none", .uses = NODE, .about = "largest update, with update.up.mode: auto"},
    {"network.day_max", CN_VALUE_SIZE, BOARD | SITE, AT(day_bytes), 1024, 64 * TIB, "none",
     .initial = "none", .uses = NODE, .about = "most bytes to and from the aggregator in 24 h"},
    {"network.metered.from", CN_VALUE_DURATION, BOARD | SITE, AT(metered_from_ms), 0, DAY,
     .initial = "0", .uses = NODE,
     .about = "time after local midnight when the link begins to cost money"},
    {"network.metered.to", CN_VALUE_DURATION, BOARD | SITE, AT(metered_to_ms), 0, DAY,
     .initial = "0", .uses = NODE,
     .about = "time after local midnight when it ends; equal to from: at no time"},
    {"network.metered.round_max", CN_VALUE_SIZE, BOARD | SITE, AT(metered_round_bytes), 1024,
     64 * TIB, "none", .initial = "none", .uses = NODE,
     .about = "largest update in that time; none: the board pauses"},
    {"aggregator.address", CN_VALUE_ADDRESSES, SITE, AT(addresses), .example = "192.168.1.10:5684",
     .required = NODE, .uses = NODE,
     .about = "host:port of the aggregator; or a list of up to 4, tried in order"},
    {"aggregator.key", CN_VALUE_PATH, SITE, AT(key), .example = "board.key", .required = NODE,
     .uses = NODE, .about = "file with this board's key"},
    {"group.listen", CN_VALUE_LISTEN, SITE, AT(group.listen), .example = "0.0.0.0:7101",
     .uses = NODE, .about = "host:port for the other members: TCP for gradients, UDP for control"},
    {"group.members", CN_VALUE_MEMBERS, SITE, AT(group.members),
     .example = "{board-1: \"192.168.1.11:7101\", board-2: \"192.168.1.12:7101\"}", .uses = NODE,
     .about = "name and host:port of each member, this board included; equal on all members"},
    {"group.mapped", CN_VALUE_BOOL, SITE, AT(group.mapped), .initial = "false", .uses = NODE,
     .about = "true: a router or container forwards this board's port of group.members, TCP and "
              "UDP, to the port of group.listen"},
    {"group.form", CN_VALUE_DURATION, BOARD | SITE, AT(group.form_ms), 100, DAY, .initial = "10 s",
     .uses = NODE, .about = "longest wait for all members when a group forms"},
    {"group.rejoin", CN_VALUE_DURATION, BOARD | SITE, AT(group.rejoin_ms), 100, DAY,
     .initial = "2 s", .uses = NODE, .about = "longest wait for a member that was lost"},
    {"group.min_members", CN_VALUE_COUNT, SITE, AT(group.min_members), 1, CN_GROUP_MAX,
     .initial = "1", .uses = NODE,
     .about = "members that a group needs to train; the smaller part of a split LAN stops"},
    {"group.timeout", CN_VALUE_DURATION, BOARD | SITE, AT(group.timeout_ms), 100, DAY,
     .initial = "60 s", .uses = NODE,
     .about =
         "longest time that a member which still answers may delay the others, above that of a "
         "micro-batch in all parts of a chain; one that does not answer is lost after about a "
         "second"},
    {"group.bucket", CN_VALUE_SIZE, BOARD | SITE, AT(group.bucket), 16384, TIB, "auto",
     .initial = "1 MiB", .uses = NODE,
     .about = "bytes of gradients that are summed at a time during the backward pass; auto: by the "
              "measured link; the leader's value counts"},
    {"group.wire", CN_VALUE_CHOICE, BOARD | SITE, AT(group.wire), .choices = wires,
     .initial = "float32", .uses = NODE,
     .about =
         "number format of gradients on the wire; bfloat16: half the bytes; the leader's counts"},
    {"group.lan", CN_VALUE_CHOICE, SITE, AT(group.lan), .choices = lans, .initial = "untrusted",
     .uses = NODE,
     .about = "trusted: large sums may travel unencrypted, over NCCL, if all members can"},
    {"group.sets", CN_VALUE_SETS, BOARD | SITE, AT(group.sets),
     .example = "{large: memory >= 4 GiB, first: [board-1, board-2]}", .uses = NODE,
     .about = "named sets of members, each a rule or a list of boards; the leader's value counts"},
    {"data", CN_VALUE_DATA, BOARD | SITE, AT(data),
     .example = "{my-data: {inputs: inputs.npy, labels: labels.npy}}", .required = TRAIN | NODE,
     .uses = CN_USE_ALL,
     .about = "data sets by the name a job uses: the files of inputs and labels"},
    {"gateway.listen", CN_VALUE_LISTENS, SITE, AT(gateway.listen), .example = "0.0.0.0:5684",
     .required = GATEWAY, .uses = GATEWAY, .about = "host:port to serve; or a list of up to 4"},
    {"gateway.keep_rounds", CN_VALUE_LONG, SITE, AT(gateway.keep_rounds), 0, EXACT, "all",
     .initial = "100", .uses = GATEWAY,
     .about = "number of the newest rounds whose updates stay stored"},
    {"gateway.keep_versions", CN_VALUE_LONG, SITE, AT(gateway.keep_versions), 0, EXACT, "all",
     .initial = "20", .uses = GATEWAY,
     .about = "number of full versions that stay stored; the first and the best always do"},
    {"gateway.spool", CN_VALUE_SIZE, SITE, AT(gateway.spool_limit), MIB, 64 * TIB,
     .initial = "1 GiB", .uses = GATEWAY, .about = "most disk space for updates"},
    {"gateway.board_rate", CN_VALUE_RATE, SITE, AT(gateway.board_bps), 1000, 1e12, "none",
     .initial = "250 Mbit/s", .uses = GATEWAY,
     .about = "most bits per second of updates and models for each board, both ways together"},
    {"http.listen", CN_VALUE_HTTP, SITE, AT(http.listen), .example = "127.0.0.1:8684",
     .suggested = GATEWAY, .uses = NODE | GATEWAY,
     .about = "host:port or unix:PATH for the page, metrics and health; boards: metrics; without "
              "it there is "
              "none"},
    {"http.token_file", CN_VALUE_PATH, SITE, AT(http.token_file), .example = "http.token",
     .uses = NODE | GATEWAY,
     .about = "file, mode 0600, with the token that clients must send; needed beyond this machine"},
    {"http.names", CN_VALUE_WORDS, SITE, AT(http.names), .zero = "none", .initial = "none",
     .uses = NODE | GATEWAY,
     .about = "more names or name:port by which browsers may call the server"},
    {"http.board_series", CN_VALUE_COUNT, SITE, AT(http.board_series), 0, 10000, "none",
     .initial = "200", .uses = GATEWAY,
     .about = "metrics of single boards are left out where more are enrolled"},
    {"http.metrics_file", CN_VALUE_PATH, SITE, AT(http.metrics_file), .uses = NODE,
     .example = "/var/lib/prometheus/node-exporter/cairn.prom",
     .about = "file for a board's metrics, rewritten each 10 s; for the node exporter"},
    {"job", CN_VALUE_LINK, SITE, .example = "job.yaml", .uses = TRAIN | GATEWAY,
     .about = "file of the job, or the job's keys themselves"},
    {"job.name", CN_VALUE_NAME, JOB, AT(job.name), .example = "my-job", .required = TRAIN | GATEWAY,
     .uses = TRAIN | GATEWAY, .about = "name of the job"},
    {"job.model", CN_VALUE_PATH, JOB, AT(model), .example = "model.onnx",
     .required = TRAIN | GATEWAY, .uses = TRAIN | GATEWAY, .about = "ONNX file of the model"},
    {"job.seed", CN_VALUE_LONG, JOB, AT(job.seed), 0, EXACT, .initial = "1",
     .uses = TRAIN | GATEWAY, .about = "seed for the order and the split of the samples"},
    {"job.loss.kind", CN_VALUE_CHOICE, JOB, AT(job.loss), .choices = losses,
     .initial = "cross_entropy", .uses = TRAIN | GATEWAY,
     .about = "what is minimized; output: the model computes its loss itself"},
    {"job.loss.output", CN_VALUE_WORDS, JOB, AT(job.rules.output), .zero = "none",
     .initial = "none", .uses = TRAIN | GATEWAY,
     .about = "name of the model's output that is the loss"},
    {"job.loss.weights", CN_VALUE_WORDS, JOB, AT(job.rules.weights), 0, 1e9, .zero = "none",
     .initial = "none", .uses = TRAIN | GATEWAY, .about = "cross_entropy: weight of each class"},
    {"job.loss.ignore", CN_VALUE_WORDS, JOB, AT(job.rules.ignore), -2147483647, 2147483647,
     .zero = "none", .initial = "none", .uses = TRAIN | GATEWAY,
     .about = "cross_entropy: labels that do not count"},
    {"job.loss.classes_first", CN_VALUE_BOOL, JOB, AT(job.rules.classes_first), .initial = "false",
     .uses = TRAIN | GATEWAY,
     .about = "cross_entropy: output of [batch, classes, ...]; false: [batch, ..., classes]"},
    {"job.loss.smoothing", CN_VALUE_NUMBER, JOB, AT(job.rules.smoothing), 0, 0.9999, .initial = "0",
     .uses = TRAIN | GATEWAY,
     .about = "cross_entropy: share of the target spread over all classes"},
    {"job.loss.delta", CN_VALUE_NUMBER, JOB, AT(job.rules.delta), 1e-9, 1e9, "1", .initial = "1",
     .uses = TRAIN | GATEWAY, .about = "huber: errors above this count linearly"},
    {"job.data.set", CN_VALUE_NAME, JOB, AT(job.data_set), .example = "my-data",
     .required = TRAIN | GATEWAY, .uses = TRAIN | GATEWAY,
     .about = "data set to train on; each board maps the name to its files"},
    {"job.data.scope", CN_VALUE_CHOICE, JOB, AT(job.parallel.scope), .choices = scopes,
     .initial = "own", .uses = GATEWAY,
     .about = "shared: the boards of a group have the same samples and divide them"},
    {"job.data.scale", CN_VALUE_NUMBER, JOB, AT(job.scale), -1e9, 1e9, .initial = "1",
     .uses = TRAIN | GATEWAY, .about = "factor of each input: (value - mean) * scale"},
    {"job.data.mean", CN_VALUE_NUMBER, JOB, AT(job.mean), -1e9, 1e9, .initial = "0",
     .uses = TRAIN | GATEWAY, .about = "subtracted from each value before it is scaled"},
    {"job.data.normalize", CN_VALUE_CHOICE, JOB, AT(job.rules.normalize), .choices = normalizations,
     .initial = "none", .uses = TRAIN | GATEWAY,
     .about = "mean 0 and deviation 1 over each board's samples; better: cairn-node normalize"},
    {"job.data.window", CN_VALUE_COUNT, JOB, AT(job.rules.window), 1, 1e6, "none",
     .initial = "none", .uses = TRAIN | GATEWAY,
     .about = "number of rows of a series that make a sample"},
    {"job.data.stride", CN_VALUE_COUNT, JOB, AT(job.rules.stride), 1, 1e6, "1", .initial = "1",
     .uses = TRAIN | GATEWAY, .about = "number of rows from one window to the next"},
    {"job.data.one_hot", CN_VALUE_BOOL, JOB, AT(job.rules.one_hot), .initial = "false",
     .uses = TRAIN | GATEWAY, .about = "true: class numbers become targets of 0 and 1"},
    {"job.data.flip", CN_VALUE_BOOL, JOB, AT(job.rules.flip), .initial = "false",
     .uses = TRAIN | GATEWAY, .about = "images: true mirrors left and right at random"},
    {"job.data.crop", CN_VALUE_COUNT, JOB, AT(job.rules.crop), 0, 1024, .initial = "0",
     .uses = TRAIN | GATEWAY,
     .about = "images: pixels by which they are shifted at random, at most"},
    {"job.data.noise", CN_VALUE_NUMBER, JOB, AT(job.rules.noise), 0, 1e9, .initial = "0",
     .uses = TRAIN | GATEWAY, .about = "standard deviation of the noise that is added to inputs"},
    {"job.data.held_out", CN_VALUE_SHARE, JOB, AT(job.held_out), 0, 0.9, .initial = "10 %",
     .uses = TRAIN | GATEWAY,
     .about = "share of each board's samples that only measure; windows: the last ones"},
    {"job.central.set", CN_VALUE_NAME, JOB, AT(job.central_set), .example = "my-test-data",
     .uses = GATEWAY, .about = "data set of the gateway that measures each version"},
    {"job.train.batch", CN_VALUE_COUNT, JOB, AT(job.batch), 1, 65536, .initial = "32",
     .uses = TRAIN | GATEWAY, .about = "number of samples in a micro-batch"},
    {"job.train.accumulate", CN_VALUE_COUNT, JOB, AT(job.accumulate), 1, 65536, .initial = "1",
     .uses = TRAIN | GATEWAY, .about = "number of micro-batches in a step"},
    {"job.train.local_steps", CN_VALUE_COUNT, JOB, AT(job.local_steps), 1, 1e6, .initial = "20",
     .uses = TRAIN | GATEWAY, .about = "number of steps in a round"},
    {"job.train.local_steps_max", CN_VALUE_COUNT, JOB, AT(job.local_steps_most), 1, 1e6, "none",
     .initial = "none", .uses = GATEWAY,
     .about = "most steps in a round; update.up.mode: auto adds steps for a slow link"},
    {"job.train.learning_rate", CN_VALUE_NUMBER, JOB, AT(job.learning_rate), 1e-12, 1000,
     .initial = "0.05", .uses = TRAIN | GATEWAY, .about = "learning rate of the optimizer"},
    {"job.train.lr_scaling", CN_VALUE_CHOICE, JOB, AT(job.parallel.lr_scaling),
     .choices = lr_scalings, .initial = "none", .uses = GATEWAY,
     .about = "scales the rate by the share of a group's members that train"},
    {"job.train.optimizer", CN_VALUE_CHOICE, JOB, AT(job.rules.optimizer), .choices = optimizers,
     .initial = "sgd", .uses = TRAIN | GATEWAY,
     .about = "optimizer on the boards; adamw: adam with weight decay apart from the gradient"},
    {"job.train.momentum", CN_VALUE_NUMBER, JOB, AT(job.momentum), 0, 0.9999, .initial = "0.9",
     .uses = TRAIN | GATEWAY, .about = "sgd: share of the last step that is kept"},
    {"job.train.weight_decay", CN_VALUE_NUMBER, JOB, AT(job.weight_decay), 0, 1, .initial = "0",
     .uses = TRAIN | GATEWAY,
     .about = "share of each weight that is added to its gradient; adamw takes it off the weight"},
    {"job.train.nesterov", CN_VALUE_BOOL, JOB, AT(job.rules.nesterov), .initial = "false",
     .uses = TRAIN | GATEWAY, .about = "sgd: true for Nesterov's momentum"},
    {"job.train.beta1", CN_VALUE_NUMBER, JOB, AT(job.rules.beta1), 1e-9, 0.999999, "0.9",
     .initial = "0.9", .uses = TRAIN | GATEWAY, .about = "adam: share kept of the mean gradient"},
    {"job.train.beta2", CN_VALUE_NUMBER, JOB, AT(job.rules.beta2), 1e-9, 0.999999, "0.999",
     .initial = "0.999", .uses = TRAIN | GATEWAY, .about = "adam: share kept of the mean square"},
    {"job.train.epsilon", CN_VALUE_NUMBER, JOB, AT(job.rules.epsilon), 1e-30, 1, "1e-8",
     .initial = "1e-8", .uses = TRAIN | GATEWAY, .about = "adam: added to the root of the square"},
    {"job.train.clip", CN_VALUE_NUMBER, JOB, AT(job.rules.clip), 1e-9, 1e9, "none",
     .initial = "none", .uses = TRAIN | GATEWAY,
     .about = "largest L2 norm of a gradient; larger ones are scaled down"},
    {"job.train.proximal", CN_VALUE_NUMBER, JOB, AT(job.rules.proximal), 0, 1e6, .initial = "0",
     .uses = TRAIN | GATEWAY, .about = "FedProx: pull towards the weights that began the round"},
    {"job.train.correction", CN_VALUE_CHOICE, JOB, AT(job.correction.kind), .choices = corrections,
     .initial = "none", .uses = GATEWAY,
     .about = "scaffold: gradients are corrected by how groups differ (control variates)"},
    {"job.train.freeze", CN_VALUE_WORDS, JOB, AT(job.rules.freeze), .zero = "none",
     .initial = "none", .uses = TRAIN | GATEWAY,
     .about = "tensors that are not trained; * in a name is any text"},
    {"job.train.no_decay", CN_VALUE_WORDS, JOB, AT(job.rules.no_decay), .zero = "none",
     .initial = "none", .uses = TRAIN | GATEWAY,
     .about = "tensors that train.weight_decay leaves alone, such as *.bias"},
    {"job.train.bn", CN_VALUE_CHOICE, JOB, AT(job.rules.batch_norm), .choices = batch_norms,
     .initial = "model", .uses = TRAIN | GATEWAY,
     .about = "batch normalization: by the batch (train) or by fixed statistics (frozen)"},
    {"job.train.schedule.kind", CN_VALUE_CHOICE, JOB, AT(job.rules.schedule), .choices = schedules,
     .initial = "constant", .uses = TRAIN | GATEWAY, .about = "how the learning rate falls"},
    {"job.train.schedule.warm_up", CN_VALUE_COUNT, JOB, AT(job.rules.warm_up), 0, 1e9,
     .initial = "0", .uses = TRAIN | GATEWAY, .about = "steps in which the rate rises from 0"},
    {"job.train.schedule.every", CN_VALUE_COUNT, JOB, AT(job.rules.every), 1, 1e9, "never",
     .initial = "never", .uses = TRAIN | GATEWAY, .about = "step: number of steps between changes"},
    {"job.train.schedule.factor", CN_VALUE_NUMBER, JOB, AT(job.rules.factor), 0, 1, .initial = "0",
     .uses = TRAIN | GATEWAY,
     .about = "step: factor of each change; cosine: share of the rate that is left at the end"},
    {"job.train.keep_optimizer", CN_VALUE_BOOL, JOB, AT(job.keep_optimizer), .initial = "false",
     .uses = TRAIN | GATEWAY,
     .about =
         "true: the optimizer's state is kept between rounds, except over rollback or refusal"},
    {"job.parallel.sets", CN_VALUE_SETS, JOB, AT(job.parallel.sets),
     .example = "{late: phase == fine_tuning or name != board-4}", .uses = GATEWAY,
     .about = "named sets of a group's members, for names that the site does not define"},
    {"job.parallel.phases", CN_VALUE_PHASES, JOB, AT(job.parallel.phases),
     .example = "{pretraining: 1, fine_tuning: 8}", .uses = GATEWAY,
     .about = "named parts of the run, each with its first round; rules of sets may use them"},
    {"job.parallel.train", CN_VALUE_WORDS, JOB, AT(job.parallel.train), .zero = "all",
     .initial = "all", .uses = GATEWAY,
     .about = "sets whose members train; other members only follow"},
    {"job.parallel.measure", CN_VALUE_WORDS, JOB, AT(job.parallel.measure), .zero = "all",
     .initial = "all", .uses = GATEWAY,
     .about = "sets whose members measure each version on their held-out samples"},
    {"job.parallel.kind", CN_VALUE_CHOICE, JOB, AT(job.parallel.kind), .choices = parallel_kinds,
     .initial = "given", .uses = GATEWAY,
     .about = "auto: chooses pipeline, shards, replicas and micro-batches by memory and speed"},
    {"job.parallel.replicate", CN_VALUE_COUNT, JOB, AT(job.parallel.replicate), 1, 16, "all",
     .word_only = true, .initial = "all", .uses = GATEWAY,
     .about = "most replicas of the sharded state that train"},
    {"job.parallel.shard", CN_VALUE_COUNT, JOB, AT(job.parallel.shard), 1, 16, "none",
     .word_only = true, .initial = "none", .uses = GATEWAY,
     .about = "members that hold a model's state, or a part's, together"},
    {"job.parallel.stage", CN_VALUE_CHOICE, JOB, AT(job.parallel.stage), .choices = stages,
     .initial = "1", .uses = GATEWAY,
     .about =
         "what is divided into shards: 1 the optimizer's state, 2 gradients too, 3 weights too"},
    {"job.parallel.pipeline", CN_VALUE_COUNT, JOB, AT(job.pipeline.parts), 1, 16, "1",
     .word_only = true, .initial = "1", .uses = GATEWAY,
     .about = "number of parts into which the model is cut, each on a member of its own"},
    {"job.parallel.cut", CN_VALUE_WORDS, JOB, AT(job.pipeline.cut), .zero = "auto",
     .initial = "auto", .uses = GATEWAY,
     .about = "tensors with which the parts but the first begin, such as decoder.*; auto: equal "
              "work"},
    {"job.parallel.tensor", CN_VALUE_COUNT, JOB, AT(one), 1, 1, .initial = "1", .uses = GATEWAY,
     .about = "members that divide a tensor: 1, for on a LAN more are slower than one"},
    {"job.parallel.balance", CN_VALUE_BOOL, JOB, AT(job.parallel.balance), .initial = "false",
     .uses = GATEWAY,
     .about = "true: slower members get fewer micro-batches; the result depends on timing"},
    {"job.parallel.accumulate", CN_VALUE_COUNT, JOB, AT(job.parallel.accumulate), 1, 65536,
     "as train.accumulate", .word_only = true, .initial = "as train.accumulate", .uses = GATEWAY,
     .about = "number of micro-batches in a step, for each member that trains"},
    {"job.update.up.mode", CN_VALUE_CHOICE, JOB, AT(job.up.mode), .choices = up_modes,
     .initial = "topk", .uses = GATEWAY, .about = "encoding of what a group sends"},
    {"job.update.up.density", CN_VALUE_SHARE, JOB, AT(job.up.density), 1e-6, 1, .initial = "5 %",
     .uses = GATEWAY, .about = "topk: share of the values that is sent, the largest ones"},
    {"job.update.up.value_bits", CN_VALUE_COUNT, JOB, AT(job.up.value_bits), 0, 8, .initial = "2",
     .uses = GATEWAY, .about = "topk: number of bits for a magnitude"},
    {"job.update.down.mode", CN_VALUE_CHOICE, JOB, AT(job.down.mode), .choices = down_modes,
     .initial = "q8", .uses = GATEWAY, .about = "encoding of what the aggregator sends"},
    {"job.update.down.density", CN_VALUE_SHARE, JOB, AT(job.down.density), 1e-6, 1,
     .initial = "5 %", .uses = GATEWAY,
     .about = "topk: share of the values that is sent, the largest ones"},
    {"job.update.down.value_bits", CN_VALUE_COUNT, JOB, AT(job.down.value_bits), 0, 8,
     .initial = "2", .uses = GATEWAY, .about = "topk: number of bits for a magnitude"},
    {"job.update.warm_up", CN_VALUE_COUNT, JOB, AT(job.warm_up), 1, 1000, "none", .initial = "none",
     .uses = GATEWAY,
     .about = "number of first rounds in which topk sends 25 %, 10 %, 4 %, ..., never less than "
              "density"},
    {"job.update.stale_rounds", CN_VALUE_COUNT, JOB, AT(job.stale_rounds), 1, 1e6, "none",
     .initial = "3", .uses = GATEWAY,
     .about = "age in versions from which a group's residual is reduced"},
    {"job.update.stale_decay", CN_VALUE_SHARE, JOB, AT(job.stale_decay), 0, 1, .initial = "90 %",
     .uses = GATEWAY, .about = "share of that residual that is kept for each further version"},
    {"job.update.statistics", CN_VALUE_CHOICE, JOB, AT(job.statistics), .choices = statistics,
     .initial = "shared", .uses = GATEWAY,
     .about = "batch normalization's statistics: merged like weights, or local to each group"},
    {"job.update.local", CN_VALUE_WORDS, JOB, AT(job.options.local), .zero = "none",
     .initial = "none", .uses = GATEWAY,
     .about = "tensors that never travel: each group trains its own; * in a name is any text"},
    {"job.update.frozen", CN_VALUE_CHOICE, JOB, AT(job.options.frozen), .choices = frozens,
     .initial = "shared", .uses = GATEWAY,
     .about = "tensors of train.freeze: in each update as zeros, or in none (local)"},
    {"job.update.small", CN_VALUE_CHOICE, JOB, AT(job.options.small), .choices = smalls,
     .initial = "q8", .uses = GATEWAY,
     .about = "topk, sign: encoding of trained tensors of fewer than 1024 values"},
    {"job.update.snapshot_every", CN_VALUE_COUNT, JOB, AT(job.options.snapshot_every), 1,
     CN_CHAIN_MAX, "never", .initial = "8", .uses = GATEWAY,
     .about = "number of versions from one q8 snapshot to the next; boards that were away take "
              "snapshots"},
    {"job.update.residual", CN_VALUE_CHOICE, JOB, AT(job.options.residual), .choices = residuals,
     .initial = "fp32", .uses = GATEWAY,
     .about = "number format of changes that wait to be sent; bf16: half the memory"},
    {"job.update.densities", CN_VALUE_WORDS, JOB, AT(job.options.densities), .zero = "none",
     .initial = "none", .uses = GATEWAY,
     .about = "topk: densities of single tensors, such as head.*=20%; * is any text"},
    {"job.update.priorities", CN_VALUE_WORDS, JOB, AT(job.options.priorities), .zero = "none",
     .initial = "none", .uses = GATEWAY,
     .about = "topk: factors by which values of tensors count as larger, such as conv1.*=4"},
    {"job.server.optimizer", CN_VALUE_CHOICE, JOB, AT(job.server.optimizer),
     .choices = server_optimizers, .initial = "fedavg", .uses = GATEWAY,
     .about = "how the mean of a round's updates becomes a step of the model"},
    {"job.server.normalize", CN_VALUE_CHOICE, JOB, AT(job.server.normalize),
     .choices = server_normalizes, .initial = "off", .uses = GATEWAY,
     .about = "steps: groups count alike though some trained for more steps (FedNova)"},
    {"job.server.learning_rate", CN_VALUE_NUMBER, JOB, AT(job.server.learning_rate), 1e-12, 1000,
     "by optimizer", .word_only = true, .initial = "by optimizer", .uses = GATEWAY,
     .about = "factor of that step"},
    {"job.server.momentum", CN_VALUE_NUMBER, JOB, AT(job.server.momentum), 0, 0.9999,
     .initial = "0.9", .uses = GATEWAY, .about = "fedavgm, nesterov: share kept of the last step"},
    {"job.server.beta1", CN_VALUE_NUMBER, JOB, AT(job.server.beta1), 0, 0.999999, .initial = "0.9",
     .uses = GATEWAY, .about = "fedadam, fedyogi: share kept of the mean step"},
    {"job.server.beta2", CN_VALUE_NUMBER, JOB, AT(job.server.beta2), 0, 0.999999, .initial = "0.99",
     .uses = GATEWAY, .about = "fedadam, fedyogi: share kept of the mean square"},
    {"job.server.epsilon", CN_VALUE_NUMBER, JOB, AT(job.server.epsilon), 1e-9, 1,
     .initial = "0.001", .uses = GATEWAY,
     .about = "fedadagrad, fedadam, fedyogi: added to the root of the mean square"},
    {"job.robust.rule", CN_VALUE_CHOICE, JOB, AT(job.robust.rule), .choices = robust_rules,
     .initial = "none", .uses = GATEWAY,
     .about = "how a round's updates are combined so that groups which lie do little harm"},
    {"job.robust.mix", CN_VALUE_CHOICE, JOB, AT(job.robust.mix), .choices = robust_mixes,
     .initial = "none", .uses = GATEWAY,
     .about = "input of the rule: means of two updates, or each update with those nearest to it"},
    {"job.robust.tolerate", CN_VALUE_COUNT, JOB, AT(job.robust.tolerate), 1, 100, .initial = "1",
     .uses = GATEWAY, .about = "number of groups that may lie"},
    {"job.robust.short", CN_VALUE_CHOICE, JOB, AT(job.robust.when_short), .choices = robust_shorts,
     .initial = "wait", .uses = GATEWAY,
     .about = "with too few updates for the rule: wait for more, or take the capped mean (clip)"},
    {"job.rounds.count", CN_VALUE_COUNT, JOB, AT(job.rounds), 1, 1e6, .initial = "30",
     .uses = TRAIN | GATEWAY, .about = "number of rounds in a run"},
    {"job.rounds.quorum", CN_VALUE_COUNT, JOB, AT(job.quorum), 1, 10000, .initial = "1",
     .uses = GATEWAY, .about = "number of groups whose updates make a version"},
    {"job.rounds.over_select", CN_VALUE_NUMBER, JOB, AT(job.over_select), 1, 100, .initial = "1.3",
     .uses = GATEWAY, .about = "number of groups to invite, as a multiple of the quorum"},
    {"job.rounds.select", CN_VALUE_RULE, JOB, AT(job.select), .zero = "all", .initial = "all",
     .uses = GATEWAY, .about = "rule that all boards of a group must meet for it to be invited"},
    {"job.rounds.deadline", CN_VALUE_DURATION, JOB, AT(job.deadline_ms), 1000, 30 * DAY,
     .initial = "10 min", .uses = GATEWAY,
     .about = "time after which a round without its quorum invites more groups and goes on"},
    {"job.rounds.mode", CN_VALUE_CHOICE, JOB, AT(job.async.mode), .choices = round_modes,
     .initial = "synchronous", .uses = GATEWAY,
     .about = "asynchronous: a version is made of the updates that came first"},
    {"job.rounds.async.buffer", CN_VALUE_COUNT, JOB, AT(job.async.buffer), 1, 10000, "by quorum",
     .word_only = true, .initial = "by quorum", .uses = GATEWAY,
     .about = "asynchronous: number of groups whose updates make a version; by quorum: 5/8 of it"},
    {"job.rounds.async.max_staleness", CN_VALUE_COUNT, JOB, AT(job.async.max_staleness), 0,
     CN_STALENESS_MAX, .initial = "8", .uses = GATEWAY,
     .about = "asynchronous: number of versions that an update may be behind"},
    {"job.rounds.async.wait", CN_VALUE_BOOL, JOB, AT(job.async.wait), .initial = "false",
     .uses = GATEWAY,
     .about = "asynchronous: a version waits for groups that would be too late for the next one"},
    {"job.limits.max_norm", CN_VALUE_NUMBER, JOB, AT(job.max_norm), 1e-6, 1e9, "none",
     .initial = "10", .uses = GATEWAY,
     .about = "largest L2 norm of an update; larger ones are scaled down"},
    {"job.limits.max_weight", CN_VALUE_LONG, JOB, AT(job.max_weight), 1, 2147483647,
     .initial = "1000000", .uses = GATEWAY, .about = "most samples that an update counts for"},
    {"job.limits.trust_groups", CN_VALUE_BOOL, JOB, AT(job.trust_groups), .initial = "false",
     .uses = GATEWAY,
     .about = "true: no update is capped or left out because the others of its round are smaller"},
    {"job.gate.loss", CN_VALUE_NUMBER, JOB, AT(job.gate.loss), 1e-9, 1e9, "off", .initial = "off",
     .uses = GATEWAY,
     .about = "how far a version's loss may lie above the best of the last five versions"},
    {"job.gate.accuracy", CN_VALUE_SHARE, JOB, AT(job.gate.accuracy), 0.0001, 1, "off",
     .initial = "off", .uses = GATEWAY,
     .about = "how far a version's accuracy may lie below the best of the last five versions"},
    {"job.stop.trust_boards", CN_VALUE_BOOL, JOB, AT(job.trust_boards), .initial = "false",
     .uses = GATEWAY,
     .about = "true: without a central set, the boards' own measures may end the run"},
    {"job.stop.patience", CN_VALUE_COUNT, JOB, AT(job.patience), 1, 1e6, "none", .initial = "none",
     .uses = GATEWAY,
     .about = "number of rounds without a better version after which the run ends"},
    {"job.stop.target_accuracy", CN_VALUE_SHARE, JOB, AT(job.target_accuracy), 0.0001, 1, "none",
     .initial = "none", .uses = GATEWAY,
     .about = "the run ends when a version reaches this accuracy"},
    {"job.stop.metric", CN_VALUE_CHOICE, JOB, AT(job.metric), .choices = metrics, .initial = "auto",
     .uses = GATEWAY,
     .about = "what makes a version better; auto: accuracy for class numbers, otherwise loss"},
    {"job.stop.target", CN_VALUE_NUMBER, JOB, AT(job.target), -1e9, 1e9, "none", .initial = "none",
     .uses = GATEWAY, .about = "the run ends when stop.metric of a version reaches this number"},
};

const size_t cn_schema_count = sizeof(cn_schema) / sizeof(cn_schema[0]);

const struct cn_schema_row *cn_schema_find(const char *path)
{
    for (size_t i = 0; i < cn_schema_count; i++)
        if (strcmp(cn_schema[i].path, path) == 0)
            return &cn_schema[i];
    return NULL;
}

static bool is_section(const char *path)
{
    size_t length = strlen(path);

    for (size_t i = 0; i < cn_schema_count; i++)
        if (strncmp(cn_schema[i].path, path, length) == 0 && cn_schema[i].path[length] == '.')
            return true;
    return false;
}

const struct cn_schema_row *cn_schema_resolve(const char *path, enum cn_layer layer)
{
    const struct cn_schema_row *row = cn_schema_find(path);

    if (row || layer != CN_LAYER_JOB || strncmp(path, "job.", 4) != 0 || is_section(path))
        return row;
    return cn_schema_find(path + 4);
}

bool cn_schema_is_section(const char *path, enum cn_layer layer)
{
    if (layer == CN_LAYER_JOB && strncmp(path, "job.", 4) == 0 && is_section(path + 4))
        return true;
    return is_section(path);
}

bool cn_schema_allows(const char *path, enum cn_layer layer)
{
    const struct cn_schema_row *row = cn_schema_find(path);

    return row ? (row->layers & 1u << layer) != 0 : cn_schema_is_section(path, layer);
}

bool cn_schema_idle(const struct cn_schema_row *row, const struct cn_settings *settings)
{
    size_t offset = row->offset;

    if (offset == offsetof(struct cn_settings, job.up.density) ||
        offset == offsetof(struct cn_settings, job.up.value_bits))
        return settings->job.up.mode != CN_UPDATE_TOPK;
    if (offset == offsetof(struct cn_settings, job.down.density) ||
        offset == offsetof(struct cn_settings, job.down.value_bits))
        return settings->job.down.mode != CN_UPDATE_TOPK;
    return false;
}

const char *cn_layer_name(enum cn_layer layer)
{
    static const char *const names[] = {"board", "site", "job"};

    return names[layer];
}
