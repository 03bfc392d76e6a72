#include "runtime/port/store.h"

#include <string.h>

cn_err cn_store_replace(struct cn_store *store, const char *name, const void *data, size_t size)
{
    struct cn_store_file *file;
    cn_err err;

    err = store->ops->create(store, name, &file);
    if (err)
        return err;
    err = store->ops->write(file, 0, data, size);
    if (err) {
        store->ops->abort(file);
        return err;
    }
    return store->ops->commit(file);
}

cn_err cn_store_writer_begin(struct cn_store *store, const char *name,
                             struct cn_store_writer *writer)
{
    writer->store = store;
    writer->offset = 0;
    writer->waiting = 0;
    return store->ops->create(store, name, &writer->file);
}

static cn_err flush(struct cn_store_writer *writer)
{
    cn_err err =
        writer->store->ops->write(writer->file, writer->offset, writer->bytes, writer->waiting);

    writer->offset += writer->waiting;
    writer->waiting = 0;
    return err;
}

cn_err cn_store_writer_put(struct cn_store_writer *writer, const void *piece, size_t size)
{
    cn_err err = CN_OK;

    if (size > sizeof(writer->bytes) - writer->waiting)
        err = flush(writer);
    if (err || !size)
        return err;
    if (size <= sizeof(writer->bytes)) {
        memcpy(writer->bytes + writer->waiting, piece, size);
        writer->waiting += size;
        return CN_OK;
    }
    err = writer->store->ops->write(writer->file, writer->offset, piece, size);
    writer->offset += size;
    return err;
}

cn_err cn_store_writer_end(struct cn_store_writer *writer, cn_err err)
{
    if (!err)
        err = flush(writer);
    if (!err)
        return writer->store->ops->commit(writer->file);
    writer->store->ops->abort(writer->file);
    return err;
}
