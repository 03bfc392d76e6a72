#include "boards/flash/image/partition.h"

#include <string.h>

#define SECTOR 512
#define ENTRY_MIN 128

// CRC-32 of IEEE 802.3, as GPT uses it.
static uint32_t crc32(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static bool is_zero(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i])
            return false;
    return true;
}

static cn_err add(struct cn_partition_table *table, uint32_t number, uint64_t first,
                  uint64_t sectors, uint64_t disk_size)
{
    struct cn_partition *partition = &table->partitions[table->count];

    if (sectors == 0)
        return CN_EFORMAT;
    if (first > disk_size / SECTOR || sectors > disk_size / SECTOR - first)
        return CN_ERANGE;
    *partition =
        (struct cn_partition){.number = number, .offset = first * SECTOR, .size = sectors * SECTOR};
    table->count++;
    return CN_OK;
}

// Converts the UTF-16 name of a GPT entry to ASCII.
static void read_name(const uint8_t *from, char name[37])
{
    for (size_t i = 0; i < 36; i++) {
        uint16_t unit = cn_get_u16(from + 2 * i);

        name[i] = (char)(unit == 0 ? 0 : unit < 32 || unit > 126 ? '?' : unit);
        if (unit == 0)
            break;
    }
    name[36] = '\0';
}

static cn_err read_gpt(const uint8_t *head, size_t size, uint64_t disk_size,
                       struct cn_partition_table *table)
{
    uint8_t header[SECTOR];
    uint32_t length, count, entry_size;
    uint64_t entries;

    memcpy(header, head + SECTOR, SECTOR);
    length = cn_get_u32(header + 12);
    entries = cn_get_u64(header + 72);
    count = cn_get_u32(header + 80);
    entry_size = cn_get_u32(header + 84);
    if (length < 92 || length > SECTOR)
        return CN_EFORMAT;
    memset(header + 16, 0, 4); // the header's checksum field counts as zero
    if (crc32(header, length) != cn_get_u32(head + SECTOR + 16))
        return CN_EFORMAT;
    if (count == 0 || count > CN_PARTITION_MAX || entry_size < ENTRY_MIN || entry_size > 4096 ||
        entries < 2 || entries > size / SECTOR ||
        (uint64_t)count * entry_size > size - entries * SECTOR)
        return CN_EFORMAT;
    if (crc32(head + entries * SECTOR, (size_t)count * entry_size) != cn_get_u32(header + 88))
        return CN_EFORMAT;
    table->gpt = true;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *entry = head + entries * SECTOR + (size_t)i * entry_size;
        uint64_t first = cn_get_u64(entry + 32), last = cn_get_u64(entry + 40);
        cn_err err;

        if (is_zero(entry, 16))
            continue;
        if (last < first || last == UINT64_MAX)
            return CN_EFORMAT;
        err = add(table, i + 1, first, last - first + 1, disk_size);
        if (err)
            return err;
        read_name(entry + 56, table->partitions[table->count - 1].name);
    }
    return CN_OK;
}

cn_err cn_partition_read(const uint8_t *head, size_t size, uint64_t disk_size,
                         struct cn_partition_table *table)
{
    memset(table, 0, sizeof(*table));
    if (size < (size_t)2 * SECTOR || head[510] != 0x55 || head[511] != 0xaa ||
        cn_partition_is_fat(head))
        return CN_ENOTFOUND;
    if (memcmp(head + SECTOR, "EFI PART", 8) == 0)
        return read_gpt(head, size, disk_size, table);
    for (uint32_t i = 0; i < 4; i++) {
        const uint8_t *entry = head + 446 + (size_t)16 * i;
        cn_err err;

        if (entry[4] == 0) // an empty entry
            continue;
        // A protective entry without its GPT, or not an MBR.
        if (entry[4] == 0xee || (entry[0] & 0x7f) != 0)
            return CN_EFORMAT;
        err = add(table, i + 1, cn_get_u32(entry + 8), cn_get_u32(entry + 12), disk_size);
        if (err)
            return err;
    }
    return table->count ? CN_OK : CN_ENOTFOUND;
}

cn_err cn_partition_superblock(const uint8_t block[2048], struct cn_superblock *superblock)
{
    const uint8_t *at = block + 1024;
    uint32_t incompatible = cn_get_u32(at + 0x60), log_size = cn_get_u32(at + 0x18);
    uint64_t blocks = cn_get_u32(at + 4), available = cn_get_u32(at + 12);

    memset(superblock, 0, sizeof(*superblock));
    if (cn_get_u16(at + 0x38) != 0xef53)
        return CN_ENOTFOUND;
    if (log_size > 6) // block sizes above 64 KiB do not exist
        return CN_EFORMAT;
    if (incompatible & 0x80) { // feature flag "64bit"
        blocks |= (uint64_t)cn_get_u32(at + 0x150) << 32;
        available |= (uint64_t)cn_get_u32(at + 0x158) << 32;
    }
    if (blocks > UINT64_MAX >> 16 || available > blocks)
        return CN_EFORMAT;
    superblock->size = blocks << (10 + log_size);
    superblock->free_size = available << (10 + log_size);
    superblock->block_size = 1024u << log_size;
    superblock->clean = cn_get_u16(at + 0x3a) & 1;
    superblock->needs_recovery = incompatible & 4;
    memcpy(superblock->label, at + 0x78, 16);
    return CN_OK;
}

bool cn_partition_is_fat(const uint8_t block[512])
{
    return block[510] == 0x55 && block[511] == 0xaa &&
           (memcmp(block + 54, "FAT1", 4) == 0 || memcmp(block + 82, "FAT32 ", 6) == 0);
}
