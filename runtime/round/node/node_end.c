// node_end.c - the end of a run: who is believed about it, and when the program ends.
#include "runtime/base/log_limit.h"
#include "runtime/round/node/node_private.h"

#define NEXT_RUN_MS 3000 // longest wait for another job after the end of a run
#define DOUBT_MS 3000    // between two questions whether the run has really ended

static bool has_news_of_run(const struct cn_node_owner *node)
{
    return node->status.has_news && node->status.news.run == node->manifest.run;
}

static bool gateway_says_end(const struct cn_node_owner *node)
{
    return has_news_of_run(node) && node->status.news.state == CN_ROUND_ENDED;
}

bool cn_node_run_is_over(const struct cn_node_owner *node)
{
    if (node->registered && node->status.progress.ended && !node->end_doubt_ms)
        return true; // the group's leader said so
    return gateway_says_end(node);
}

void cn_node_tell_end(struct cn_node_owner *node)
{
    bool over = cn_node_run_is_over(node);

    if (over && !node->end_told)
        cn_log(CN_LOG_INFO, "node", "the run has ended: this board trains no more");
    node->end_told = over;
}

// Asks for another run, and whether this one has ended, unless the aggregator has said so.
static cn_err ask_for_next(struct cn_node_owner *node, uint64_t now)
{
    cn_err err = CN_OK;

    node->next_asked_ms = now;
    node->next_answered = false;
    node->end = node->status.progress;
    if (!gateway_says_end(node)) { // the group's leader did
        node->status.has_news = false;
        node->keys.looking = cn_node_group_is_led(&node->group);
        err = node->link->ops->watch(node->link, true);
    }
    return err ? err : cn_node_register(node);
}

// Goes on in the group: its leader is wrong, or lies. Registers again, since what the aggregator
// has answered meanwhile was not used.
static cn_err doubt_end(struct cn_node_owner *node, uint64_t now)
{
    cn_log_within(&node->link_lines, now, CN_LOG_WARN, "node",
                  "the group says that the run has ended, but the aggregator says that it goes on: "
                  "this board stays");
    node->end_doubt_ms = now;
    node->next_asked_ms = 0;
    return cn_node_register(node);
}

cn_err cn_node_poll_end(struct cn_node_owner *node, uint64_t now)
{
    bool ended = node->status.progress.ended;

    if (!node->config.until_end)
        return CN_OK;
    if (node->end_doubt_ms)
        node->status.progress.ended = false;
    if (!node->next_asked_ms && node->working && ended &&
        (!node->end_doubt_ms || now - node->end_doubt_ms >= DOUBT_MS))
        return ask_for_next(node, now);
    if (!node->next_asked_ms)
        return CN_OK;
    node->status.progress = node->end; // the others may have left, and the worker waits for them
    if (node->next_answered && has_news_of_run(node) && !gateway_says_end(node))
        return doubt_end(node, now);
    if ((node->next_answered && gateway_says_end(node)) ||
        (node->down && node->down_since_ms >= node->next_asked_ms) ||
        now - node->next_asked_ms >= NEXT_RUN_MS)
        node->result = CN_OK;
    return CN_OK;
}
