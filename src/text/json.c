#include "text/json.h"

#include "text/utf8.h"

enum state {
    VALUE, /* expected: a value */
    FIRST_ITEM,
    FIRST_KEY,
    KEY,
    COLON,
    COMMA, /* or the closing bracket */
    STRING,
    ESCAPE,
    HEX,
    LITERAL,
    MINUS,
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
    END,
};

static enum ob_json_step go(struct ob_json_scan *scan, enum state state)
{
    scan->state = (uint8_t)state;
    return OB_JSON_MORE;
}

static enum ob_json_step value_ended(struct ob_json_scan *scan)
{
    if (scan->depth > 0)
        return go(scan, COMMA);
    scan->state = END;
    return OB_JSON_END;
}

static bool in_object(const struct ob_json_scan *scan)
{
    size_t level = scan->depth - 1;
    return scan->objects[level / 8] >> level % 8 & 1;
}

static enum ob_json_step open_container(struct ob_json_scan *scan, bool object)
{
    size_t level = scan->depth;
    if (level == OB_JSON_MAX_DEPTH)
        return OB_JSON_BAD;
    unsigned bit = 1u << level % 8, bits = scan->objects[level / 8];
    scan->objects[level / 8] = (uint8_t)(object ? bits | bit : bits & ~bit);
    scan->depth++;
    return go(scan, object ? FIRST_KEY : FIRST_ITEM);
}

static enum ob_json_step close_container(struct ob_json_scan *scan)
{
    scan->depth--;
    return value_ended(scan);
}

static enum ob_json_step begin_literal(struct ob_json_scan *scan, const char *rest)
{
    scan->literal = rest;
    return go(scan, LITERAL);
}

static enum ob_json_step begin_value(struct ob_json_scan *scan, char byte)
{
    switch (byte) {
    case '{':
        return open_container(scan, true);
    case '[':
        return open_container(scan, false);
    case '"':
        scan->in_key = false;
        return go(scan, STRING);
    case 't':
        return begin_literal(scan, "rue");
    case 'f':
        return begin_literal(scan, "alse");
    case 'n':
        return begin_literal(scan, "ull");
    case '-':
        return go(scan, MINUS);
    case '0':
        return go(scan, ZERO);
    default:
        return byte >= '1' && byte <= '9' ? go(scan, INTEGER) : OB_JSON_BAD;
    }
}

static enum ob_json_step begin_key(struct ob_json_scan *scan, char byte)
{
    scan->in_key = true;
    return byte == '"' ? go(scan, STRING) : OB_JSON_BAD;
}

static enum ob_json_step scan_string(struct ob_json_scan *scan, char byte)
{
    if (byte == '\\')
        return go(scan, ESCAPE);
    if (byte != '"')
        return OB_JSON_MORE;
    return scan->in_key ? go(scan, COLON) : value_ended(scan);
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool is_hex(char byte)
{
    return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

static enum ob_json_step scan_escape(struct ob_json_scan *scan, char byte)
{
    if (scan->state == HEX) {
        if (!is_hex(byte))
            return OB_JSON_BAD;
        return --scan->hex_digits == 0 ? go(scan, STRING) : OB_JSON_MORE;
    }
    if (byte == 'u') {
        scan->hex_digits = 4;
        return go(scan, HEX);
    }
    return byte && strchr("\"\\/bfnrt", byte) ? go(scan, STRING) : OB_JSON_BAD;
}

static enum ob_json_step scan_literal(struct ob_json_scan *scan, char byte)
{
    if (byte != *scan->literal)
        return OB_JSON_BAD;
    return *++scan->literal ? OB_JSON_MORE : value_ended(scan);
}

static bool number_is_whole(const struct ob_json_scan *scan)
{
    return scan->state == ZERO || scan->state == INTEGER || scan->state == FRACTION ||
           scan->state == EXPONENT_DIGITS;
}

/* The state that `byte` leads a number to; END where it does not belong to it. */
static enum state number_state(const struct ob_json_scan *scan, char byte)
{
    bool digit = is_digit(byte), e = byte == 'e' || byte == 'E';
    switch (scan->state) {
    case MINUS:
        return byte == '0' ? ZERO : digit ? INTEGER : END;
    case ZERO:
        return byte == '.' ? POINT : e ? EXPONENT : END;
    case INTEGER:
        return digit ? INTEGER : byte == '.' ? POINT : e ? EXPONENT : END;
    case POINT:
        return digit ? FRACTION : END;
    case FRACTION:
        return digit ? FRACTION : e ? EXPONENT : END;
    case EXPONENT:
        return digit ? EXPONENT_DIGITS : byte == '+' || byte == '-' ? EXPONENT_SIGN : END;
    default:
        return digit ? EXPONENT_DIGITS : END;
    }
}

/* A number has no end of its own: what follows it in a container is read again as that. */
static enum ob_json_step scan_number(struct ob_json_scan *scan, char byte)
{
    enum state next = number_state(scan, byte);
    if (next != END)
        return go(scan, next);
    if (!number_is_whole(scan) || scan->depth == 0)
        return OB_JSON_BAD;
    uint8_t before = scan->state;
    scan->state = COMMA;
    enum ob_json_step step = ob_json_scan_byte(scan, byte);
    if (step == OB_JSON_BAD)
        scan->state = before;
    return step;
}

static enum ob_json_step scan_comma(struct ob_json_scan *scan, char byte)
{
    bool object = in_object(scan);
    if (byte == ',')
        return go(scan, object ? KEY : VALUE);
    return byte == (object ? '}' : ']') ? close_container(scan) : OB_JSON_BAD;
}

enum ob_json_step ob_json_scan_byte(struct ob_json_scan *scan, char byte)
{
    bool between = scan->state <= COMMA && scan->depth > 0;
    if (between && ob_json_is_space(byte))
        return OB_JSON_MORE;
    switch (scan->state) {
    case VALUE:
        return begin_value(scan, byte);
    case FIRST_ITEM:
        return byte == ']' ? close_container(scan) : begin_value(scan, byte);
    case FIRST_KEY:
        return byte == '}' ? close_container(scan) : begin_key(scan, byte);
    case KEY:
        return begin_key(scan, byte);
    case COLON:
        return byte == ':' ? go(scan, VALUE) : OB_JSON_BAD;
    case COMMA:
        return scan_comma(scan, byte);
    case STRING:
        return scan_string(scan, byte);
    case ESCAPE:
    case HEX:
        return scan_escape(scan, byte);
    case LITERAL:
        return scan_literal(scan, byte);
    case END:
        return OB_JSON_BAD;
    default:
        return scan_number(scan, byte);
    }
}

bool ob_json_is_whole(const struct ob_json_scan *scan)
{
    return scan->state == END || (scan->depth == 0 && number_is_whole(scan));
}

bool ob_json_in_string(const struct ob_json_scan *scan)
{
    return scan->state == STRING || scan->state == ESCAPE || scan->state == HEX;
}

bool ob_json_is_value(struct ob_str text)
{
    struct ob_json_scan scan = {0};
    for (size_t i = 0; i < text.len; i++)
        if (ob_json_scan_byte(&scan, text.ptr[i]) == OB_JSON_BAD)
            return false;
    return ob_json_is_whole(&scan);
}

/* ------------------------------------------------------------------------------------ strings */

void ob_json_put_byte(struct ob_text *out, char byte, bool escaped)
{
    static const char named[] = "\b\f\n\r\t", letters[] = "bfnrt";
    const char *found = byte ? strchr(named, byte) : NULL;
    if (found)
        ob_text_printf(out, "\\%c", letters[found - named]);
    else if ((unsigned char)byte < 0x20)
        ob_text_printf(out, "\\u%04x", (unsigned)byte);
    else if (!escaped && (byte == '"' || byte == '\\'))
        ob_text_printf(out, "\\%c", byte);
    else
        ob_text_append(out, &byte, 1);
}

void ob_json_put_escaped(struct ob_text *out, struct ob_str text)
{
    for (size_t i = 0; i < text.len; i++)
        ob_json_put_byte(out, text.ptr[i], false);
}

void ob_json_put_value(struct ob_text *out, struct ob_str value)
{
    struct ob_json_scan scan = {0};
    for (size_t i = 0; i < value.len; i++) {
        bool inside = ob_json_in_string(&scan);
        ob_json_scan_byte(&scan, value.ptr[i]);
        if (inside)
            ob_json_put_byte(out, value.ptr[i], true);
        else
            ob_text_append(out, value.ptr + i, 1);
    }
}

/* The number behind the "\u" at `text`, or -1. */
static int32_t code_unit(struct ob_str text)
{
    int32_t unit = 0;
    if (text.len < 6 || text.ptr[0] != '\\' || text.ptr[1] != 'u')
        return -1;
    for (size_t i = 2; i < 6; i++) {
        char c = text.ptr[i];
        if (!is_hex(c))
            return -1;
        unit = unit * 16 + (is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return unit;
}

/* The character of one or two "\u" at the beginning of `text`; returns the bytes it took. */
static size_t put_unicode(struct ob_text *out, struct ob_str text)
{
    char utf8[4];
    size_t used = 6;
    int32_t c = code_unit(text);
    if (c >= 0xd800 && c < 0xdc00) {
        int32_t low = code_unit((struct ob_str){text.ptr + 6, text.len - 6});
        if (low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            used = 12;
        }
    }
    if (c < 0 || (c >= 0xd800 && c < 0xe000))
        c = 0xfffd;
    ob_text_append(out, utf8, ob_utf8_encode(c, utf8));
    return used < text.len ? used : text.len;
}

void ob_json_put_unescaped(struct ob_text *out, struct ob_str inside)
{
    static const char letters[] = "bfnrt", named[] = "\b\f\n\r\t";
    for (size_t i = 0; i < inside.len;) {
        const char *p = inside.ptr + i;
        if (*p != '\\' || i + 1 == inside.len) {
            ob_text_append(out, p, 1);
            i++;
        } else if (p[1] == 'u') {
            i += put_unicode(out, (struct ob_str){p, inside.len - i});
        } else {
            const char *found = p[1] ? strchr(letters, p[1]) : NULL;
            ob_text_append(out, found ? named + (found - letters) : p + 1, 1);
            i += 2;
        }
    }
}
