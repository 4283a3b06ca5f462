/* gen_unicode DIR OUT.h - write the Unicode tables of src/text from the Unicode Character Database.
 *
 * Reads UnicodeData.txt, PropList.txt and DerivedNormalizationProps.txt in DIR. The tables are
 * two-stage: INDEX[c >> SHIFT] names a block, BLOCKS[block][c & MASK] holds the value; equal blocks
 * are stored once. Runs at build time only. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_CODES = 0x110000,
    BLOCK = 256,
    N_BLOCKS = N_CODES / BLOCK,
    MAX_PAIRS = 4096,
    MAX_POOL = 65536,
    MAX_FULL = 18, /* the standard promises at most 4 for canonical decompositions */
    HANGUL_FIRST = 0xac00,
    HANGUL_LAST = 0xd7a3,
};

/* Bits of a character's class; the generated header repeats them for src/text/unicode.c. */
enum {
    LETTER = 1,
    MARK = 2,
    NUMBER = 4,
    SPACE = 8,
    NFC_CHECK = 16, /* NFC_Quick_Check is No or Maybe */
    NON_STARTER = 32,
};

struct pair {
    uint32_t first, second, result;
};

struct database {
    uint8_t class[N_CODES], ccc[N_CODES];
    bool excluded[N_CODES];             /* Full_Composition_Exclusion */
    uint32_t decomposition[N_CODES][2]; /* canonical, one step; second is 0 for a singleton */
    uint32_t full_at[N_CODES];          /* index into pool, 0: none */
    uint32_t pool[MAX_POOL];            /* runs of {length, code points...} */
    size_t pool_len;
    struct pair pairs[MAX_PAIRS];
    size_t n_pairs;
    char version[32];
};

static FILE *open_in(const char *dir, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = n < (int)sizeof path ? fopen(path, "r") : NULL;
    if (!file)
        fprintf(stderr, "gen_unicode: cannot open %s/%s (Debian package unicode-data)\n", dir,
                name);
    return file;
}

/* Closing notices a read error; fgets alone takes it for the end of the file. */
static bool close_in(FILE *file, const char *name)
{
    bool ok = !ferror(file);
    fclose(file);
    if (!ok)
        fprintf(stderr, "gen_unicode: read error in %s\n", name);
    return ok;
}

/* Split `line` at semicolons in place; returns the number of fields. */
static int split(char *line, char **fields, int max)
{
    int n = 0;
    line[strcspn(line, "\r\n")] = 0;
    while (n < max) {
        fields[n++] = line;
        line = strchr(line, ';');
        if (!line)
            break;
        *line++ = 0;
    }
    return n;
}

static uint8_t class_of_category(const char *category)
{
    switch (category[0]) {
    case 'L':
        return LETTER;
    case 'M':
        return MARK;
    case 'N':
        return NUMBER;
    default:
        return 0;
    }
}

/* Canonical decompositions are one or two code points without a <tag>. */
static bool read_decomposition(struct database *db, uint32_t code, const char *text)
{
    if (!*text || *text == '<')
        return true;
    char *end;
    db->decomposition[code][0] = (uint32_t)strtoul(text, &end, 16);
    if (*end == ' ')
        db->decomposition[code][1] = (uint32_t)strtoul(end + 1, &end, 16);
    return *end == 0 && db->decomposition[code][0] < N_CODES &&
           db->decomposition[code][1] < N_CODES;
}

static bool read_unicode_data(struct database *db, const char *dir)
{
    FILE *file = open_in(dir, "UnicodeData.txt");
    if (!file)
        return false;
    char line[1024];
    char *field[15];
    uint32_t range_first = 0;
    bool ok = true;
    size_t n_lines = 0;
    while (ok && fgets(line, sizeof line, file)) {
        ok = split(line, field, 15) == 15;
        uint32_t code = ok ? (uint32_t)strtoul(field[0], NULL, 16) : N_CODES;
        ok = ok && code < N_CODES && read_decomposition(db, code, field[5]);
        if (!ok)
            break;
        bool range = strstr(field[1], ", Last>") != NULL;
        for (uint32_t c = range ? range_first : code; c <= code; c++) {
            db->class[c] |= class_of_category(field[2]);
            db->ccc[c] = (uint8_t)atoi(field[3]);
        }
        range_first = code;
        n_lines++;
    }
    if (!ok || n_lines < 1000) {
        fprintf(stderr, "gen_unicode: UnicodeData.txt is damaged after line %zu\n", n_lines);
        ok = false;
    }
    return close_in(file, "UnicodeData.txt") && ok;
}

/* Call set(db, c) for every c that `name` (a file of "XXXX[..YYYY] ; property # ...") gives
 * `property`. A property without any character is an error. */
static bool read_property(struct database *db, const char *dir, const char *name,
                          const char *property, void (*set)(struct database *, uint32_t))
{
    FILE *file = open_in(dir, name);
    if (!file)
        return false;
    char line[1024];
    size_t n_found = 0;
    while (fgets(line, sizeof line, file)) {
        if (!strncmp(line, "# PropList-", 11))
            snprintf(db->version, sizeof db->version, "%.*s", (int)strcspn(line + 11, "t") - 1,
                     line + 11);
        char *end;
        unsigned long first = strtoul(line, &end, 16), last = first;
        if (end == line)
            continue;
        if (end[0] == '.' && end[1] == '.')
            last = strtoul(end + 2, &end, 16);
        end += strspn(end, " ;");
        size_t len = strlen(property);
        if (strncmp(end, property, len) || (end[len] != ' ' && end[len] != '#'))
            continue;
        for (unsigned long c = first; c <= last && c < N_CODES; c++, n_found++)
            set(db, (uint32_t)c);
    }
    if (n_found == 0)
        fprintf(stderr, "gen_unicode: no %s in %s\n", property, name);
    return close_in(file, name) && n_found > 0;
}

static void set_space(struct database *db, uint32_t c)
{
    db->class[c] |= SPACE;
}

static void set_excluded(struct database *db, uint32_t c)
{
    db->excluded[c] = true;
}

/* Full canonical decomposition of c, in the order of the mappings (which the standard keeps in
 * canonical order). Returns the number of code points. */
static size_t decompose(const struct database *db, uint32_t c, uint32_t *out, size_t len)
{
    if (len + 2 > MAX_FULL)
        return len;
    if (!db->decomposition[c][0]) {
        out[len] = c;
        return len + 1;
    }
    len = decompose(db, db->decomposition[c][0], out, len);
    if (db->decomposition[c][1])
        len = decompose(db, db->decomposition[c][1], out, len);
    return len;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->second < y->second ? -1 : x->second > y->second;
}

static bool derive(struct database *db)
{
    db->pool_len = 1; /* 0 means no decomposition */
    for (uint32_t c = 0; c < N_CODES; c++) {
        if (!db->decomposition[c][0])
            continue;
        if (db->pool_len + MAX_FULL + 1 > MAX_POOL || db->n_pairs == MAX_PAIRS) {
            fprintf(stderr, "gen_unicode: more decompositions than the tables can hold\n");
            return false;
        }
        db->full_at[c] = (uint32_t)db->pool_len;
        size_t n = decompose(db, c, db->pool + db->pool_len + 1, 0);
        db->pool[db->pool_len] = (uint32_t)n;
        db->pool_len += n + 1;
        if (db->excluded[c])
            continue;
        db->pairs[db->n_pairs++] =
            (struct pair){db->decomposition[c][0], db->decomposition[c][1], c};
    }
    qsort(db->pairs, db->n_pairs, sizeof *db->pairs, compare_pairs);
    for (uint32_t c = 0; c < N_CODES; c++)
        db->class[c] |=
            (uint8_t)((db->ccc[c] ? NON_STARTER : 0) | (db->excluded[c] ? NFC_CHECK : 0));
    for (size_t i = 0; i < db->n_pairs; i++)
        db->class[db->pairs[i].second] |= NFC_CHECK;
    for (uint32_t c = 0x1161; c <= 0x1175; c++) /* Hangul vowels and finals compose as well */
        db->class[c] |= NFC_CHECK;
    for (uint32_t c = 0x11a8; c <= 0x11c2; c++)
        db->class[c] |= NFC_CHECK;
    return true;
}

static void write_array(FILE *out, const char *type, const char *name, const uint32_t *v, size_t n)
{
    fprintf(out, "\nstatic const %s %s[%zu] = {", type, name, n);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%u,", i % 24 ? "" : "\n    ", (unsigned)v[i]);
    fprintf(out, "\n};\n");
}

/* Two-stage table of values [N_CODES]: NAME_index [N_BLOCKS] and NAME_blocks [n * BLOCK]. */
static bool write_two_stage(FILE *out, const char *type, const char *name, const uint32_t *values)
{
    uint32_t *blocks = malloc(sizeof *blocks * N_CODES);
    uint32_t index[N_BLOCKS];
    size_t n = 0;
    if (!blocks) {
        fprintf(stderr, "gen_unicode: not enough memory\n");
        return false;
    }
    for (size_t b = 0; b < N_BLOCKS; b++) {
        const uint32_t *block = values + b * BLOCK;
        size_t i = 0;
        while (i < n && memcmp(blocks + i * BLOCK, block, sizeof *block * BLOCK) != 0)
            i++;
        if (i == n)
            memcpy(blocks + n++ * BLOCK, block, sizeof *block * BLOCK);
        index[b] = (uint32_t)i;
    }
    char full[64];
    snprintf(full, sizeof full, "%s_index", name);
    if (n <= 256) {
        write_array(out, "uint8_t", full, index, N_BLOCKS);
        snprintf(full, sizeof full, "%s_blocks", name);
        write_array(out, type, full, blocks, n * BLOCK);
    } else {
        fprintf(stderr, "gen_unicode: %s needs more than 256 blocks\n", name);
    }
    free(blocks);
    return n <= 256;
}

static bool write_tables(FILE *out, const struct database *db)
{
    fprintf(
        out,
        "/* Generated by gen_unicode from the Unicode Character Database; do not edit. */\n"
        "#define OB_UNICODE_VERSION \"%s\"\n"
        "enum { UNICODE_LETTER = %d, UNICODE_MARK = %d, UNICODE_NUMBER = %d, UNICODE_SPACE = %d,\n"
        "       UNICODE_NFC_CHECK = %d, UNICODE_NON_STARTER = %d, UNICODE_BLOCK = %d };\n",
        db->version, LETTER, MARK, NUMBER, SPACE, NFC_CHECK, NON_STARTER, BLOCK);
    uint32_t *wide = malloc(sizeof *wide * N_CODES);
    if (!wide) {
        fprintf(stderr, "gen_unicode: not enough memory\n");
        return false;
    }
    for (size_t c = 0; c < N_CODES; c++)
        wide[c] = db->class[c];
    bool ok = write_two_stage(out, "uint8_t", "unicode_class", wide);
    for (size_t c = 0; c < N_CODES; c++)
        wide[c] = db->ccc[c];
    ok = ok && write_two_stage(out, "uint8_t", "unicode_ccc", wide) &&
         write_two_stage(out, "uint16_t", "unicode_full", db->full_at);
    free(wide);
    write_array(out, "uint32_t", "unicode_pool", db->pool, db->pool_len);
    fprintf(out,
            "\n/* Sorted by first, then second. */\n"
            "static const struct { uint32_t first, second, result; } unicode_pairs[%zu] = {\n",
            db->n_pairs);
    for (size_t i = 0; i < db->n_pairs; i++)
        fprintf(out, "    {0x%x, 0x%x, 0x%x},\n", (unsigned)db->pairs[i].first,
                (unsigned)db->pairs[i].second, (unsigned)db->pairs[i].result);
    fprintf(out, "};\n");
    return ok && !ferror(out);
}

static bool write_file(const struct database *db, const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out) {
        fprintf(stderr, "gen_unicode: cannot write %s\n", path);
        return false;
    }
    bool ok = write_tables(out, db);
    ok = fclose(out) == 0 && ok;
    if (!ok) {
        fprintf(stderr, "gen_unicode: writing %s failed\n", path);
        remove(path); /* half a table must not satisfy the build */
    }
    return ok;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: gen_unicode DIR OUT.h\n");
        return 2;
    }
    struct database *db = calloc(1, sizeof *db);
    if (!db) {
        fprintf(stderr, "gen_unicode: not enough memory\n");
        return 1;
    }
    bool ok = read_unicode_data(db, argv[1]) &&
              read_property(db, argv[1], "PropList.txt", "White_Space", set_space) &&
              read_property(db, argv[1], "DerivedNormalizationProps.txt",
                            "Full_Composition_Exclusion", set_excluded) &&
              derive(db) && write_file(db, argv[2]);
    free(db);
    return ok ? 0 : 1;
}
