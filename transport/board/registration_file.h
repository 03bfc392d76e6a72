// registration_file.h - keeps the aggregator's last answer to a board's registration on disk. A
// board that starts while the aggregator is away continues training with it.
//
// runtime/round/CHECKPOINT.md specifies the format. The file holds the keys of the board's pairs,
// so it is as secret as the board's own key. Threading: that of the link.
#pragma once

#include "runtime/port/store.h"
#include "transport/message/message.h"

#define CN_REGISTRATION_FILE "registration"
#define CN_REGISTRATION_MAX                                                                        \
    (44 + CN_MESSAGE_MAX + CN_GROUP_MAX * CN_KEY_SIZE + CN_DIGEST_SIZE) // bytes of the file

// Compute the digests that tie an answer to what it is for: it is not used with another key,
// aggregator or list of members. The origin identifies the link. The owner adds the board's own
// list of members. Returns the error of cn_crypto_derive if that fails.
cn_err cn_registration_origin(const struct cn_link_config *config, uint8_t origin[CN_DIGEST_SIZE]);
void cn_registration_owner(const uint8_t origin[CN_DIGEST_SIZE],
                           const struct cn_registration *facts, uint8_t owner[CN_DIGEST_SIZE]);

// Encodes an answer. bytes has room for CN_REGISTRATION_MAX. keys is the number of keys in the
// manifest. Returns the error of cn_message_put_manifest if that fails.
cn_err cn_registration_encode(const uint8_t owner[CN_DIGEST_SIZE],
                              const struct cn_register_reply *reply, uint32_t keys, uint8_t *bytes,
                              size_t *size);

// Decodes any bytes. Returns CN_ESTALE for an answer to another owner, and CN_EFORMAT or CN_EDIGEST
// for bytes that are no answer with that number of keys. After an error reply is undefined.
cn_err cn_registration_decode(const uint8_t *bytes, size_t size,
                              const uint8_t owner[CN_DIGEST_SIZE], uint32_t keys,
                              struct cn_register_reply *reply);

// Loads the stored answer. Returns CN_ENOTFOUND when there is none, the store's other errors, and
// the errors of cn_registration_decode.
cn_err cn_registration_load(struct cn_store *store, const uint8_t owner[CN_DIGEST_SIZE],
                            uint32_t keys, struct cn_register_reply *reply);

// Saves the answer durably. Writes nothing when the same answer is stored already. Returns the
// errors of cn_registration_encode and of the store.
cn_err cn_registration_save(struct cn_store *store, const uint8_t owner[CN_DIGEST_SIZE],
                            const struct cn_register_reply *reply, uint32_t keys);
