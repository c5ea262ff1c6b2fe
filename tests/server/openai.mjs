// openai.mjs - the official client of the OpenAI API against `sluice serve`: a streamed chat, one that is cancelled half-way,
// four requests at once, wrong input. The model's weights are random, so its text means nothing and never ends by
// itself: a request's end is its max_tokens, the context, or the client's. No check looks at a clock; limits only end a hang.
//
// Environment: BIN, LLAMA_BIN, MODEL, OPENAI (see server.cmake).
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const { BIN, LLAMA_BIN, MODEL, OPENAI } = process.env;
const { default: OpenAI, APIError, APIUserAbortError, BadRequestError, NotFoundError } = await import(`${OPENAI}/index.mjs`);

let passed = 0;
let failed = 0;
function check(label, good, detail = '') {
    if (good) passed++;
    else failed++;
    console.log(`${good ? 'ok  ' : 'FAIL'} ${label}${detail === '' ? '' : `: ${detail}`}`);
}
// The error that a promise ends with; null when it does not.
const errorOf = (promise) => promise.then(() => null, (e) => e);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Start serve and wait for "ready".
const serve = spawn(`${BIN}/sluice`, ['serve', '--server', `${LLAMA_BIN}/llama-server`, '-m', MODEL, '-t', '2', '--ctx', '8192', '--cache', '2MiB',
    '--force-cache', '--port', '0', '--window', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'pipe'] });
let log = '';
serve.stderr.on('data', (data) => { log = (log + data).slice(-4000); });
process.on('exit', () => serve.kill('SIGKILL'));
let base = '';
for await (const line of createInterface({ input: serve.stdout })) {
    base = line.match(/^api +(\S+)$/)?.[1] ?? base;
    if (line === 'ready') break;
}
check('serve is ready', base !== '', base || log);
if (!base) process.exit(1);
const root = base.replace(/\/v1$/, '');

const client = new OpenAI({ baseURL: base, apiKey: 'none is asked for', maxRetries: 0, timeout: 300_000 });
const models = await client.models.list();
const model = models.data[0].id;
check('the model is listed', models.data.length === 1 && typeof model === 'string', model);

const chat = (content, more) => ({
    model, messages: [{ role: 'user', content }], temperature: 0, seed: 1, ignore_eos: true, ...more,
});

// 1. A streamed chat.
let text = '';
let chunks = 0;
let reason;
for await (const chunk of await client.chat.completions.create(chat('Tell me about the sea.', { stream: true, max_tokens: 40 }))) {
    text += chunk.choices[0]?.delta?.content ?? '';
    reason = chunk.choices[0]?.finish_reason ?? reason;
    chunks++;
}
check('a streamed chat arrives in pieces', chunks > 10 && text.length > 0, `${chunks} pieces, ${text.length} characters`);
check('  and says why it ended', reason === 'length', String(reason));
const whole = await client.chat.completions.create(chat('Tell me about the sea.', { max_tokens: 40, cache_prompt: false }));
check('the same at once: all tokens', whole.usage.completion_tokens === 40 && whole.choices[0].finish_reason === 'length');

// 2. Cancelled half-way: the slot is freed, and the server answers others.
const busy = async () => (await (await fetch(`${root}/slots`)).json()).filter((slot) => slot.is_processing).length;
// The limit only ends a hang.
const until = async (condition) => {
    for (const end = Date.now() + 600_000; Date.now() < end; await sleep(50)) {
        if (await condition()) return true;
    }
    return false;
};
const free = () => until(async () => (await busy()) === 0);
const controller = new AbortController();
let seen = 0;
let busyThen = 0;
const cut = await errorOf((async () => {
    const stream = await client.chat.completions.create(chat('Count to a million.', { stream: true, max_tokens: 7000 }), { signal: controller.signal });
    for await (const chunk of stream) {
        if (chunk.choices[0]?.delta?.content && ++seen === 5) {
            busyThen = await busy();
            controller.abort();
        }
    }
    return stream;
})());
// The iterator of this client ends quietly when its own signal aborts it, or throws: both are the client's business.
check('a chat is cancelled after some pieces', seen >= 5 && seen < 5000 && (cut === null || cut instanceof APIUserAbortError), `${seen} pieces`);
check('  its slot was busy', busyThen === 1, `${busyThen} busy`);
check('  and is freed', await free());
const after = await client.chat.completions.create(chat('Are you there?', { max_tokens: 8 }));
check('  the server goes on to answer', after.usage.completion_tokens === 8);
// Cancelled while another one runs: that one is not disturbed. It streams, so that it is known to run, and is long enough to
// run still when the other one is seen in its slot; if it did not, once more.
let beside = 0;
for (let i = 0; i < 20 && beside !== 2; i++) {
    const stream = (await client.chat.completions.create(chat('A long one.', { stream: true, max_tokens: 1500, stream_options: { include_usage: true } })))[Symbol.asyncIterator]();
    await stream.next(); // it runs
    const second = new AbortController();
    const stopped = errorOf(client.chat.completions.create(chat('Never to be read.', { max_tokens: 4000 }), { signal: second.signal }));
    await until(async () => (beside = await busy()) !== 1);
    second.abort();
    const error = await stopped;
    let usage;
    for (let piece = await stream.next(); !piece.done; piece = await stream.next()) usage = piece.value.usage ?? usage;
    if (beside !== 2) continue;
    check('a request without a stream is cancelled', error instanceof APIUserAbortError);
    check('  beside it another one is answered in full', usage?.completion_tokens === 1500, `${usage?.completion_tokens} tokens`);
}
check('  they were there at once', beside === 2, `${beside} busy`);
check('  all slots are free again', await free());

// 3. Four in four slots. Each is begun when the one before has given its first piece, and none ends by itself before the last
// has: so all four are computed at once.
const asked = ['the moon', 'a river', 'bread', 'winter'];
const running = [];
for (const what of asked) {
    const stream = (await client.chat.completions.create(chat(`Tell me about ${what}.`, { stream: true, max_tokens: 4000 })))[Symbol.asyncIterator]();
    running.push({ stream, first: await stream.next() });
}
const most = await busy();
const more = await Promise.all(running.map((r) => r.stream.next()));
check('four requests are computed at once', most === 4 && more.every((m) => !m.done), `${most} slots busy`);
await Promise.all(running.map((r) => r.stream.return()));
check('  and their slots are freed', await free());
const four = await Promise.all(asked.map((what) => client.chat.completions.create(chat(`Tell me about ${what}.`, { max_tokens: 300 }))));
check('four requests at once are answered in full', four.every((a) => a.usage.completion_tokens === 300 && a.choices[0].message.content.length > 0));
check('  each has its own answer', new Set(four.map((a) => a.id)).size === 4);

// 4. Wrong input: an error of the API, in its form, and the server lives.
const wrong = [
    ['no messages', { model, messages: 'hello' }, BadRequestError],
    ['a message without a role', { model, messages: [{ content: 'no role' }] }, APIError], // this llama-server says 500
    ['a temperature that is a text', chat('Hi', { temperature: 'hot' }), BadRequestError],
    ['a prompt that does not fit', chat('word '.repeat(20000), { max_tokens: 1 }), BadRequestError],
];
for (const [label, body, kind] of wrong) {
    const e = await errorOf(client.chat.completions.create(body));
    check(`wrong input, ${label}`, e instanceof kind && typeof e.message === 'string' && e.message.length > 5, `${e?.status} ${String(e?.message).slice(0, 100)}`);
}
const nowhere = await errorOf(client.get('/no/such/path'));
check('a path that does not exist', nowhere instanceof NotFoundError, String(nowhere?.status));
const broken = await fetch(`${base}/chat/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{"messages": [' });
const answer = await broken.json();
check('broken JSON', broken.status >= 400 && typeof answer.error?.message === 'string', `${broken.status} ${answer.error?.message?.slice(0, 80)}`);
const last = await client.chat.completions.create(chat('Still there?', { max_tokens: 4 }));
check('after all that it answers', last.usage.completion_tokens === 4);

serve.kill('SIGTERM');
const [code] = await once(serve, 'exit');
check('SIGTERM ends it', code === 0, `exit ${code} ${code === 0 ? '' : log.slice(-500)}`);
console.log(`${passed} of ${passed + failed} checks passed`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);
