// registration_file.h - the aggregator's last answer to a board's registration, on its disk: a
// board that is started while the aggregator is away trains on with it.
//
// The format is specified in runtime/round/CHECKPOINT.md. It holds the keys of the board's pairs,
// so it is as secret as the board's own key. Threading: that of the link.
#pragma once

#include "runtime/port/store.h"
#include "transport/message/message.h"

#define CN_REGISTRATION_FILE "registration"
#define CN_REGISTRATION_MAX                                                                        \
    (44 + CN_MESSAGE_MAX + CN_GROUP_MAX * CN_KEY_SIZE + CN_DIGEST_SIZE) // bytes of the file

// What an answer belongs to: with another key, aggregator or member list it is not used. The origin
// is of the link, the owner of that and what the board says of itself.
cn_err cn_registration_origin(const struct cn_link_config *config, uint8_t origin[CN_DIGEST_SIZE]);
void cn_registration_owner(const uint8_t origin[CN_DIGEST_SIZE],
                           const struct cn_registration *facts, uint8_t owner[CN_DIGEST_SIZE]);

// bytes has room for CN_REGISTRATION_MAX. keys: how many the manifest has.
cn_err cn_registration_encode(const uint8_t owner[CN_DIGEST_SIZE],
                              const struct cn_register_reply *reply, uint32_t keys, uint8_t *bytes,
                              size_t *size);

// Total: any bytes are an answer to this owner with so many keys, CN_ESTALE for one to another
// owner, or CN_EFORMAT or CN_EDIGEST. After an error reply is not defined.
cn_err cn_registration_decode(const uint8_t *bytes, size_t size,
                              const uint8_t owner[CN_DIGEST_SIZE], uint32_t keys,
                              struct cn_register_reply *reply);

// CN_ENOTFOUND when there is none, else as decode.
cn_err cn_registration_load(struct cn_store *store, const uint8_t owner[CN_DIGEST_SIZE],
                            uint32_t keys, struct cn_register_reply *reply);

// Durable; writes nothing when the same is there.
cn_err cn_registration_save(struct cn_store *store, const uint8_t owner[CN_DIGEST_SIZE],
                            const struct cn_register_reply *reply, uint32_t keys);
