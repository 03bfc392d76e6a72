// session_base.c - version 0 from a file of this board (the profile's base), so that the gateway
// need not send it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/export.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/port/crypto.h"
#include "runtime/round/session/session_private.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/version.h"

static cn_err digest_graph(const struct cn_onnx *onnx, const struct cn_layout *layout,
                           uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_buffer graph;
    cn_err err;

    cn_buffer_init(&graph, CN_ONNX_FILE_MAX);
    err = cn_export_graph(onnx, layout, &graph);
    if (!err)
        cn_crypto_digest(graph.data, graph.size, digest);
    cn_buffer_deinit(&graph);
    return err;
}

static cn_err refuse(const struct cn_session *session, const char *what,
                     const uint8_t found[CN_DIGEST_SIZE], const uint8_t wanted[CN_DIGEST_SIZE],
                     struct cn_diag *diag)
{
    char texts[2][2 * CN_DIGEST_SIZE + 1];

    cn_hex(texts[0], found, CN_DIGEST_SIZE);
    cn_hex(texts[1], wanted, CN_DIGEST_SIZE);
    cn_diag_add(diag, "base: %s has %s %s, the job's are %s", session->config.settings->base, what,
                texts[0], texts[1]);
    return CN_EDIGEST;
}

// Reads the weights of the file, which must be the job's model with the job's frozen tensors.
static cn_err read_weights(const struct cn_session *session, const struct cn_onnx *onnx,
                           struct cn_diag *diag, float *weights)
{
    static const uint8_t unnamed[CN_DIGEST_SIZE];
    const struct cn_session_config *config = &session->config;
    struct cn_layout layout;
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = cn_onnx_layout(onnx, diag, &layout);

    if (err)
        return err;
    err = digest_graph(onnx, &layout, digest);
    cn_layout_deinit(&layout);
    if (!err && memcmp(digest, config->graph, CN_DIGEST_SIZE) != 0)
        return refuse(session, "a graph with the digest", digest, config->graph, diag);
    if (!err) // the same graph has the same layout
        err = cn_onnx_weights(onnx, session->layout, weights);
    if (err || memcmp(config->base, unnamed, CN_DIGEST_SIZE) == 0)
        return err;
    cn_local_tensors_digest(session->layout, config->graph, weights, digest);
    if (memcmp(digest, config->base, CN_DIGEST_SIZE) != 0)
        return refuse(session, "frozen tensors with the digest", digest, config->base, diag);
    return CN_OK;
}

static cn_err read_file(const struct cn_session *session, struct cn_diag *diag, float *weights)
{
    struct cn_onnx_file file;
    struct cn_onnx *onnx = NULL;
    cn_err err = cn_onnx_file_open(session->config.settings->base, diag, &file);

    if (err)
        return err;
    err = cn_onnx_open(file.data, file.size, diag, &onnx);
    if (!err)
        err = read_weights(session, onnx, diag, weights);
    cn_onnx_close(onnx);
    cn_onnx_file_close(&file);
    return err;
}

cn_err cn_session_read_base(const struct cn_session *session, struct cn_diag *diag,
                            struct cn_session_version *version, uint8_t **bytes)
{
    struct cn_version_header header = {.count = session->layout->total};
    size_t size = CN_VERSION_HEADER_SIZE + header.count * sizeof(float);
    cn_err err;

    *bytes = cn_scratch_allocate(size);
    if (!*bytes)
        return CN_ENOMEM;
    err = read_file(session, diag, (float *)(void *)(*bytes + CN_VERSION_HEADER_SIZE));
    if (err) {
        cn_scratch_free(*bytes);
        *bytes = NULL;
        return err;
    }
    memcpy(header.graph, session->config.graph, CN_DIGEST_SIZE);
    cn_version_put_header(&header, *bytes);
    *version = (struct cn_session_version){.bytes = *bytes, .size = size};
    cn_crypto_digest(*bytes, size, version->digest);
    return CN_OK;
}

bool cn_session_wants_base(const struct cn_session *session)
{
    return session->config.settings->base[0] && !session->config.alone &&
           session->held.phase == CN_PHASE_EMPTY;
}

cn_err cn_session_check_base(const struct cn_session *session, struct cn_diag *diag)
{
    struct cn_session_version version;
    uint8_t *bytes;
    cn_err err;

    if (!cn_session_wants_base(session))
        return CN_OK;
    err = cn_session_read_base(session, diag, &version, &bytes);
    cn_scratch_free(bytes);
    if (err && diag->count == 0)
        cn_diag_add(diag, "base: %s: %s", session->config.settings->base, cn_err_text(err));
    return err;
}
