/* Byte-pair merging: from the bytes of one word to token ids.
 *
 * A merge is keyed by the pair of ids it joins; its result is the token spelled by both together.
 * The merge of the lowest rank (its index in the list) that applies goes first, of equal ones the
 * leftmost, until none applies. */
#ifndef OB_TEXT_BPE_H
#define OB_TEXT_BPE_H

#include "text/tokenizer.h"

struct ob_bpe_merge {
    uint64_t pair; /* left id << 32 | right id; OB_BPE_EMPTY: free slot */
    uint32_t rank;
    int32_t result;
};

#define OB_BPE_EMPTY UINT64_MAX

/* Immutable after ob_bpe_init. */
struct ob_bpe {
    int32_t byte_ids[256];
    struct ob_bpe_merge *merges; /* open addressing, [mask + 1], a power of two */
    size_t mask;
};

/* Working memory for long words, reused over calls. {0} is empty; see ob_bpe_scratch_free. */
struct ob_bpe_scratch {
    struct ob_bpe_symbol *symbols;
    uint64_t *heap; /* rank << 32 | index of the left symbol, smallest first */
    size_t symbols_capacity, heap_capacity, n_heap;
};

/* Tokens are looked up among the NORMAL ones; where a spelling has none, an added token of
 * printable ASCII does. Of equal NORMAL tokens the first counts; of merges with equal parts the
 * last one, as in HF `tokenizers`. OB_BAD_FILE or OB_NO_MEMORY; release with ob_bpe_free, also
 * after failure. */
ob_status ob_bpe_init(struct ob_bpe *bpe, const struct ob_vocab *vocab, struct ob_error *err);
void ob_bpe_free(struct ob_bpe *bpe);

/* Append the ids of word [n >= 1] to `ids`. Words of up to 32 bytes need no scratch memory; a
 * longer one needs 36 bytes for each of its own and time O(n log n). False when there is no
 * memory, or when the word has 2^31 bytes; `ids` then has the length it had. */
bool ob_bpe_word(const struct ob_bpe *bpe, struct ob_bpe_scratch *scratch, const char *word,
                 size_t n, struct ob_ids *ids);
void ob_bpe_scratch_free(struct ob_bpe_scratch *scratch);

#endif
