#include "ports/tcp/pair.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#include <mbedtls/ssl.h>
#include <psa/crypto.h>

#include "ports/tcp/socket.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log_limit.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"

#define HELLO_MAGIC 0x50524e43u              // "CNRP"
#define HELLO_SIZE 144                       // bytes; PROTOCOL.md has the layout
#define HELLO_FROM 16                        // offset of the sender's name
#define HELLO_TO (HELLO_FROM + CN_NAME_SIZE) // offset of the receiver's name
#define IDENTITY_SIZE ((size_t)2 * CN_NAME_SIZE)
#define DRAIN_MAX ((size_t)16 << 20) // bytes that one call drops: more than a socket holds

enum pair_step {
    STEP_CONNECT,
    STEP_TLS,
    STEP_SEND_HELLO, // the connecting side sends first
    STEP_READ_HELLO,
    STEP_READY,
    STEP_FAILED,
};

struct cn_pair {
    const struct cn_pair_config *config;
    bool reached; // TCP is connected
    bool proven;  // TLS is done: the other side has the key
    mbedtls_ssl_context ssl;
    mbedtls_ssl_config tls;
    int fd;
    bool connects; // this side called the other, so it is the TLS client
    bool refused;  // the other side's epoch differs; our hello is still sent to tell it
    enum pair_step step;
    short events;         // what poll should wait for
    uint32_t member;      // index of the other side; UINT32_MAX: accepted and not known yet
    uint64_t deadline_ms; // end of the time for the handshake
    uint64_t peer_epoch;
    size_t unsent; // length of the record that TLS has taken but not fully written
    uint8_t hello[HELLO_SIZE];
    size_t hello_done; // bytes of hello sent or received so far
    bool told;         // the other side knows that this one gives up
    enum cn_pair_end end;
};

// Cipher suites in order of preference. AES is listed only with the processor's instructions:
// without them it is slower than ChaCha20, and its tables leak through the cache. So a pair uses
// AES only if both sides have the instructions.
static const int with_aes[] = {MBEDTLS_TLS1_3_AES_128_GCM_SHA256,
                               MBEDTLS_TLS1_3_CHACHA20_POLY1305_SHA256, 0};
static const int without_aes[] = {MBEDTLS_TLS1_3_CHACHA20_POLY1305_SHA256, 0};
static const uint16_t groups[] = {MBEDTLS_SSL_IANA_TLS_GROUP_X25519,
                                  MBEDTLS_SSL_IANA_TLS_GROUP_SECP256R1, 0};

// TLS 1.3 keeps its keys in the PSA key store, which the whole process shares, while different
// threads use pairs.
#ifndef MBEDTLS_THREADING_C
#error "mbedTLS must be built with threading"
#endif

bool cn_pair_has_aes(void)
{
    if (getenv("CAIRN_CPU_PLAIN"))
        return false;
#if defined(__x86_64__)
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP) & (HWCAP_AES | HWCAP_PMULL)) == (HWCAP_AES | HWCAP_PMULL);
#else
    return false;
#endif
}

static int fill_random(void *context, unsigned char *data, size_t size)
{
    (void)context;
    return cn_crypto_random(data, size) ? MBEDTLS_ERR_SSL_INTERNAL_ERROR : 0;
}

static int write_socket(void *context, const unsigned char *data, size_t size)
{
    ssize_t count = send(*(const int *)context, data, size, MSG_NOSIGNAL);

    if (count >= 0)
        return (int)count;
    return errno == EAGAIN || errno == EINTR ? MBEDTLS_ERR_SSL_WANT_WRITE
                                             : MBEDTLS_ERR_SSL_CONN_EOF;
}

static int read_socket(void *context, unsigned char *data, size_t size)
{
    ssize_t count = recv(*(const int *)context, data, size, 0);

    if (count > 0)
        return (int)count;
    return count < 0 && (errno == EAGAIN || errno == EINTR) ? MBEDTLS_ERR_SSL_WANT_READ
                                                            : MBEDTLS_ERR_SSL_CONN_EOF;
}

// Returns whether a member's key is set: a key of zeros means none.
static bool has_key(const struct cn_member *member)
{
    static const uint8_t zero[CN_KEY_SIZE];

    return cn_crypto_compare(member->pair_key, zero, sizeof(zero)) != 0;
}

// Writes the PSK identity "FROM>TO" and returns its length.
static size_t print_identity(char text[IDENTITY_SIZE], const char *from, const char *to)
{
    return (size_t)snprintf(text, IDENTITY_SIZE, "%s>%s", from, to);
}

// Chooses the key for an identity that a connecting side offers; a callback of TLS. Only
// "MEMBER>SELF" has a key here.
static int choose_key(void *context, mbedtls_ssl_context *ssl, const unsigned char *identity,
                      size_t size)
{
    struct cn_pair *pair = context;
    const struct cn_pair_config *config = pair->config;

    for (uint32_t i = 0; i < config->count; i++) {
        char expected[IDENTITY_SIZE];
        size_t length =
            print_identity(expected, config->members[i].name, config->members[config->self].name);

        if (i == config->self || length != size || memcmp(expected, identity, size) != 0)
            continue;
        if (!has_key(&config->members[i]))
            break;
        pair->member = i;
        return mbedtls_ssl_set_hs_psk(ssl, config->members[i].pair_key, CN_KEY_SIZE);
    }
    return MBEDTLS_ERR_SSL_UNKNOWN_IDENTITY;
}

static cn_err offer_key(struct cn_pair *pair)
{
    const struct cn_pair_config *config = pair->config;
    const struct cn_member *peer = &config->members[pair->member];
    char identity[IDENTITY_SIZE];
    size_t length = print_identity(identity, config->members[config->self].name, peer->name);

    if (!has_key(peer))
        return CN_EAUTH;
    if (mbedtls_ssl_conf_psk(&pair->tls, peer->pair_key, CN_KEY_SIZE,
                             (const unsigned char *)identity, length))
        return CN_ENOMEM;
    return CN_OK;
}

static cn_err set_up_tls(struct cn_pair *pair)
{
    int role = pair->connects ? MBEDTLS_SSL_IS_CLIENT : MBEDTLS_SSL_IS_SERVER;
    cn_err err;

    if (mbedtls_ssl_config_defaults(&pair->tls, role, MBEDTLS_SSL_TRANSPORT_STREAM,
                                    MBEDTLS_SSL_PRESET_DEFAULT))
        return CN_ENOMEM;
    mbedtls_ssl_conf_min_tls_version(&pair->tls, MBEDTLS_SSL_VERSION_TLS1_3);
    mbedtls_ssl_conf_max_tls_version(&pair->tls, MBEDTLS_SSL_VERSION_TLS1_3);
    mbedtls_ssl_conf_tls13_key_exchange_modes(&pair->tls,
                                              MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_PSK_EPHEMERAL);
    mbedtls_ssl_conf_ciphersuites(&pair->tls, pair->config->aes ? with_aes : without_aes);
    mbedtls_ssl_conf_groups(&pair->tls, groups);
    mbedtls_ssl_conf_rng(&pair->tls, fill_random, NULL);
    if (pair->connects) {
        err = offer_key(pair);
        if (err)
            return err;
    } else {
        mbedtls_ssl_conf_psk_cb(&pair->tls, choose_key, pair);
    }
    if (mbedtls_ssl_setup(&pair->ssl, &pair->tls))
        return CN_ENOMEM;
    // mbedTLS 3.6 refuses to be a client without this call. There is no certificate, so no name is
    // compared.
    if (mbedtls_ssl_set_hostname(&pair->ssl, NULL))
        return CN_ENOMEM;
    mbedtls_ssl_set_bio(&pair->ssl, &pair->fd, write_socket, read_socket, NULL);
    return CN_OK;
}

// Takes fd, also when it fails.
static cn_err open_pair(const struct cn_pair_config *config, int fd, uint32_t member, bool connects,
                        struct cn_pair **opened)
{
    struct cn_pair *pair = calloc(1, sizeof(*pair));
    cn_err err;

    if (!pair) {
        close(fd);
        return CN_ENOMEM;
    }
    pair->config = config;
    pair->fd = fd;
    pair->connects = connects;
    pair->member = member;
    pair->step = connects ? STEP_CONNECT : STEP_TLS;
    pair->events = connects ? POLLOUT : POLLIN;
    pair->deadline_ms = cn_platform_now_ms() + config->handshake_ms;
    mbedtls_ssl_init(&pair->ssl);
    mbedtls_ssl_config_init(&pair->tls);
    err = psa_crypto_init() == PSA_SUCCESS ? set_up_tls(pair) : CN_ENOMEM;
    if (err) {
        cn_pair_close(pair);
        return err;
    }
    *opened = pair;
    return CN_OK;
}

cn_err cn_pair_listen(const char *address, int *descriptor)
{
    return cn_socket_listen(address, descriptor);
}

cn_err cn_pair_connect(const struct cn_pair_config *config, uint32_t member, struct cn_pair **pair)
{
    cn_err err;
    int fd;

    assert(member < config->count && member != config->self);
    err = cn_socket_connect(config->members[member].address, config->silence_ms,
                            config->lossy_paths >> member & 1, &fd);
    if (err)
        return err;
    return open_pair(config, fd, member, true, pair);
}

cn_err cn_pair_accept(const struct cn_pair_config *config, int listener, struct cn_pair **pair)
{
    cn_err err;
    int fd;

    err = cn_socket_accept(listener, config->silence_ms, &fd);
    if (err)
        return err;
    return open_pair(config, fd, UINT32_MAX, false, pair);
}

static void note_broken(const struct cn_pair *pair, int result)
{
    const struct cn_member *peer = &pair->config->members[pair->member];

    if (result == MBEDTLS_ERR_SSL_INVALID_MAC)
        cn_log_within(cn_log_quota_of(pair->config->lines, peer->name), cn_platform_now_ms(),
                      CN_LOG_WARN, "pair",
                      "%s (%s): a TLS record was forged, sent again or damaged: the "
                      "connection ends",
                      peer->name, peer->address);
}

// Maps a result of the TLS library. Before the other side has proved that it has the key, every
// failure of the protocol counts as CN_EAUTH.
static cn_err map_tls(struct cn_pair *pair, int result)
{
    switch (result) {
    case MBEDTLS_ERR_SSL_WANT_READ:
        pair->events = POLLIN;
        return CN_EAGAIN;
    case MBEDTLS_ERR_SSL_WANT_WRITE:
        pair->events = POLLOUT;
        return CN_EAGAIN;
    case MBEDTLS_ERR_SSL_ALLOC_FAILED:
        return CN_ENOMEM;
    case MBEDTLS_ERR_SSL_CONN_EOF:
    case MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY:
        return CN_EPEER;
    default:
        if (pair->step == STEP_TLS)
            return CN_EAUTH;
        note_broken(pair, result);
        return CN_EPEER;
    }
}

static cn_err shake_hands(struct cn_pair *pair)
{
    int result = mbedtls_ssl_handshake(&pair->ssl);

    return result ? map_tls(pair, result) : CN_OK;
}

static void write_hello(struct cn_pair *pair)
{
    const struct cn_pair_config *config = pair->config;

    memset(pair->hello, 0, sizeof(pair->hello));
    cn_put_u32(pair->hello, HELLO_MAGIC);
    cn_put_u16(pair->hello + 4, CN_PAIR_PROTOCOL);
    cn_put_u16(pair->hello + 6, (uint16_t)config->purpose);
    cn_put_u64(pair->hello + 8, config->epoch);
    snprintf((char *)pair->hello + HELLO_FROM, CN_NAME_SIZE, "%s",
             config->members[config->self].name);
    snprintf((char *)pair->hello + HELLO_TO, CN_NAME_SIZE, "%s",
             config->members[pair->member].name);
}

static bool same_name(const uint8_t *field, const char *name)
{
    return strncmp((const char *)field, name, CN_NAME_SIZE) == 0;
}

static cn_err check_hello(struct cn_pair *pair)
{
    const struct cn_pair_config *config = pair->config;
    const uint8_t *hello = pair->hello;

    if (cn_get_u32(hello) != HELLO_MAGIC)
        return CN_EFORMAT;
    if (cn_get_u16(hello + 4) != CN_PAIR_PROTOCOL) {
        cn_log_within(cn_log_quota_of(config->lines, config->members[pair->member].name),
                      cn_platform_now_ms(), CN_LOG_WARN, "pair",
                      "%s speaks protocol %u, this board speaks %u",
                      config->members[pair->member].name, cn_get_u16(hello + 4), CN_PAIR_PROTOCOL);
        return CN_ENOTSUP;
    }
    if (cn_get_u16(hello + 6) != config->purpose ||
        !same_name(hello + HELLO_FROM, config->members[pair->member].name) ||
        !same_name(hello + HELLO_TO, config->members[config->self].name))
        return CN_EAUTH;
    pair->peer_epoch = cn_get_u64(hello + 8);
    return pair->peer_epoch == config->epoch ? CN_OK : CN_ESTALE;
}

static cn_err send_hello(struct cn_pair *pair)
{
    while (pair->hello_done < HELLO_SIZE) {
        int result = mbedtls_ssl_write(&pair->ssl, pair->hello + pair->hello_done,
                                       HELLO_SIZE - pair->hello_done);

        if (result <= 0)
            return map_tls(pair, result);
        pair->hello_done += (size_t)result;
    }
    return CN_OK;
}

static cn_err read_hello(struct cn_pair *pair)
{
    while (pair->hello_done < HELLO_SIZE) {
        int result = mbedtls_ssl_read(&pair->ssl, pair->hello + pair->hello_done,
                                      HELLO_SIZE - pair->hello_done);

        if (result <= 0)
            return result == 0 ? CN_EPEER : map_tls(pair, result);
        pair->hello_done += (size_t)result;
    }
    return check_hello(pair);
}

static void begin_hello(struct cn_pair *pair, enum pair_step step)
{
    pair->step = step;
    pair->hello_done = 0;
    if (step == STEP_SEND_HELLO)
        write_hello(pair);
}

// Does one step of the handshake. Moves to the next step on CN_OK.
static cn_err advance(struct cn_pair *pair)
{
    cn_err err;

    switch (pair->step) {
    case STEP_CONNECT:
        err = cn_socket_connected(pair->fd);
        pair->reached = !err;
        if (!err)
            pair->step = STEP_TLS;
        return err;
    case STEP_TLS:
        err = shake_hands(pair);
        pair->proven = !err;
        if (!err)
            begin_hello(pair, pair->connects ? STEP_SEND_HELLO : STEP_READ_HELLO);
        return err;
    case STEP_SEND_HELLO:
        err = send_hello(pair);
        if (err)
            return err;
        if (pair->refused)
            return CN_ESTALE;
        begin_hello(pair, pair->connects ? STEP_READ_HELLO : STEP_READY);
        return CN_OK;
    case STEP_READ_HELLO:
        err = read_hello(pair);
        pair->refused = err == CN_ESTALE;
        if (err && (err != CN_ESTALE || pair->connects))
            return err;
        begin_hello(pair, pair->connects ? STEP_READY : STEP_SEND_HELLO);
        return CN_OK;
    default:
        return CN_EPEER;
    }
}

// Returns whether the time for the handshake is over. The side that connects waits on once its
// hello is sent: the other side is connected as soon as it has read that, and would take an end of
// this attempt for the death of this member.
static bool is_late(const struct cn_pair *pair)
{
    return !(pair->connects && pair->step == STEP_READ_HELLO) &&
           cn_platform_now_ms() >= pair->deadline_ms;
}

cn_err cn_pair_handshake(struct cn_pair *pair)
{
    cn_err err = CN_OK;

    while (pair->step != STEP_READY && !err)
        err = advance(pair);
    if (err == CN_EAGAIN && is_late(pair))
        err = CN_ETIMEOUT;
    if (err && err != CN_EAGAIN)
        pair->step = STEP_FAILED;
    return err;
}

bool cn_pair_reached(const struct cn_pair *pair)
{
    return pair->reached;
}

bool cn_pair_is_proven(const struct cn_pair *pair)
{
    return pair->proven;
}

uint32_t cn_pair_member(const struct cn_pair *pair)
{
    return pair->member;
}

uint64_t cn_pair_peer_epoch(const struct cn_pair *pair)
{
    return pair->peer_epoch;
}

const char *cn_pair_cipher(const struct cn_pair *pair)
{
    return mbedtls_ssl_get_ciphersuite(&pair->ssl);
}

int cn_pair_descriptor(const struct cn_pair *pair)
{
    return pair->fd;
}

bool cn_pair_loses_large(const struct cn_pair *pair)
{
    return cn_socket_loses_large(pair->fd);
}

short cn_pair_events(const struct cn_pair *pair)
{
    return pair->events;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

cn_err cn_pair_send(struct cn_pair *pair, const void *data, size_t size, size_t *sent)
{
    size_t length = pair->unsent ? pair->unsent : smaller(size, MBEDTLS_SSL_OUT_CONTENT_LEN);
    int result;
    cn_err err;

    assert(size >= length);
    if (pair->step != STEP_READY)
        return CN_EPEER;
    result = mbedtls_ssl_write(&pair->ssl, data, length);
    if (result > 0) {
        pair->unsent = 0;
        *sent = (size_t)result;
        return CN_OK;
    }
    err = map_tls(pair, result);
    if (err == CN_EAGAIN)
        pair->unsent = length; // the record is encrypted already, so it must be sent as it is
    else
        pair->step = STEP_FAILED;
    return err;
}

static void note_end(struct cn_pair *pair, int result)
{
    pair->end = result == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY ? CN_PAIR_GAVE_UP : CN_PAIR_CUT;
}

cn_err cn_pair_receive(struct cn_pair *pair, void *data, size_t size, size_t *received)
{
    int result;
    cn_err err;

    if (pair->step != STEP_READY)
        return CN_EPEER;
    result = mbedtls_ssl_read(&pair->ssl, data, size);
    if (result > 0) {
        *received = (size_t)result;
        return CN_OK;
    }
    err = result == 0 ? CN_EPEER : map_tls(pair, result);
    if (err != CN_EAGAIN) {
        pair->step = STEP_FAILED;
        note_end(pair, result);
    }
    return err;
}

cn_err cn_pair_give_up(struct cn_pair *pair)
{
    int result = 0;

    if (pair->told)
        return CN_OK;
    // While a part of a record waits, the library only sends that part.
    if (pair->unsent)
        result = mbedtls_ssl_close_notify(&pair->ssl);
    if (!result) {
        pair->unsent = 0;
        result = mbedtls_ssl_close_notify(&pair->ssl);
    }
    pair->told = !result;
    if (!result)
        return CN_OK;
    return result == MBEDTLS_ERR_SSL_WANT_WRITE ? CN_EAGAIN : CN_EPEER;
}

enum cn_pair_end cn_pair_drain(struct cn_pair *pair)
{
    uint8_t dropped[4096];
    size_t count = 0;

    while (pair->end == CN_PAIR_OPEN && count < DRAIN_MAX) {
        int result = mbedtls_ssl_read(&pair->ssl, dropped, sizeof(dropped));

        if (result == MBEDTLS_ERR_SSL_WANT_READ || result == MBEDTLS_ERR_SSL_WANT_WRITE)
            break;
        if (result > 0)
            count += (size_t)result;
        else
            note_end(pair, result);
    }
    return pair->end;
}

void cn_pair_close(struct cn_pair *pair)
{
    if (!pair)
        return;
    // Sends no close_notify, which would mean that this side gives up because of another. All data
    // has a known length, so a cut is noticed without it.
    mbedtls_ssl_free(&pair->ssl);
    mbedtls_ssl_config_free(&pair->tls);
    close(pair->fd);
    free(pair);
}
