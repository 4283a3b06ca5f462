#include "text/bpe.h"

#include "base/memory.h"
#include "text/byte_level.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_WORD = 32 };
static const uint32_t NONE = UINT32_MAX;

/* A token of the word being merged, in a doubly linked list over an array. */
struct ob_bpe_symbol {
    int32_t id;
    uint32_t previous, next; /* NONE at the ends */
    uint32_t rank;           /* of the merge with the next symbol; NONE if there is none */
    int32_t result;          /* of that merge */
};

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t slot_of(uint64_t pair, size_t mask)
{
    return (size_t)(pair * 0x9e3779b97f4a7c15u >> 32) & mask;
}

/* The merge of a pair; NULL if there is none. */
static const struct ob_bpe_merge *find_merge(const struct ob_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t pair = pair_of(left, right);
    for (size_t slot = slot_of(pair, bpe->mask);; slot = (slot + 1) & bpe->mask) {
        const struct ob_bpe_merge *merge = &bpe->merges[slot];
        if (merge->pair == pair)
            return merge;
        if (merge->pair == OB_BPE_EMPTY)
            return NULL;
    }
}

/* ---------------------------------------------------------------------------------- building */

/* Spelling -> id while the merges are read: open addressing with the hash beside the id. */
struct spelling {
    uint32_t hash;
    int32_t id; /* -1: free slot */
};

struct spellings {
    const struct ob_str *tokens;
    struct spelling *slots;
    size_t mask;
};

/* FNV-1a, which takes a string in parts. */
static const uint64_t HASH_START = 0xcbf29ce484222325u;

static uint64_t hash_more(uint64_t hash, struct ob_str part)
{
    for (size_t i = 0; i < part.len; i++)
        hash = (hash ^ (unsigned char)part.ptr[i]) * 0x100000001b3u;
    return hash;
}

static bool equals_both(struct ob_str token, struct ob_str a, struct ob_str b)
{
    return token.len == a.len + b.len && (a.len == 0 || !memcmp(token.ptr, a.ptr, a.len)) &&
           (b.len == 0 || !memcmp(token.ptr + a.len, b.ptr, b.len));
}

/* The slot of the token spelled a then b: its own, or the free one where it belongs. */
static struct spelling *find_slot(const struct spellings *map, struct ob_str a, struct ob_str b)
{
    uint64_t wide = hash_more(hash_more(HASH_START, a), b);
    uint32_t hash = (uint32_t)(wide ^ wide >> 32);
    size_t at = hash & map->mask;
    while (map->slots[at].id >= 0 &&
           (map->slots[at].hash != hash || !equals_both(map->tokens[map->slots[at].id], a, b)))
        at = (at + 1) & map->mask;
    if (map->slots[at].id < 0)
        map->slots[at].hash = hash;
    return &map->slots[at];
}

static int32_t find_spelling(const struct spellings *map, struct ob_str a, struct ob_str b)
{
    return find_slot(map, a, b)->id;
}

/* An added token is written as plain text: its spelling only if every byte spells itself. */
static bool spells_itself(struct ob_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < 33 || text.ptr[i] > 126)
            return false;
    return true;
}

static void add_spellings(struct spellings *map, const struct ob_vocab *vocab, bool added)
{
    const struct ob_str nothing = {NULL, 0};
    for (size_t i = 0; i < vocab->n_tokens; i++) {
        int32_t type = vocab->types[i];
        bool wanted = added ? (type == OB_TOKEN_CONTROL || type == OB_TOKEN_USER_DEFINED) &&
                                  spells_itself(vocab->tokens[i])
                            : type == OB_TOKEN_NORMAL;
        if (!wanted || vocab->tokens[i].len == 0)
            continue;
        struct spelling *slot = find_slot(map, vocab->tokens[i], nothing);
        if (slot->id < 0)
            slot->id = (int32_t)i;
    }
}

/* A power of two with room for n entries at half load; 0 when that is too much. */
static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size / 2 < n) {
        if (size > SIZE_MAX / 2)
            return 0;
        size *= 2;
    }
    return size;
}

static ob_status read_spellings(struct spellings *map, const struct ob_vocab *vocab,
                                struct ob_error *err)
{
    size_t size = table_size(vocab->n_tokens);
    map->tokens = vocab->tokens;
    map->slots = size ? ob_calloc(size, sizeof *map->slots) : NULL;
    if (!map->slots)
        return ob_fail_memory(err, size * sizeof *map->slots, "the vocabulary");
    map->mask = size - 1;
    for (size_t i = 0; i < size; i++)
        map->slots[i].id = -1;
    add_spellings(map, vocab, false);
    add_spellings(map, vocab, true);
    return OB_OK;
}

/* "left right" -> both; false without a space between two texts. */
static bool split_merge(struct ob_str merge, struct ob_str *left, struct ob_str *right)
{
    const char *space = merge.len ? memchr(merge.ptr, ' ', merge.len) : NULL;
    if (!space)
        return false;
    *left = (struct ob_str){merge.ptr, (size_t)(space - merge.ptr)};
    *right = (struct ob_str){space + 1, merge.len - left->len - 1};
    return left->len > 0 && right->len > 0;
}

static ob_status fail_merge(struct ob_error *err, size_t index, struct ob_str merge,
                            const char *why)
{
    return ob_fail(err, OB_BAD_FILE, "merge %zu, '%.*s', %s", index, OB_STR_ARG(merge), why);
}

static ob_status read_merge(struct ob_bpe *bpe, const struct spellings *map,
                            const struct ob_vocab *vocab, size_t index, struct ob_error *err)
{
    const struct ob_str nothing = {NULL, 0};
    struct ob_str merge = vocab->merges[index], left, right;
    if (!split_merge(merge, &left, &right))
        return fail_merge(err, index, merge, "is not two parts with a space between");
    int32_t left_id = find_spelling(map, left, nothing);
    int32_t right_id = find_spelling(map, right, nothing);
    int32_t result = find_spelling(map, left, right);
    if (left_id < 0 || right_id < 0)
        return fail_merge(err, index, merge, "has a part that is not in the vocabulary");
    if (result < 0)
        return fail_merge(err, index, merge, "makes a token that is not in the vocabulary");
    uint64_t pair = pair_of(left_id, right_id);
    size_t slot = slot_of(pair, bpe->mask);
    while (bpe->merges[slot].pair != OB_BPE_EMPTY && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & bpe->mask;
    bpe->merges[slot] = (struct ob_bpe_merge){pair, (uint32_t)index, result};
    return OB_OK;
}

static ob_status read_merges(struct ob_bpe *bpe, const struct spellings *map,
                             const struct ob_vocab *vocab, struct ob_error *err)
{
    size_t size = vocab->n_merges < NONE ? table_size(vocab->n_merges) : 0;
    bpe->merges = size ? ob_calloc(size, sizeof *bpe->merges) : NULL;
    if (!bpe->merges)
        return ob_fail_memory(err, size * sizeof *bpe->merges, "the merges");
    bpe->mask = size - 1;
    for (size_t i = 0; i < size; i++)
        bpe->merges[i].pair = OB_BPE_EMPTY;
    for (size_t i = 0; i < vocab->n_merges; i++)
        OB_TRY(read_merge(bpe, map, vocab, i, err));
    return OB_OK;
}

static ob_status read_bytes(struct ob_bpe *bpe, const struct spellings *map, struct ob_error *err)
{
    const struct ob_str nothing = {NULL, 0};
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[2];
        struct ob_str spelled = {text, ob_byte_level_spell((unsigned char)byte, text)};
        bpe->byte_ids[byte] = find_spelling(map, spelled, nothing);
        if (bpe->byte_ids[byte] < 0)
            return ob_fail(err, OB_BAD_FILE, "no token of the vocabulary is byte 0x%02x, '%.*s'",
                           byte, OB_STR_ARG(spelled));
    }
    return OB_OK;
}

ob_status ob_bpe_init(struct ob_bpe *bpe, const struct ob_vocab *vocab, struct ob_error *err)
{
    *bpe = (struct ob_bpe){0};
    struct spellings map = {0};
    ob_status status = read_spellings(&map, vocab, err);
    if (status == OB_OK)
        status = read_bytes(bpe, &map, err);
    if (status == OB_OK)
        status = read_merges(bpe, &map, vocab, err);
    free(map.slots);
    return status;
}

void ob_bpe_free(struct ob_bpe *bpe)
{
    free(bpe->merges);
    *bpe = (struct ob_bpe){0};
}

/* ----------------------------------------------------------------------------------- merging */

/* Short words: look at all pairs every time; nothing beats a scan of a few cache lines. */
static size_t merge_short(const struct ob_bpe *bpe, const char *word, size_t n, int32_t *ids)
{
    const struct ob_bpe_merge *merge[SHORT_WORD];
    for (size_t i = 0; i < n; i++)
        ids[i] = bpe->byte_ids[(unsigned char)word[i]];
    for (size_t i = 0; i + 1 < n; i++)
        merge[i] = find_merge(bpe, ids[i], ids[i + 1]);
    for (;;) {
        size_t best = n;
        uint32_t best_rank = NONE;
        for (size_t i = 0; i + 1 < n; i++) {
            if (merge[i] && merge[i]->rank < best_rank) {
                best = i;
                best_rank = merge[i]->rank;
            }
        }
        if (best == n)
            return n;
        ids[best] = merge[best]->result;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            merge[i - 1] = merge[i];
        }
        if (best > 0)
            merge[best - 1] = find_merge(bpe, ids[best - 1], ids[best]);
        if (best + 1 < n)
            merge[best] = find_merge(bpe, ids[best], ids[best + 1]);
    }
}

static void sift_down(uint64_t *heap, size_t n, size_t at)
{
    uint64_t item = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= item)
            break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

static void push(struct ob_bpe_scratch *scratch, uint64_t item)
{
    size_t at = scratch->n_heap++;
    while (at > 0 && scratch->heap[(at - 1) / 2] > item) {
        scratch->heap[at] = scratch->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    scratch->heap[at] = item;
}

static uint64_t pop(struct ob_bpe_scratch *scratch)
{
    uint64_t top = scratch->heap[0];
    scratch->heap[0] = scratch->heap[--scratch->n_heap];
    if (scratch->n_heap > 0)
        sift_down(scratch->heap, scratch->n_heap, 0);
    return top;
}

/* Look up the merge of symbol `at` with its next one. */
static void rank_symbol(const struct ob_bpe *bpe, struct ob_bpe_symbol *symbols, uint32_t at)
{
    struct ob_bpe_symbol *symbol = &symbols[at];
    const struct ob_bpe_merge *merge =
        symbol->next == NONE ? NULL : find_merge(bpe, symbol->id, symbols[symbol->next].id);
    symbol->rank = merge ? merge->rank : NONE;
    symbol->result = merge ? merge->result : -1;
}

static void rank_and_push(const struct ob_bpe *bpe, struct ob_bpe_scratch *scratch, uint32_t at)
{
    rank_symbol(bpe, scratch->symbols, at);
    if (scratch->symbols[at].rank != NONE)
        push(scratch, (uint64_t)scratch->symbols[at].rank << 32 | at);
}

/* The heap never outgrows 2n: it starts with less than n pairs, and each of the less than n merges
 * takes one and adds at most two. */
static bool reserve(struct ob_bpe_scratch *scratch, size_t n)
{
    void *items = scratch->symbols;
    if (!ob_grow(&items, &scratch->symbols_capacity, n, sizeof *scratch->symbols))
        return false;
    scratch->symbols = items;
    items = scratch->heap;
    if (!ob_grow(&items, &scratch->heap_capacity, 2 * n, sizeof *scratch->heap))
        return false;
    scratch->heap = items;
    return true;
}

static void start_long(const struct ob_bpe *bpe, struct ob_bpe_scratch *scratch, const char *word,
                       uint32_t n)
{
    struct ob_bpe_symbol *symbols = scratch->symbols;
    for (uint32_t i = 0; i < n; i++)
        symbols[i] = (struct ob_bpe_symbol){bpe->byte_ids[(unsigned char)word[i]], i ? i - 1 : NONE,
                                            i + 1 < n ? i + 1 : NONE, NONE, -1};
    scratch->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        rank_symbol(bpe, symbols, i);
        if (symbols[i].rank != NONE)
            scratch->heap[scratch->n_heap++] = (uint64_t)symbols[i].rank << 32 | i;
    }
    for (size_t i = scratch->n_heap / 2; i-- > 0;)
        sift_down(scratch->heap, scratch->n_heap, i);
}

/* Long words: a heap of candidate merges. Entries are not removed when a neighbour changes; one
 * whose rank is no longer that of its symbol is stale and skipped. */
static void merge_long(const struct ob_bpe *bpe, struct ob_bpe_scratch *scratch)
{
    struct ob_bpe_symbol *symbols = scratch->symbols;
    while (scratch->n_heap > 0) {
        uint64_t top = pop(scratch);
        uint32_t at = (uint32_t)top;
        struct ob_bpe_symbol *left = &symbols[at];
        if (left->rank != top >> 32)
            continue;
        struct ob_bpe_symbol *right = &symbols[left->next];
        left->id = left->result;
        left->next = right->next;
        right->rank = NONE; /* gone: its entries are stale */
        if (left->next != NONE)
            symbols[left->next].previous = at;
        rank_and_push(bpe, scratch, at);
        if (left->previous != NONE)
            rank_and_push(bpe, scratch, left->previous);
    }
}

bool ob_bpe_word(const struct ob_bpe *bpe, struct ob_bpe_scratch *scratch, const char *word,
                 size_t n, struct ob_ids *ids)
{
    if (n <= SHORT_WORD) {
        int32_t merged[SHORT_WORD];
        return ob_ids_append(ids, merged, merge_short(bpe, word, n, merged));
    }
    if (n > INT32_MAX || !reserve(scratch, n))
        return false;
    start_long(bpe, scratch, word, (uint32_t)n);
    merge_long(bpe, scratch);
    size_t len = ids->len;
    for (uint32_t at = 0; at != NONE; at = scratch->symbols[at].next) {
        if (!ob_ids_append(ids, &scratch->symbols[at].id, 1)) {
            ids->len = len;
            return false;
        }
    }
    return true;
}

void ob_bpe_scratch_free(struct ob_bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (struct ob_bpe_scratch){0};
}
