/*
 * bundle.mjs OUT.html QUALITY.csv (FOLDER FILE)... - put the page into one file (called by build.sh).
 *
 * Scripts are put in one after the other, in the order of SCRIPTS: each file defines one constant and uses those of the
 * files before it. That is all that a bundler would do here. Three things are added:
 *
 * - a nonce's place in every script and style: the server puts a fresh one there and into its content security policy, so
 *   that no other script or style can run; beside that, nothing can be made into HTML but by DOMPurify (trusted types);
 * - the measured price of each lossy setting, out of docs/quality.csv, so that the page cannot differ from the docs;
 * - the libraries' licences, which ask to be shipped with them.
 */
import { readFileSync, writeFileSync, renameSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const SCRIPTS = ['format.js', 'feed.js', 'charts.js', 'memory.js', 'map.js', 'settings.js', 'markdown.js', 'chat.js', 'main.js'];

const here = dirname(fileURLToPath(import.meta.url));
const [out, csv, ...libraries] = process.argv.slice(2);
if (!out || !csv) throw new Error('usage: bundle.mjs OUT.html QUALITY.csv (FOLDER FILE)...');
const read = (path) => readFileSync(path, 'utf8').replaceAll('\r\n', '\n');

/*
 * The rows of quality.csv that the settings panel quotes: with the cache of 3 MiB that docs/quality.md measures most with.
 * Numbers stay as they are there; the page rounds them.
 */
function prices(text) {
    const [head, ...lines] = text.trim().split('\n');
    const names = head.split(',');
    const rows = lines.map((line) => Object.fromEntries(line.split(',').map((v, i) => [names[i], v])));
    const lossless = rows.find((r) => r.method === 'lossless' && r.cache_mib === '3');
    if (!lossless) throw new Error(`${csv}: no lossless row with a cache of 3 MiB`);
    const wanted = rows.filter((r) => r.cache_mib === '3' && ['experts', 'drop', 'cold'].includes(r.method));
    if (wanted.length < 20) throw new Error(`${csv}: only ${wanted.length} rows of lossy settings`);
    return wanted.map((r) => ({
        method: r.method, // experts: fewer per token; drop: cold ones left out; cold: computed from a smaller copy
        drop: r.drop === '' ? null : Number(r.drop), // the threshold F
        experts: r.experts === '' ? null : Number(r.experts), // per token
        renorm: r.renorm === 'on',
        reproducible: r.reproducible === 'yes',
        copies: r.method === 'cold' ? r.file.replace('.gguf', '') : '', // quantisation of the copies
        avoided: 1 - Number(r.read_bytes) / Number(lossless.read_bytes), // of the bytes read by the lossless run
        kl: Number(r.kl), // mean divergence from the lossless run, nats per token
        same_top: Number(r.same_top), // share of tokens whose likeliest is the same
    }));
}

/* What may stand in a <script> without ending it or changing how it is parsed. */
const inline = (text) =>
    text.replace(/^\/\/# sourceMappingURL=.*$/gm, '').replace(/<\/(script)/gi, '<\\/$1').replaceAll('<!--', '\\x3C!--').trim();

const scripts = [];
const styles = [];
const licences = new Map();
for (let i = 0; i + 1 < libraries.length; i += 2) {
    const [folder, file] = libraries.slice(i, i + 2);
    const { name, version } = JSON.parse(read(join(folder, 'package.json')));
    (file.endsWith('.css') ? styles : scripts).push(inline(read(join(folder, file))));
    licences.set(name, `${name} ${version}\n\n${read(join(folder, 'LICENSE')).trim()}`);
}
styles.push(read(join(here, 'style.css')).trim());
scripts.push(inline([
    '"use strict";',
    `const PRICES = ${JSON.stringify(prices(read(csv)))};`,
    `const LICENCES = ${JSON.stringify([...licences.values()].join(`\n\n${'-'.repeat(60)}\n\n`))};`,
    ...SCRIPTS.map((file) => read(join(here, file)).trim()),
].join('\n')));

const parts = {
    csp: `<meta http-equiv="Content-Security-Policy" content="require-trusted-types-for 'script'; trusted-types dompurify">`,
    style: styles.map((s) => `<style nonce="@NONCE@">${s}</style>`).join('\n'),
    script: scripts.map((s) => `<script nonce="@NONCE@">${s}</script>`).join('\n'),
};
if ([...styles, ...scripts].some((s) => s.includes('@NONCE@'))) throw new Error('@NONCE@ may stand only in the tags');
const page = read(join(here, 'index.html')).replace(/<!-- (csp|style|script) -->/g, (_, part) => parts[part]);
writeFileSync(`${out}.tmp`, page);
renameSync(`${out}.tmp`, out);
