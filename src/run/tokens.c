/* The text functions of the public header. */
#include <stdlib.h>

#include "run/model.h"
#include "text/utf8.h"

ob_status ob_tokenize(const struct ob_model *model, const char *text, size_t n_bytes, int flags,
                      int32_t *ids, size_t capacity, size_t *n_ids, struct ob_error *err)
{
    struct ob_ids list = {0};
    bool special = (flags & OB_TOKENIZE_SPECIAL) != 0;
    ob_status status = ob_tokenizer_encode(model->tokenizer, text, n_bytes, special, &list, err);
    if (status == OB_OK) {
        *n_ids = list.len;
        if (list.len > capacity)
            status = ob_fail(err, OB_NEED_MORE, "%zu ids do not fit in room for %zu", list.len,
                             capacity);
        else if (list.len > 0)
            memcpy(ids, list.data, list.len * sizeof *ids);
    }
    free(list.data);
    return status;
}

const char *ob_token_bytes(const struct ob_model *model, int32_t id, size_t *n_bytes)
{
    struct ob_str bytes = ob_tokenizer_bytes(model->tokenizer, id);
    *n_bytes = bytes.len;
    return bytes.ptr ? bytes.ptr : "";
}

size_t ob_utf8_stream_token(struct ob_utf8_stream *stream, const struct ob_model *model, int32_t id,
                            char *out, size_t capacity)
{
    struct ob_str bytes = ob_tokenizer_bytes(model->tokenizer, id);
    return ob_utf8_stream_bytes(stream, bytes.ptr, bytes.len, out, capacity);
}
