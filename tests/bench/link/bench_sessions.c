// bench_sessions COUNT [tcp]: what live sessions cost the aggregator's side. A server as a process
// of its own, as many boards with a session each in this one; prints the server's memory and
// processor time for each, and how long all of them take to answer one request each.
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"
#include "transport/coap/coap_client.h"
#include "transport/coap/coap_server.h"

#define PORT "127.0.0.1:36684"
#define AT_ONCE 20 // handshakes
#define WAIT_MS 120000

static uint32_t answers;
static enum cn_link_transport transport = CN_LINK_UDP;

static void answer(void *context, const struct cn_coap_request *request,
                   struct cn_coap_reply *reply)
{
    (void)context;
    (void)request;
    reply->code = CN_COAP_CONTENT;
    reply->size = 1;
}

static cn_err find_key(void *context, const char *board, uint8_t key[CN_KEY_SIZE])
{
    (void)context;
    (void)board;
    memset(key, 1, CN_KEY_SIZE);
    return CN_OK;
}

static void serve(void)
{
    const char *listen[] = {PORT};
    const struct cn_coap_route routes[] = {{CN_COAP_GET, "r", true, answer, false}};
    const struct cn_coap_server_config config = {
        .listen = listen,
        .listen_count = 1,
        .routes = routes,
        .route_count = 1,
        .find_key = find_key,
        .handshakes_max = 128,
        .sessions_max = 4096,
    };
    struct cn_coap_server *server;

    if (cn_coap_server_open(&config, &server))
        _exit(1);
    while (getppid() != 1 && !cn_coap_server_step(server, 50))
        continue;
    _exit(0);
}

static bool take(void *context, const struct cn_exchange_reply *reply)
{
    (void)context;
    (void)reply;
    answers++;
    return true;
}

static long memory_kib(pid_t pid)
{
    char path[64], line[128];
    long value = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        sscanf(line, "VmRSS: %ld", &value);
    if (file)
        fclose(file);
    return value;
}

static double processor_s(pid_t pid)
{
    unsigned long user = 0, system = 0;
    char path[64];
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file && fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                       &system) != 2)
        user = system = 0;
    if (file)
        fclose(file);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static bool is_up(struct cn_exchange *client)
{
    return client->state == CN_EXCHANGE_UP;
}

// All get a session, AT_ONCE at a time, and ask once.
static uint32_t connect_all(struct cn_exchange **clients, uint32_t count)
{
    const struct cn_exchange_request request = {.method = CN_COAP_GET, .path = "r"};
    const char *addresses[] = {PORT};
    uint64_t end_ms = cn_platform_now_ms() + WAIT_MS;
    uint32_t opened = 0, asked = 0;

    while (asked < count && cn_platform_now_ms() < end_ms) {
        while (opened < count && opened < asked + AT_ONCE) {
            char name[32];
            struct cn_coap_client_config config = {.board = name,
                                                   .addresses = addresses,
                                                   .address_count = 1,
                                                   .silence_ms = 60000,
                                                   .transport = transport};

            snprintf(name, sizeof(name), "board-%u", opened);
            memset(config.key, 1, sizeof(config.key));
            if (cn_coap_client_open(&config, &clients[opened]))
                return asked;
            clients[opened++]->sink = take;
        }
        for (uint32_t i = asked; i < opened; i++)
            clients[i]->ops->step(clients[i]);
        if (is_up(clients[asked]) && !clients[asked]->ops->send(clients[asked], &request))
            asked++;
    }
    return asked;
}

static void ask_all(struct cn_exchange **clients, uint32_t count)
{
    const struct cn_exchange_request request = {.method = CN_COAP_GET, .path = "r"};
    uint64_t end_ms = cn_platform_now_ms() + 20000;

    for (uint32_t i = 0; i < count; i++)
        (void)!clients[i]->ops->send(clients[i], &request);
    while (answers < count && cn_platform_now_ms() < end_ms)
        for (uint32_t i = 0; i < count; i++)
            clients[i]->ops->step(clients[i]);
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2000;
    struct cn_exchange **clients = calloc(count, sizeof(struct cn_exchange *));
    struct rlimit files = {.rlim_cur = 5ul * count + 100, .rlim_max = 5ul * count + 100};
    pid_t server = fork();
    uint64_t begin_ms;
    uint32_t connected;
    double before_s;
    long before;

    if (argc > 2 && strcmp(argv[2], "tcp") == 0)
        transport = CN_LINK_TCP;
    if (server == 0)
        serve();
    if (!clients || server < 0 || setrlimit(RLIMIT_NOFILE, &files)) {
        free(clients);
        return 1;
    }
    usleep(300000);
    before = memory_kib(server);
    begin_ms = cn_platform_now_ms();
    connected = connect_all(clients, count);
    printf("%u of %u sessions in %.1f s, %.2f ms of the server's processor for each\n", connected,
           count, (double)(cn_platform_now_ms() - begin_ms) / 1e3,
           1e3 * processor_s(server) / connected);
    usleep(500000);
    printf("%.1f KiB of the server for each\n", (double)(memory_kib(server) - before) / connected);
    answers = 0;
    begin_ms = cn_platform_now_ms();
    before_s = processor_s(server);
    ask_all(clients, connected);
    if (answers > count)
        answers = count; // those of the first requests, too
    printf("%u answers in %.2f s, %.3f ms of the server's processor for each\n", answers,
           (double)(cn_platform_now_ms() - begin_ms) / 1e3,
           1e3 * (processor_s(server) - before_s) / connected);
    free(clients);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return answers == count ? 0 : 1;
}
