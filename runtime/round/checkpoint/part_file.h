// part_file.h - one part of a state between two steps, in a file of its own.
//
// Where a model is cut into parts, no member holds the whole state while it trains. Every few
// seconds each writes the values of its part to a file, and the same bytes go to one other member.
// A state can be used if the files of all its parts are found. CHECKPOINT.md, "Parts of a state",
// has the format. At the end of a round each writes what waits to be sent of its part to such a
// file, too ("What waits, in parts"). Threading: none; the caller serialises access to the store.
#pragma once

#include "runtime/engine/graph/cut.h"
#include "runtime/engine/layout.h"
#include "runtime/port/crypto.h"
#include "runtime/round/checkpoint/checkpoint.h"

#define CN_PART_HEADER_SIZE 208
#define CN_STORED_SLOTS 2 // files of the same part, of two states

// Files of this board's part and of the part before it, by slot.
enum cn_stored_file { CN_STORED_OWN, CN_STORED_BEFORE, CN_STORED_FILES };
extern const char *const cn_stored_names[CN_STORED_FILES][CN_STORED_SLOTS];

// The name of a file of what waits: of a part of a set (cn_part_state). parse returns whether a
// name is one.
#define CN_WAITING_NAME_SIZE 32
void cn_waiting_name(uint64_t set, uint32_t part, char name[CN_WAITING_NAME_SIZE]);
bool cn_waiting_parse(const char *name, uint64_t *set, uint32_t *part);

// The header of a file. All parts of a state have the same numbers, but for part, tensors and
// values.
struct cn_part_header {
    uint64_t run, epoch; // epoch in which the state was stored
    uint32_t lineage, round, step;
    uint32_t parts;               // of the cut
    uint8_t base[CN_DIGEST_SIZE]; // of the version that the round began with
    // As in struct cn_checkpoint.
    uint64_t samples, cursor, updates;
    double train_loss;
    struct cn_loss_scale loss_scale;
    uint16_t micro[CN_GROUP_MAX];
    // Bits by enum cn_checkpoint_part: weights, optimizer and second, or CN_PART_WAITING.
    uint32_t arrays;
    uint32_t part;                    // 0 to parts - 1
    uint32_t tensors;                 // tensors of the part
    uint64_t values;                  // of each array
    uint32_t cut;                     // of what waits: tells cuts apart; else 0
    uint8_t contents[CN_DIGEST_SIZE]; // of what waits: digest of struct cn_part_digests; else zeros
};

#define CN_PART_WAITING (1u << CN_PART_NEXT_RESIDUAL | 1u << CN_PART_CHANGE)

// What is in the files of a waiting set, which each of them has behind its header: so whoever knows
// the digest of the header knows what must be in each part.
struct cn_part_digests {
    uint8_t frame[CN_DIGEST_SIZE];                   // of the frame that was made with what waits
    uint8_t parts[CN_CUT_PARTS_MAX][CN_DIGEST_SIZE]; // of tensors and arrays; zeros: no such part
};

// Fills header->contents.
void cn_part_set_contents(struct cn_part_header *header, const struct cn_part_digests *digests);

// Returns a digest of the numbers that all parts of a state, or of a waiting set, have alike: never
// 0.
uint64_t cn_part_state(const struct cn_part_header *header);

// --- writing ---

// Returns the bytes of a file with this header.
uint64_t cn_part_size(const struct cn_part_header *header);

// Takes the bytes of a file in order. After an error the calls do nothing.
struct cn_part_writer {
    struct cn_store_writer file;
    struct cn_sha256 sha;
    cn_err err;                       // the first error of the disk
    bool waits;                       // the file is of what waits
    uint8_t expected[CN_DIGEST_SIZE]; // then: of tensors and arrays
};

// Begins a file with its header and the tensors of the part: indices in the layout of the whole
// model, ascending. digests, of what waits only, must be those of header->contents. End the file
// with cn_part_writer_end.
void cn_part_writer_begin(struct cn_part_writer *writer, struct cn_store *store, const char *name,
                          const struct cn_part_header *header,
                          const struct cn_part_digests *digests, const uint32_t *tensors);

// Appends values of the arrays, in the order of enum cn_checkpoint_part; to is the writer.
void cn_part_writer_put(void *to, const float *values, size_t count);

// Makes the file durable if err is CN_OK, else drops it. Returns err, or the disk's error;
// CN_EDIGEST for tensors or values that are not those of the digests.
cn_err cn_part_writer_end(struct cn_part_writer *writer, cn_err err);

// --- reading ---

// Checks the bytes of a file as they come, whoever sends them.
struct cn_part_reader {
    struct cn_part_header header;
    uint64_t left; // bytes of the file that have not come
    // The rest is the reader's own.
    const struct cn_layout *layout;
    void (*take)(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                 const float *values);
    void *context;
    struct cn_part_digests digests; // of what waits
    uint32_t *tensors;              // owned
    size_t read;                    // bytes behind the header that have come
    size_t tensor, of_it; // the next value: which tensor of the part, and which value of it
    uint32_t array;       // array of the next value
    struct cn_sha256 sha;
    uint8_t digest[CN_DIGEST_SIZE]; // that the file names
};

// Begins with the header. take gets the values, with their place in a row of the whole model, whose
// layout is borrowed; NULL: they are only checked. CN_EFORMAT for bytes that are no header of a
// part of this layout. End with cn_part_reader_end in each case. CN_ENOMEM.
cn_err cn_part_reader_begin(struct cn_part_reader *reader, const struct cn_layout *layout,
                            const uint8_t header[CN_PART_HEADER_SIZE],
                            void (*take)(void *context, enum cn_checkpoint_part array, size_t first,
                                         size_t count, const float *values),
                            void *context);

// Reads a header alone. CN_EFORMAT for bytes that are none of this layout.
cn_err cn_part_header_read(const uint8_t bytes[CN_PART_HEADER_SIZE], const struct cn_layout *layout,
                           struct cn_part_header *header);

// Checks the tensors that a header has: they ascend, and have as many values as it says.
cn_err cn_part_check_tensors(const struct cn_part_header *header, const uint32_t *tensors,
                             const struct cn_layout *layout);

// Takes the next bytes: a multiple of 4, at most reader->left. CN_EFORMAT for tensors that the
// layout does not have; CN_EDIGEST if a digest is another, that of the values with the last bytes.
cn_err cn_part_reader_put(struct cn_part_reader *reader, const uint8_t *bytes, size_t size);

// Frees what the reader owns.
void cn_part_reader_end(struct cn_part_reader *reader);

// Reads the header of a file only.
cn_err cn_part_file_read(struct cn_store *store, const char *name, const struct cn_layout *layout,
                         struct cn_part_header *header);

// Reads a whole file and checks it. Errors as above, those of the store, and CN_ENOTFOUND.
cn_err cn_part_file_check(struct cn_store *store, const char *name, const struct cn_layout *layout,
                          struct cn_part_header *header);

// As cn_part_file_check, and passes the values to take, as cn_part_reader_begin. On an error they
// are to be discarded.
cn_err cn_part_file_take(struct cn_store *store, const char *name, const struct cn_layout *layout,
                         void (*take)(void *context, enum cn_checkpoint_part array, size_t first,
                                      size_t count, const float *values),
                         void *context, struct cn_part_header *header);
