// spool.h - incoming uploads, and the accepted frames as files.
//
// A frame arrives in numbered chunks of one size, in any order and possibly more than once. It is
// collected in a file that is not visible yet. cn_spool_keep makes it durable as
// "round-N-GROUP.update".
//
// Until then it is saved in parts of 4096 chunks, each two seconds after the first of its chunks
// that was not saved yet. A board that scatters its chunks over many parts waits longer for some of
// them (spool_save.h). A file replaces the one of fewer chunks at once or not at all. After a crash
// the upload continues from the saved parts, and the board sends the rest again.
//
// Each board has at most one upload. A new upload replaces the board's old one. It replaces another
// board's only to make room (spool_room.h). When several boards of a group send the same
// frame, chunks that one of them has sent are copied to the upload of another: they are lent
// (spool_lend.c). A declared size is checked against the largest possible frame before anything is
// allocated for it. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/port/store.h"
#include "transport/message/message.h"

#define CN_SPOOL_PART 4096                    // chunks of a part
#define CN_SPOOL_MEASUREMENT_MAX (1ull << 20) // bytes of an upload that measures the link

struct cn_spool_config {
    struct cn_store *store; // borrowed
    size_t frame_max;       // bytes of the largest frame this run can have
    uint64_t limit;         // bytes of all uploads together; 0: no limit
    uint32_t chunk_size;
    uint64_t expiry_ms; // an upload that advances less than 1/64 in this time is dropped
    // Path on the disk whose free space is checked, borrowed; NULL: no check.
    const char *disk;
    uint64_t reserve; // bytes to leave free on that disk
};

// CN_SPOOL_PART consecutive chunks of an upload; the last part may have fewer.
struct cn_spool_part {
    uint32_t received; // number of chunks that are there
    uint32_t saved;    // number of received chunks that are durable, or lent
    bool exists;       // whether the part may have a file
    uint64_t since_ms; // clock when the oldest unsaved chunk came, or of the last attempt to save
};

// An upload under way.
struct cn_spooled {
    uint8_t id[CN_UPLOAD_ID_SIZE];
    // "": saved by an older release, which stored no board; its chunks are only lent.
    char board[CN_NAME_SIZE];
    char group[CN_NAME_SIZE];
    struct cn_declare_request declared; // the first declaration; its measurements count
    bool is_declared; // whether this board has declared it since the program's start
    uint32_t chunk_count;
    uint32_t received;
    uint32_t first_missing; // all chunks before it are there
    uint8_t *bitmap;        // which chunks are there: chunk n is bit n % 8 of byte n / 8
    struct cn_chunk_range recent[CN_RECENT_MAX]; // ring of the chunks that came last
    uint32_t recent_count, recent_next;
    struct cn_store_file *file;
    struct cn_spool_part *parts;
    uint8_t *lent;       // which chunks another board of the group has sent, in the form of bitmap
    uint32_t lent_count; // chunks in lent
    uint64_t lent_ms;    // clock when this upload was last lent; 0: never
    uint32_t credit;     // chunks that may be saved (spool_save.h)
    uint64_t earned_ms;  // clock when time last added to credit
    uint64_t put_ms;     // clock when a chunk last came, or when the upload began; 0: restored
    uint64_t begun_ms;   // clock when the upload began
    uint64_t since_ms;   // clock when the current expiry_ms began; 0: not set yet
    uint32_t since_received; // value of received at since_ms
    struct cn_spooled *next;
};

struct cn_spool;

// Opens the spool and restores the parts of uploads that an earlier program saved. An upload that
// does not fit on a full disk is dropped, and the board sends it again.
cn_err cn_spool_open(const struct cn_spool_config *config, struct cn_spool **spool);
// Saves the received chunks of all uploads and closes the spool.
void cn_spool_close(struct cn_spool *spool);

// Returns the number of uploads under way, and sets bytes to their declared size together.
uint32_t cn_spool_usage(const struct cn_spool *spool, uint64_t *bytes);

// Begins the board's upload or finds it: declaring the same frame again continues the upload. The
// first declaration since the program's start copies to it the chunks that other boards of the
// group have sent of the same frame; each upload is lent at most once in ten seconds. Returns
// CN_ERANGE for a size of 0 or above the largest frame or measurement. Returns CN_EAGAIN when the
// spool's limit is reached, and CN_ENOSPC when the disk's reserve would be used. Other errors are
// those of the store.
cn_err cn_spool_declare(struct cn_spool *spool, const char *board, const char *group,
                        const struct cn_declare_request *declared, uint64_t now_ms,
                        struct cn_spooled **upload);

// Returns the board's upload for this group if it has been declared and has this id, otherwise
// NULL.
struct cn_spooled *cn_spool_find(struct cn_spool *spool, const char *board, const char *group,
                                 const uint8_t id[CN_UPLOAD_ID_SIZE]);

// Stores complete chunks, beginning with chunk index. Chunks that the board has already sent stay
// as they are. Returns CN_ERANGE for a wrong index or size, and CN_ECONFLICT when the board has
// sent other bytes for a chunk before. Other errors are those of the store.
cn_err cn_spool_put(struct cn_spool *spool, struct cn_spooled *upload, uint32_t index,
                    const uint8_t *data, size_t size, uint64_t now_ms);

// Fills the fields of status that concern chunks: id, chunk_count, received, known, recent, and at
// most max ranges of missing chunks, beginning with chunk from. Looks at four million chunks at
// most; status->known says how far it came.
void cn_spool_describe(const struct cn_spooled *upload, uint32_t from, uint32_t max,
                       struct cn_upload_status *status);

// Reads the complete frame of declared.size bytes into memory that the caller frees. Returns
// CN_EAGAIN while chunks are missing. If the digest is wrong, lent chunks count as missing again
// and CN_EAGAIN is returned; without lent chunks the result is CN_EDIGEST.
cn_err cn_spool_read(const struct cn_spool *spool, struct cn_spooled *upload, uint8_t **frame);

// Makes the frame durable. Takes the upload, also on an error. On CN_OK also drops the uploads of
// the group's other boards for the same round, because they cannot count any more.
cn_err cn_spool_keep(struct cn_spool *spool, struct cn_spooled *upload);
// Drops the upload, with the files of its saved parts.
void cn_spool_drop(struct cn_spool *spool, struct cn_spooled *upload);

// Saves parts whose unsaved chunks have waited for two seconds (spool_save.h). Drops uploads that
// advance less than 1/64 in expiry_ms, also complete ones that are not committed. Drops uploads of
// rounds before first or after last.
void cn_spool_expire(struct cn_spool *spool, uint32_t first, uint32_t last, uint64_t now_ms);
