/* Which keys a file may have: the first half of ob_config_read. */
#ifndef OB_FILE_CONFIG_KEYS_H
#define OB_FILE_CONFIG_KEYS_H

#include "file/config.h"

/* What a key outside the reader's own list must be for the engine to be right about ignoring it. */
enum ob_key_rule {
    OB_KEY_READ,     /* understood and read elsewhere */
    OB_KEY_HARMLESS, /* describes; no arithmetic depends on it */
    OB_KEY_EQUALS,   /* accepted with one value only: what this engine does anyway */
};

struct ob_key_row {
    const char *name;
    enum ob_key_rule rule;
    double value; /* for OB_KEY_EQUALS; bools are 0 and 1 */
};

/* Check a key against a row; only OB_KEY_EQUALS can fail (OB_UNSUPPORTED, or OB_BAD_FILE for a
 * type without a value to compare). */
ob_status ob_key_check(const struct ob_gguf *gguf, const struct ob_gguf_key *key,
                       const struct ob_key_row *row, struct ob_error *err);

/* Go through all keys of the file: every namespace and every key under the architecture's prefix
 * must be known. */
ob_status ob_config_check_keys(const struct ob_gguf *gguf, enum ob_arch arch, const char *arch_name,
                               struct ob_error *err);

#endif
