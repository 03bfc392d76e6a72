// relay: a thin, lossy link as a process of its own.
//
//   relay LISTEN_PORT TARGET_PORT [name=value ...]
//   relay NEAR FAR [name=value ...]
//
// With names it makes two network interfaces (root only) and carries all IP packets between them,
// those of TCP too: packets that come out of NEAR go up. The caller puts the interfaces into
// namespaces.
// With ports it stands in front of a UDP server, both on 127.0.0.1. Each client gets a socket
// towards the server, as behind a NAT; SIGUSR1 gives all of them new ones, so that the server sees
// other addresses. SIGUSR2 ends and begins an outage. The values are those of link_model.h: rate
// (bit/s), delay (ms, one way), queue (ms), loss, burst, length, reorder, reorder_ms, duplicate,
// mtu, overhead, seed. They hold for both directions. With hold=N an outage begins behind the N-th
// datagram of 600 bytes or more that goes up, and it says "held". With spike_at=N and spike=MS
// nothing goes up for MS ms behind the N-th such datagram; then all waiting datagrams do. On
// SIGTERM it prints the bytes of such datagrams that went up, and how many datagrams of each
// direction were sent, lost or dropped.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/link_model.h"

#define CLIENTS_MAX 64
#define DATAGRAM_MAX 2048
#define BUFFER (4 << 20)
#define LARGE 600 // bytes of a large datagram; acknowledgements and requests have fewer

struct client {
    struct sockaddr_in address;
    int upstream;
};

struct datagram {
    struct datagram *next;
    uint64_t due_us;
    unsigned client;
    bool up;
    size_t size;
    uint8_t data[];
};

struct relay {
    struct cn_link_model up, down;
    struct sockaddr_in target;
    int listen;   // socket for clients, or the interface NEAR
    int far;      // the interface FAR
    bool between; // the relay is between two interfaces
    struct client clients[CLIENTS_MAX];
    unsigned count;
    struct datagram *first, *last; // in the order of due_us
    bool out;
    uint64_t hold, spike_at, large; // numbers of large datagrams; hold 0: no outage
    uint64_t spike_us;              // 0: no spike of delay
    uint64_t large_bytes;           // bytes of large datagrams that were sent upwards
};

static volatile sig_atomic_t stopped, rebind_asked, outage_asked;

static void on_signal(int number)
{
    if (number == SIGUSR1)
        rebind_asked = 1;
    else if (number == SIGUSR2)
        outage_asked = 1;
    else
        stopped = 1;
}

static uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static struct sockaddr_in at_port(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)port)};
}

static int open_socket(unsigned port)
{
    struct sockaddr_in address = at_port(port);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int size = BUFFER;

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)))
        die("relay: socket");
    // Makes the buffers as large as root or the system's limit allows.
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    return fd;
}

static int open_interface(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request))
        die("relay: interface");
    return fd;
}

static unsigned find_client(struct relay *relay, const struct sockaddr_in *address)
{
    unsigned i = 0;

    while (i < relay->count &&
           (relay->clients[i].address.sin_port != address->sin_port ||
            relay->clients[i].address.sin_addr.s_addr != address->sin_addr.s_addr))
        i++;
    if (i == CLIENTS_MAX)
        i = 0; // forgets the oldest client, as a NAT does
    if (i == relay->count || i == 0) {
        if (i == relay->count)
            relay->clients[relay->count++].upstream = open_socket(0);
        relay->clients[i].address = *address;
    }
    return i;
}

static void insert(struct relay *relay, struct datagram *datagram)
{
    struct datagram **place = &relay->first;

    if (relay->last && relay->last->due_us <= datagram->due_us)
        place = &relay->last->next;
    while (*place && (*place)->due_us <= datagram->due_us)
        place = &(*place)->next;
    datagram->next = *place;
    *place = datagram;
    if (!datagram->next)
        relay->last = datagram;
}

// Begins an outage: this datagram is lost, with all that follow it.
static void begin_outage(struct relay *relay)
{
    relay->out = true;
    printf("held\n");
    fflush(stdout);
}

// Holds back what leaves after all that was sent upwards so far.
static void begin_spike(struct relay *relay, uint64_t now)
{
    struct cn_link_model *up = &relay->up;

    up->shape.hold_us =
        1 + up->shape.delay_us + (up->free_us > (double)now ? (uint64_t)up->free_us : now);
    up->shape.held_us = relay->spike_us;
}

static void count_large(struct relay *relay, uint64_t now)
{
    uint64_t number = relay->large++;

    if (relay->hold && number == relay->hold)
        begin_outage(relay);
    if (relay->spike_us && number == relay->spike_at)
        begin_spike(relay, now);
}

static void offer(struct relay *relay, unsigned client, bool up, const uint8_t *data, size_t size)
{
    uint64_t leave_us[2], now = now_us();
    unsigned copies = cn_link_model_offer(up ? &relay->up : &relay->down, size, now, leave_us);

    if (up && size >= LARGE)
        count_large(relay, now);
    for (unsigned i = 0; !relay->out && i < copies; i++) {
        struct datagram *datagram = malloc(sizeof(*datagram) + size);

        if (!datagram)
            die("relay");
        *datagram =
            (struct datagram){.due_us = leave_us[i], .client = client, .up = up, .size = size};
        memcpy(datagram->data, data, size);
        insert(relay, datagram);
    }
}

// Sends a datagram; with a full buffer it is lost.
static void send_on(struct relay *relay, const struct datagram *datagram)
{
    const struct client *client = &relay->clients[datagram->client];
    const struct sockaddr_in *to = datagram->up ? &relay->target : &client->address;

    if (datagram->up && datagram->size >= LARGE)
        relay->large_bytes += datagram->size + relay->up.shape.overhead;
    if (relay->between)
        (void)!write(datagram->up ? relay->far : relay->listen, datagram->data, datagram->size);
    else
        sendto(datagram->up ? client->upstream : relay->listen, datagram->data, datagram->size, 0,
               (const struct sockaddr *)to, sizeof(*to));
}

static void forward(struct relay *relay)
{
    uint64_t now = now_us();

    while (relay->first && relay->first->due_us <= now) {
        struct datagram *datagram = relay->first;

        relay->first = datagram->next;
        if (!relay->first)
            relay->last = NULL;
        send_on(relay, datagram);
        free(datagram);
    }
}

static void receive_packets(struct relay *relay, bool up)
{
    uint8_t data[DATAGRAM_MAX];
    ssize_t size;

    while ((size = read(up ? relay->listen : relay->far, data, sizeof(data))) > 0)
        offer(relay, 0, up, data, (size_t)size);
}

static void receive_up(struct relay *relay)
{
    uint8_t data[DATAGRAM_MAX];
    struct sockaddr_in from = {0};
    socklen_t length = sizeof(from);
    ssize_t size;

    while ((size = recvfrom(relay->listen, data, sizeof(data), 0, (struct sockaddr *)&from,
                            &length)) >= 0)
        offer(relay, find_client(relay, &from), true, data, (size_t)size);
}

static void receive_down(struct relay *relay, unsigned client)
{
    uint8_t data[DATAGRAM_MAX];
    ssize_t size;

    while ((size = recv(relay->clients[client].upstream, data, sizeof(data), 0)) >= 0)
        offer(relay, client, false, data, (size_t)size);
}

static void rebind(struct relay *relay)
{
    for (unsigned i = 0; i < relay->count; i++) {
        int old = relay->clients[i].upstream;

        relay->clients[i].upstream = open_socket(0);
        close(old);
    }
}

static void wait_and_receive(struct relay *relay)
{
    struct pollfd polled[CLIENTS_MAX + 1] = {{.fd = relay->listen, .events = POLLIN}};
    unsigned count = relay->count;
    uint64_t now = now_us();
    uint64_t wait_us = 100000;
    struct timespec timeout;

    if (relay->first)
        wait_us = relay->first->due_us > now ? relay->first->due_us - now : 0;
    if (wait_us > 100000)
        wait_us = 100000;
    timeout = (struct timespec){.tv_nsec = (long)wait_us * 1000};
    for (unsigned i = 0; i < count; i++)
        polled[i + 1] = (struct pollfd){.fd = relay->clients[i].upstream, .events = POLLIN};
    if (relay->between)
        polled[++count] = (struct pollfd){.fd = relay->far, .events = POLLIN};
    if (ppoll(polled, count + 1, &timeout, NULL) < 0 && errno != EINTR)
        die("relay: poll");
    if (relay->between) {
        receive_packets(relay, true);
        receive_packets(relay, false);
        return;
    }
    if (polled[0].revents)
        receive_up(relay);
    for (unsigned i = 0; i < count; i++) {
        if (polled[i + 1].revents)
            receive_down(relay, i);
    }
}

static void read_value(struct cn_link_shape *shape, double *queue_ms, const char *text)
{
    const char *equals = strchr(text, '=');
    double value = equals ? strtod(equals + 1, NULL) : 0;
    size_t length = equals ? (size_t)(equals - text) : 0;
    const struct {
        const char *name;
        double *real;
        uint64_t *whole;
        double scale;
    } names[] = {
        {"rate", NULL, &shape->rate_bps, 1},
        {"delay", NULL, &shape->delay_us, 1000},
        {"queue", queue_ms, NULL, 1},
        {"loss", &shape->loss, NULL, 1},
        {"burst", &shape->burst_loss, NULL, 1},
        {"length", &shape->burst_length, NULL, 1},
        {"reorder", &shape->reorder, NULL, 1},
        {"reorder_ms", NULL, &shape->reorder_us, 1000},
        {"duplicate", &shape->duplicate, NULL, 1},
        {"bucket", NULL, &shape->bucket_bytes, 1},
        {"seed", NULL, &shape->seed, 1},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i].name) != length || strncmp(names[i].name, text, length) != 0)
            continue;
        if (names[i].real)
            *names[i].real = value * names[i].scale;
        else
            *names[i].whole = (uint64_t)(value * names[i].scale);
        return;
    }
    if (length == 3 && strncmp(text, "mtu", 3) == 0) {
        shape->mtu = (uint32_t)value;
    } else if (length == 8 && strncmp(text, "overhead", 8) == 0) {
        shape->overhead = (uint32_t)value;
    } else {
        fprintf(stderr, "relay: what is '%s'?\n", text);
        exit(2);
    }
}

// Returns false for a value of another kind.
static bool read_moment(struct relay *relay, const char *text)
{
    if (strncmp(text, "hold=", 5) == 0)
        relay->hold = strtoull(text + 5, NULL, 10);
    else if (strncmp(text, "spike_at=", 9) == 0)
        relay->spike_at = strtoull(text + 9, NULL, 10);
    else if (strncmp(text, "spike=", 6) == 0)
        relay->spike_us = 1000 * strtoull(text + 6, NULL, 10);
    else
        return false;
    return true;
}

static void print_counts(const char *way, const struct cn_link_counts *counts)
{
    printf("%s offered %llu delivered %llu lost %llu overflowed %llu too_large %llu bytes %llu\n",
           way, (unsigned long long)counts->offered, (unsigned long long)counts->delivered,
           (unsigned long long)counts->lost, (unsigned long long)counts->overflowed,
           (unsigned long long)counts->too_large, (unsigned long long)counts->bytes);
}

int main(int argc, char **argv)
{
    static struct relay relay;
    bool between = argc > 1 && (argv[1][0] < '0' || argv[1][0] > '9');
    struct cn_link_shape shape = {.overhead = between ? 0 : 28}; // IPv4 and UDP
    double queue_ms = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: relay LISTEN_PORT|NEAR TARGET_PORT|FAR [name=value ...]\n");
        return 2;
    }
    for (int i = 3; i < argc; i++) {
        if (!read_moment(&relay, argv[i]))
            read_value(&shape, &queue_ms, argv[i]);
    }
    shape.queue_bytes = (uint64_t)((double)shape.rate_bps / 8e3 * queue_ms);
    cn_link_model_init(&relay.up, &shape);
    shape.seed++;
    cn_link_model_init(&relay.down, &shape);
    relay.between = between;
    relay.listen =
        between ? open_interface(argv[1]) : open_socket((unsigned)strtoul(argv[1], NULL, 10));
    if (between)
        relay.far = open_interface(argv[2]);
    else
        relay.target = at_port((unsigned)strtoul(argv[2], NULL, 10));
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    printf("ready\n");
    fflush(stdout);
    while (!stopped) {
        forward(&relay);
        wait_and_receive(&relay);
        if (rebind_asked)
            rebind(&relay);
        if (outage_asked)
            relay.out = !relay.out;
        rebind_asked = outage_asked = 0;
    }
    printf("large up bytes %llu\n", (unsigned long long)relay.large_bytes);
    print_counts("up", &relay.up.counts);
    print_counts("down", &relay.down.counts);
    return 0;
}
