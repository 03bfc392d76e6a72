#include "transport/transfer/controller_private.h"

#define STARTUP_GAIN 2.885 // 2 / ln 2: the smallest gain that doubles the rate each round trip
#define WINDOW_GAIN 2.0
#define FIRST_WINDOW 32 // datagrams, spread over a round trip; RFC 6928's 10 go at once
#define BEGIN_ROUNDS 2  // until the answers of the first window are in
#define GROWTH 1.25     // the rate grows by less in a round only if the link is full
#define FULL_ROUNDS 3   // rounds without that growth until the link counts as full
#define DRAIN_ROUNDS 3  // longest DRAIN
#define CYCLES 8
#define MIN_RTT_US 10000000u // a smallest round trip older than this is measured again
#define PROBE_RTT_US 200000u
#define IDLE_US 60000000u   // after a pause longer than this the model of the path is too old
#define AHEAD_US 1000u      // datagrams due within this time go at once: timers are no finer
#define CREDIT_US 5000u     // longest delay of a call that faster sending makes up for
#define COMPETE_GAIN 1.25   // of the pace beside a rival, where the window is the limit
#define SUSPECT_US 2000000u // from a probe that found no rival until the next suspicion
#define YIELDED 0.7         // share of the rate below which a probe has left the link to others
#define SAME_PROBES 2       // repetitions of a probe's round trip that show a longer path
#define IDLE_ROUNDS 8       // rounds without a queue after which the rival counts as gone

static const double cycle_gains[CYCLES] = {1.25, 0.75, 1, 1, 1, 1, 1, 1};

void cn_controller_init(struct cn_controller *controller, uint32_t unit, uint64_t window_max,
                        uint64_t rate_bps, uint64_t rtt_us)
{
    *controller = (struct cn_controller){
        .unit = unit,
        .window_max = window_max,
        .rate_limit_bytes_s = rate_bps / 8,
        .srtt_us = rtt_us,
        .beginning = true,
    };
}

void cn_controller_fit(struct cn_controller *controller, uint32_t unit, bool stream)
{
    controller->unit = unit;
    controller->stream = stream;
}

// Returns the bandwidth-delay product in bytes.
static double bdp(const struct cn_controller *controller)
{
    return controller->bandwidth * (double)controller->min_rtt_us / 1e6;
}

// Returns the bytes by which the window grows because one answer reports up to 16 datagrams or
// 10 ms of them at once.
static double quantum(const struct cn_controller *controller)
{
    double bytes = controller->bandwidth * 0.01 + 3.0 * controller->unit;

    return bytes < 16.0 * controller->unit ? bytes : 16.0 * controller->unit;
}

uint64_t cn_controller_window(const struct cn_controller *controller)
{
    double least = (double)CN_CONTROLLER_LEAST * controller->unit;
    double window = (double)FIRST_WINDOW * controller->unit;

    if (controller->phase == CN_CONTROLLER_PROBE_RTT)
        window = bdp(controller) / 2;
    else if (controller->phase == CN_CONTROLLER_PROBE_BW)
        window = WINDOW_GAIN * bdp(controller) + quantum(controller);
    else if (controller->phase == CN_CONTROLLER_COMPETE)
        window = controller->rival.window + quantum(controller);
    else if (controller->bandwidth > 0) {
        double grown = STARTUP_GAIN * bdp(controller) + quantum(controller);

        if (controller->beginning) // one more for each that has arrived
            window += (double)(controller->delivered - controller->begun);
        window = grown > window ? grown : window;
    }
    if (window < least)
        window = least;
    return window < (double)controller->window_max ? (uint64_t)window : controller->window_max;
}

static double gain(const struct cn_controller *controller)
{
    switch (controller->phase) {
    case CN_CONTROLLER_STARTUP:
        return STARTUP_GAIN;
    case CN_CONTROLLER_DRAIN:
        return 1 / STARTUP_GAIN;
    case CN_CONTROLLER_PROBE_BW:
        return cycle_gains[controller->cycle];
    case CN_CONTROLLER_PROBE_RTT:
    case CN_CONTROLLER_COMPETE:
        break;
    }
    return 1;
}

double cn_controller_rate(const struct cn_controller *controller)
{
    double rate = controller->bandwidth / (1 - controller->loss);
    double limit = (double)controller->rate_limit_bytes_s;

    if (controller->stream)
        return limit;
    if (controller->phase == CN_CONTROLLER_COMPETE && controller->last_rtt_us)
        rate = COMPETE_GAIN * controller->rival.window * 1e6 / (double)controller->last_rtt_us;
    // The first answers tell only of the first datagrams, so their rate would slow the start down.
    if (controller->beginning && controller->srtt_us) {
        double first = (double)FIRST_WINDOW * controller->unit * 1e6 / (double)controller->srtt_us;

        rate = rate > first ? rate : first;
    }
    rate *= gain(controller);
    return limit > 0 && (rate > limit || rate <= 0) ? limit : rate;
}

bool cn_controller_may_send(const struct cn_controller *controller, uint64_t in_flight,
                            uint64_t now_us, uint64_t *wake_us)
{
    if (in_flight && in_flight + controller->unit > cn_controller_window(controller))
        return false;
    if (now_us + AHEAD_US >= controller->next_us)
        return true;
    if (controller->next_us < *wake_us)
        *wake_us = controller->next_us;
    return false;
}

// Resumes after a pause. After a short one the path counts as unchanged. After a long one it may be
// slower: STARTUP begins at half the rate (draft-ietf-tsvwg-careful-resume).
static void wake_up(struct cn_controller *controller, uint64_t now_us)
{
    if (controller->active_us && now_us - controller->active_us > IDLE_US) {
        double rate = controller->bandwidth;

        cn_controller_gone(controller);
        controller->round_rate[0] = controller->bandwidth = rate / 2 / STARTUP_GAIN;
        controller->min_rtt_us = controller->srtt_us;
        controller->beginning = false;
    }
    controller->first_us = controller->delivered_us = now_us;
    controller->min_rtt_at_us = controller->cycle_us = now_us;
}

void cn_controller_sent(struct cn_controller *controller, uint32_t size, uint64_t in_flight,
                        uint64_t now_us, struct cn_send_mark *mark)
{
    double rate;

    if (!in_flight)
        wake_up(controller, now_us);
    *mark = (struct cn_send_mark){
        .sent_us = now_us,
        .delivered = controller->delivered,
        .delivered_us = controller->delivered_us,
        .first_us = controller->first_us,
        .limited = controller->limited_until > controller->delivered,
    };
    controller->active_us = now_us;
    rate = cn_controller_rate(controller);
    if (controller->next_us + CREDIT_US < now_us)
        controller->next_us = now_us - CREDIT_US;
    if (!in_flight && controller->next_us < now_us)
        controller->next_us = now_us;
    if (rate > 0)
        controller->next_us += (uint64_t)(1e6 * size / rate);
}

void cn_controller_limited(struct cn_controller *controller, uint64_t in_flight)
{
    controller->limited_until = controller->delivered + in_flight;
}

void cn_controller_arrived(struct cn_controller *controller, const struct cn_send_mark *mark,
                           uint32_t size, uint64_t now_us)
{
    controller->delivered += size;
    controller->delivered_us = now_us;
    controller->round_delivered += size;
    if (mark && (!controller->sampled || mark->sent_us >= controller->newest.sent_us)) {
        controller->newest = *mark;
        controller->sampled = true;
        controller->first_us = mark->sent_us;
    }
}

// --- what an answer changes ---

static void renew_bandwidth(struct cn_controller *controller, uint64_t now_us)
{
    const struct cn_send_mark *mark = &controller->newest;
    uint64_t sending = mark->sent_us - mark->first_us;
    uint64_t arriving = now_us - mark->delivered_us;
    uint64_t interval = sending > arriving ? sending : arriving;
    double *slot = &controller->round_rate[controller->rounds % CN_CONTROLLER_ROUNDS];
    double rate;

    // Over less than a round trip the rate depends on the spacing of the answers.
    if (!interval || interval < controller->min_rtt_us)
        return;
    rate = 1e6 * (double)(controller->delivered - mark->delivered) / (double)interval;
    if (mark->limited && rate < controller->bandwidth)
        return;
    if (controller->rate_max > 0 && rate > controller->rate_max)
        rate = controller->rate_max;
    if (rate > *slot)
        *slot = rate;
    controller->bandwidth = 0;
    for (int i = 0; i < CN_CONTROLLER_ROUNDS; i++) {
        if (controller->round_rate[i] > controller->bandwidth)
            controller->bandwidth = controller->round_rate[i];
    }
}

// Several answers come in a round trip. If none came for the whole of one, the link stood still:
// then the round trips show no queue of ours, and the rate shows nothing. Behind the queue of a
// rival a round trip is longer than the smallest one, also before the link stood still.
static bool stood_still(const struct cn_controller *controller)
{
    uint64_t usual_us = controller->last_rtt_us > controller->min_rtt_us ? controller->last_rtt_us
                                                                         : controller->min_rtt_us;

    return controller->round_quiet_us > usual_us;
}

static void judge_startup(struct cn_controller *controller)
{
    if (controller->full || controller->newest.limited || stood_still(controller))
        return;
    if (controller->bandwidth >= GROWTH * controller->full_rate) {
        controller->full_rate = controller->bandwidth;
        controller->full_rounds = 0;
        return;
    }
    controller->full_rounds += cn_controller_queue_stands(controller) ? FULL_ROUNDS : 1;
    controller->full = controller->full_rounds >= FULL_ROUNDS;
}

static void cruise(struct cn_controller *controller, uint64_t now_us)
{
    controller->phase = CN_CONTROLLER_PROBE_BW;
    controller->cycle_rtt_us = 0;
    // Starts at a gain of 1, and not all flows at the same one.
    controller->cycle = 2 + (unsigned)(now_us / 1000 % (CYCLES - 2));
    controller->cycle_us = now_us;
}

// Judges a round beside a rival. Losses without a queue are the link's.
static void judge_rival(struct cn_controller *controller, uint64_t now_us)
{
    bool queue = cn_controller_queue_stands(controller);
    uint64_t lost = queue ? controller->round_lost : 0;
    bool useless;

    if (controller->phase != CN_CONTROLLER_COMPETE)
        return;
    cn_rival_round(&controller->rival, controller->unit, lost, controller->round_delivered,
                   !controller->newest.limited, controller->round_rtt_us, now_us);
    if (controller->rival.window > (double)controller->window_max)
        controller->rival.window = (double)controller->window_max;
    controller->idle_rounds = queue ? 0 : controller->idle_rounds + 1;
    useless = controller->unsure && controller->rival.useless;
    if (useless)
        controller->suspect_us = now_us + SUSPECT_US;
    if (useless || controller->idle_rounds >= IDLE_ROUNDS) {
        controller->crowded_rtt_us = 0;
        cruise(controller, now_us);
    }
}

static void count_round(struct cn_controller *controller, uint64_t now_us)
{
    if (controller->newest.delivered < controller->round_end)
        return;
    judge_startup(controller);
    cn_controller_judge_loss(controller, now_us);
    judge_rival(controller, now_us);
    controller->last_rtt_us = controller->round_rtt_us;
    controller->round_end = controller->delivered;
    controller->rounds++;
    if (controller->rounds == BEGIN_ROUNDS)
        controller->beginning = false;
    controller->round_rate[controller->rounds % CN_CONTROLLER_ROUNDS] = 0;
    controller->last_lost = controller->round_lost;
    controller->last_delivered = controller->round_delivered;
    controller->last_us = controller->round_us;
    controller->round_us = now_us;
    controller->round_lost = controller->round_delivered = controller->round_rtt_us = 0;
    controller->round_quiet_us = 0;
}

// Returns whether a round trip shows a queue although ours was drained. Two datagrams of our own
// may be in it: on a thin link they take longer than all else.
static bool is_crowded(const struct cn_controller *controller, uint64_t rtt_us)
{
    double own_us = 2e6 * controller->unit / controller->bandwidth;

    return (double)rtt_us > 1.25 * (double)controller->min_rtt_us + 2000 + own_us;
}

// Returns the rate of the round before.
static double last_rate(const struct cn_controller *controller)
{
    uint64_t last = controller->rounds + CN_CONTROLLER_ROUNDS - 1;

    return controller->round_rate[last % CN_CONTROLLER_ROUNDS];
}

static void start_probe(struct cn_controller *controller, uint64_t now_us)
{
    controller->phase = CN_CONTROLLER_PROBE_RTT;
    controller->probe_begin_us = now_us;
    controller->probe_end_us = 0;
    controller->probe_delivered = controller->delivered;
    controller->before_probe = last_rate(controller);
}

// Begins to hold the bytes in flight low, now that they are few. The last round may have begun
// before the link became slower, so the rate while they became fewer counts as well.
static void hold_low(struct cn_controller *controller, uint64_t hold_us, uint64_t now_us)
{
    double bytes = (double)(controller->delivered - controller->probe_delivered);
    double fell_us = (double)(now_us - controller->probe_begin_us);

    if (fell_us >= (double)controller->min_rtt_us &&
        1e6 * bytes < controller->before_probe * fell_us)
        controller->before_probe = 1e6 * bytes / fell_us;
    controller->probe_end_us = now_us + hold_us;
    controller->probe_rtt_us = 0;
    controller->probe_delivered = controller->delivered;
}

// Judges a cycle of PROBE_BW. A queue that stays although ours was drained may be that of a rival,
// or the path is longer; a probe tells. A link that has become slower makes a queue as well.
static void judge_cycle(struct cn_controller *controller, uint64_t now_us)
{
    if (is_crowded(controller, controller->cycle_rtt_us) && !controller->stream &&
        now_us >= controller->suspect_us)
        start_probe(controller, now_us);
    controller->cycle_rtt_us = 0;
}

// Returns whether DRAIN is over. A queue that outlasts DRAIN_ROUNDS is not ours.
static bool is_drained(const struct cn_controller *controller, uint64_t in_flight)
{
    return (double)in_flight <= bdp(controller) + quantum(controller) / 2 || // answers come late
           controller->rounds > controller->drain_round + DRAIN_ROUNDS;
}

static void move_on(struct cn_controller *controller, uint64_t in_flight, uint64_t now_us)
{
    double product = bdp(controller);
    bool elapsed = now_us - controller->cycle_us > controller->min_rtt_us;

    if (controller->phase == CN_CONTROLLER_STARTUP && controller->full) {
        controller->phase = CN_CONTROLLER_DRAIN;
        controller->drain_round = controller->rounds;
        if (controller->stream) // the kernel drains its own queue
            cruise(controller, now_us);
    }
    if (controller->phase == CN_CONTROLLER_DRAIN && is_drained(controller, in_flight))
        cruise(controller, now_us);
    if (controller->phase != CN_CONTROLLER_PROBE_BW)
        return;
    if (cycle_gains[controller->cycle] > 1)
        elapsed = elapsed && ((double)in_flight >= 1.25 * product || controller->round_lost ||
                              now_us - controller->cycle_us > 2 * controller->min_rtt_us);
    else if (cycle_gains[controller->cycle] < 1) // lasts until the queue is empty
        elapsed = (double)in_flight <= product / (1 - controller->loss) + quantum(controller) / 2 ||
                  now_us - controller->cycle_us > 4 * controller->min_rtt_us;
    if (!elapsed)
        return;
    controller->cycle = (controller->cycle + 1) % CYCLES;
    controller->cycle_us = now_us;
    if (controller->cycle == 0)
        judge_cycle(controller, now_us);
}

// Returns whether the path has become longer. Then probe after probe finds the same round trip,
// which a rival's queue would not show.
static bool is_longer(struct cn_controller *controller)
{
    uint64_t rtt_us = controller->probe_rtt_us, before_us = controller->crowded_rtt_us;
    uint64_t apart_us = rtt_us > before_us ? rtt_us - before_us : before_us - rtt_us;

    if (before_us && apart_us <= before_us / 16)
        controller->same_probes++;
    else
        controller->same_probes = 0;
    return controller->same_probes >= SAME_PROBES;
}

static void compete(struct cn_controller *controller, bool unsure, uint64_t now_us)
{
    if (!controller->crowded_rtt_us)
        cn_rival_begin(&controller->rival,
                       controller->bandwidth * (double)controller->probe_rtt_us / 1e6);
    controller->crowded_rtt_us = controller->probe_rtt_us;
    controller->phase = CN_CONTROLLER_COMPETE;
    controller->compete_us = now_us;
    controller->idle_rounds = 0;
    controller->unsure = unsure;
}

// Ends a probe that held the bytes in flight low for hold_us. If a queue was left although ours was
// drained, and the rate fell, the queue is a rival's. If the rate did not fall, the link has become
// slower: even few bytes in flight make a queue there.
static void end_probe(struct cn_controller *controller, uint64_t hold_us, uint64_t now_us)
{
    double bytes = (double)(controller->delivered - controller->probe_delivered);
    bool fell = 1e6 * bytes / (double)hold_us < YIELDED * controller->before_probe;
    bool unsure =
        bdp(controller) / 2 < (double)CN_CONTROLLER_LEAST * controller->unit; // cannot fall
    bool crowded = !controller->stream && controller->full && controller->probe_rtt_us &&
                   is_crowded(controller, controller->probe_rtt_us);

    controller->min_rtt_at_us = now_us;
    if (crowded && (fell || unsure) && !is_longer(controller)) {
        compete(controller, unsure && !fell, now_us);
        return;
    }
    controller->suspect_us = now_us + SUSPECT_US;
    controller->crowded_rtt_us = 0;
    if (controller->probe_rtt_us && (!crowded || fell))
        controller->min_rtt_us = controller->probe_rtt_us;
    if (controller->full)
        cruise(controller, now_us);
    else
        controller->phase = CN_CONTROLLER_STARTUP;
}

static void renew_rtt(struct cn_controller *controller, uint64_t rtt_us, uint64_t now_us)
{
    uint64_t close_us = controller->min_rtt_us + controller->min_rtt_us / 16 + 1000;

    if (!rtt_us)
        return;
    if (!controller->round_rtt_us || rtt_us < controller->round_rtt_us)
        controller->round_rtt_us = rtt_us;
    if (!controller->cycle_rtt_us || rtt_us < controller->cycle_rtt_us)
        controller->cycle_rtt_us = rtt_us;
    if (!controller->probe_rtt_us || rtt_us < controller->probe_rtt_us)
        controller->probe_rtt_us = rtt_us;
    if (!controller->min_rtt_us || rtt_us <= close_us)
        controller->min_rtt_at_us = now_us;
    if (!controller->min_rtt_us || rtt_us < controller->min_rtt_us)
        controller->min_rtt_us = rtt_us;
}

static void probe_rtt(struct cn_controller *controller, uint64_t in_flight, uint64_t now_us)
{
    uint64_t hold_us =
        controller->min_rtt_us > PROBE_RTT_US ? controller->min_rtt_us : PROBE_RTT_US;

    if (controller->phase != CN_CONTROLLER_PROBE_RTT) {
        uint64_t since_us = controller->phase == CN_CONTROLLER_COMPETE ? controller->compete_us
                                                                       : controller->min_rtt_at_us;

        if (!controller->min_rtt_us || now_us - since_us < MIN_RTT_US)
            return;
        start_probe(controller, now_us);
    }
    if (!controller->probe_end_us && in_flight <= cn_controller_window(controller))
        hold_low(controller, hold_us, now_us);
    if (controller->probe_end_us && now_us >= controller->probe_end_us)
        end_probe(controller, hold_us, now_us);
}

void cn_controller_acked(struct cn_controller *controller, uint64_t rtt_us, uint64_t in_flight,
                         uint64_t now_us)
{
    if (controller->answer_us && now_us - controller->answer_us > controller->round_quiet_us)
        controller->round_quiet_us = now_us - controller->answer_us;
    controller->answer_us = now_us;
    renew_rtt(controller, rtt_us, now_us);
    if (controller->sampled) {
        renew_bandwidth(controller, now_us);
        count_round(controller, now_us);
        controller->sampled = false;
    }
    move_on(controller, in_flight, now_us);
    probe_rtt(controller, in_flight, now_us);
}

void cn_controller_lost(struct cn_controller *controller, uint32_t size)
{
    controller->round_lost += size;
    controller->lost += size;
}

void cn_controller_undo_loss(struct cn_controller *controller, uint32_t size)
{
    uint64_t now = size < controller->round_lost ? size : controller->round_lost;
    uint64_t before = size - now;

    controller->round_lost -= now;
    controller->last_lost -= before < controller->last_lost ? before : controller->last_lost;
    controller->lost -= size < controller->lost ? size : controller->lost;
    cn_controller_restore_rate(controller, size);
    cn_rival_undo(&controller->rival, size);
}

void cn_controller_gone(struct cn_controller *controller)
{
    uint64_t delivered = controller->delivered, lost = controller->lost;
    bool stream = controller->stream;

    cn_controller_init(controller, controller->unit, controller->window_max,
                       8 * controller->rate_limit_bytes_s, controller->min_rtt_us);
    controller->stream = stream;
    controller->lost = lost;
    controller->delivered = controller->round_end = controller->begun = delivered;
}
