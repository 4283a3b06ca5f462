#!/usr/bin/python3
"""Write the tables of src/text/template_case.c from Python's Unicode database:

    tests/oracle/make_case.py >src/text/template_case_tables.h

Python is the reference of the template language, so its str.upper() and friends are the source."""

import unicodedata

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(convert):
    """(first, last, step, delta) of the characters that `convert` maps to one other character."""
    pairs = []
    for c in CODES:
        mapped = convert(chr(c))
        if len(mapped) == 1 and mapped != chr(c):
            pairs.append((c, ord(mapped) - c))
    at = 0
    while at < len(pairs):
        first, delta = pairs[at]
        best, best_step = at, 1
        for step in (1, 2):
            end = at
            while end + 1 < len(pairs) and pairs[end + 1] == (pairs[end][0] + step, delta):
                end += 1
            if end > best:
                best, best_step = end, step
        yield first, pairs[best][0], best_step, delta
        at = best + 1


def table(name, rows):
    print(f"static const struct case_range {name}[] = {{")
    line = "   "
    for row in rows:
        text = " {0x%x, 0x%x, %d, %d}," % row
        if len(line) + len(text) > 98:
            print(line)
            line = "   "
        line += text
    print(line)
    print("};\n")


def quoted(text):
    return '"' + "".join(f"\\x{b:02x}" for b in text.encode()) + '"'


def title(c):
    return chr(c).title()


def main():
    version = unicodedata.unidata_version
    print(f"/* Case mappings of Unicode {version}, made by tests/oracle/make_case.py. */")
    print("/* clang-format off */")
    table("case_upper", ranges(str.upper))
    table("case_lower", ranges(str.lower))
    print("/* Title case where it is one character and not the upper case. */")
    single = [c for c in CODES if len(title(c)) == 1 and title(c) != chr(c).upper()]
    rows = [(c, c, 1, ord(title(c)) - c) for c in single]
    merged = []
    for row in rows:
        if merged and merged[-1][1] + 1 == row[0] and merged[-1][3] == row[3]:
            merged[-1] = (merged[-1][0], row[1], 1, row[3])
        else:
            merged.append(row)
    table("case_title", merged)
    print("/* Characters whose upper case is several: upper, title. */")
    print("static const struct case_special case_specials[] = {")
    for c in CODES:
        if len(chr(c).upper()) > 1:
            print(f"    {{0x{c:x}, {quoted(chr(c).upper())}, {quoted(title(c))}}},")
    print("};")
    print("/* clang-format on */")


main()
