// spool.h - uploads on their way in, and the accepted frames as files.
//
// A frame arrives in numbered chunks of one size, in any order and more than once. It is written
// aside; keep makes it durable under "round-N-GROUP.update". Before that its parts of 4096 chunks
// are saved when they are complete, and others after two seconds: an upload goes on from those
// after a crash, and the board sends the rest again. Each board has at most one upload; a new one
// replaces the old, and touches no other's. Nothing is taken for a declared size before it was
// checked against the largest possible frame. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/port/store.h"
#include "transport/message/message.h"

#define CN_SPOOL_NAME_SIZE (CN_NAME_SIZE + 40)
#define CN_SPOOL_PART 4096 // chunks

struct cn_spool_config {
    struct cn_store *store; // borrowed
    size_t frame_max;       // bytes of the largest frame this run can have
    uint64_t limit;         // bytes of all uploads together; 0 for none
    uint32_t chunk_size;
    uint64_t expiry_ms; // in which an upload has to get on by a 64th
    const char *disk;   // a path on the disk that fills; NULL: its space is not looked at. Borrowed
    uint64_t reserve;   // bytes to leave free on it
};

struct cn_spool_part {
    uint32_t received; // chunks
    uint32_t saved;    // of these, durable
    bool exists;       // its file
    uint64_t since_ms; // the first chunk that is not
};

struct cn_spooled {
    uint8_t id[CN_UPLOAD_ID_SIZE];
    char board[CN_NAME_SIZE]; // "" for one that a release before saved: it is only lent
    char group[CN_NAME_SIZE];
    struct cn_declare_request declared; // the first time: its measurements count
    bool is_declared;                   // by this board, since the program's start
    uint32_t chunk_count;
    uint32_t received;
    uint32_t first_missing;                      // all before it are there
    uint8_t *bitmap;                             // chunk n is bit n % 8 of byte n / 8
    struct cn_chunk_range recent[CN_RECENT_MAX]; // what came last, a ring
    uint32_t recent_count, recent_next;
    struct cn_store_file *file;
    struct cn_spool_part *parts;
    uint8_t *lent;           // chunks that another board of the group has sent, as in bitmap
    uint32_t lent_count;     // chunks
    uint64_t lent_ms;        // when this upload was lent last; 0: never
    uint64_t put_ms;         // when a chunk came last, or the upload was begun
    uint64_t since_ms;       // begin of the time in which it has to get on; 0: not set yet
    uint32_t since_received; // then
    struct cn_spooled *next;
};

struct cn_spool;

// Takes up what an earlier program had saved of uploads. What a full disk does not take of them is
// dropped, and the board sends it again.
cn_err cn_spool_open(const struct cn_spool_config *config, struct cn_spool **spool);
// Saves what is there of uploads.
void cn_spool_close(struct cn_spool *spool);

// Begins the board's upload or finds it: one that declares the same frame again goes on where it
// was. What another board of the group has sent of the same frame is lent to it, from each upload
// once in ten seconds. CN_ERANGE for a size of 0 or above the largest frame, CN_EAGAIN
// when the spool's limit is reached, CN_ENOSPC when the disk's reserve would be touched.
cn_err cn_spool_declare(struct cn_spool *spool, const char *board, const char *group,
                        const struct cn_declare_request *declared, uint64_t now_ms,
                        struct cn_spooled **upload);

// The upload of this board for this group if it has this id, else NULL.
struct cn_spooled *cn_spool_find(struct cn_spool *spool, const char *board, const char *group,
                                 const uint8_t id[CN_UPLOAD_ID_SIZE]);

// Stores the chunks from index on, all of them whole; those that are there stay as they are.
// CN_ERANGE for a wrong index or size, CN_ECONFLICT for other bytes than the board itself has sent.
cn_err cn_spool_put(struct cn_spool *spool, struct cn_spooled *upload, uint32_t index,
                    const uint8_t *data, size_t size, uint64_t now_ms);

// Fills what a status says of chunks: id, chunk_count, received, known, recent, and the first
// ranges that are missing from chunk from on, max of them at most.
void cn_spool_describe(const struct cn_spooled *upload, uint32_t from, uint32_t max,
                       struct cn_upload_status *status);

// The whole frame, malloced, of declared.size bytes. CN_EAGAIN while chunks are missing, also when
// those that were lent are, because it was not what was declared; CN_EDIGEST when it is not without
// any.
cn_err cn_spool_read(const struct cn_spool *spool, struct cn_spooled *upload, uint8_t **frame);

// Makes the frame durable. The upload is gone, also after an error; so are those of other boards of
// the group for the same round, which cannot count any more.
cn_err cn_spool_keep(struct cn_spool *spool, struct cn_spooled *upload);
void cn_spool_drop(struct cn_spool *spool, struct cn_spooled *upload);

// Saves what has waited for it; drops uploads that stopped, that hardly get on or are never
// committed, and those of other rounds.
void cn_spool_expire(struct cn_spool *spool, uint32_t round, uint64_t now_ms);

// Used by spool.c; in spool_parts.c. Errors of save are those of the store.
cn_err cn_spool_part_save(const struct cn_spool_config *config, struct cn_spooled *upload,
                          uint32_t part);
void cn_spool_parts_remove(const struct cn_spool_config *config, const struct cn_spooled *upload);
// Calls take for each part that was saved and can be used; others are removed. declared has the
// run, round, size, digest and base. bitmap is of the part's chunks, data of its bytes.
typedef cn_err cn_spool_take_part(void *context, const char *board, const char *group,
                                  const struct cn_declare_request *declared, uint32_t part,
                                  const uint8_t *bitmap, const uint8_t *data);
cn_err cn_spool_parts_load(const struct cn_spool_config *config, cn_spool_take_part *take,
                           void *context);

// Used by spool.c; in spool_lend.c. Copies the chunks that to lacks. After an error some are there.
cn_err cn_spool_lend(const struct cn_spool_config *config, const struct cn_spooled *from,
                     struct cn_spooled *to);
// The board has sent these chunks itself.
void cn_spool_own(struct cn_spooled *upload, uint32_t first, uint32_t count);
// Lent chunks are missing again. Whether there were any.
bool cn_spool_give_back(struct cn_spooled *upload);

// The name of an accepted frame's file.
void cn_spool_name(uint32_t round, const char *group, char name[CN_SPOOL_NAME_SIZE]);
// Reads such a name. CN_EFORMAT when it is another file's.
cn_err cn_spool_parse_name(const char *name, uint32_t *round, char group[CN_NAME_SIZE]);
