/*
 * mock.mjs - plays a program with the window, and llama-server beside it, for tests of the page.
 *
 * The window's API is the one of docs/window.md: /, /stats, /events, POST /settings, with its content security policy and
 * token. The model is made up: 24 layers of 64 experts, of which 4 are used, that "generates" while a chat request runs.
 * What a question says decides what comes: xss, forever, think, fail, break, cut. Tests start it with startMock; by hand:
 *
 *     node tests/page/mock.mjs PAGE.html [PORT]
 */
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { pathToFileURL } from 'node:url';

export const LAYERS = 24, EXPERTS = 64, USED = 4;
const SLOT = 1_400_000; // bytes of an expert
const PROMPT_TOKENS = 96;

/* A stranger's Markdown: every way we know to make a page run something or ask somewhere. window.pwned must stay unset. */
export const EVIL = [
    '# Title <img src=x onerror="window.pwned=1">',
    '<script>window.pwned=2</script>',
    '<img src="http://evil.invalid/a.png" onerror=window.pwned=3>',
    '![tracker](http://evil.invalid/track.png "t")',
    '![x](x"onerror="window.pwned=4)',
    '[click](javascript:window.pwned=5)',
    '[click2](JaVaScRiPt:window.pwned=6) [click3](data:text/html,<script>window.pwned=7</script>) [click4](vbscript:x)',
    '<a href="javascript:window.pwned=8">raw link</a>',
    '<svg onload=window.pwned=9><animate onbegin=window.pwned=10 attributeName=x dur=1s></svg>',
    '<iframe src="javascript:parent.pwned=11"></iframe><object data="http://evil.invalid/o"></object>',
    '<style>body{display:none}</style><link rel=stylesheet href="http://evil.invalid/s.css">',
    '<form action="http://evil.invalid/"><input name=a autofocus onfocus=window.pwned=12></form>',
    '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.pwned=13&gt;">',
    '[ref]: javascript:window.pwned=14',
    '[ref] and <javascript:window.pwned=15> and [good](https://example.com/page)',
    '```html"onmouseover="window.pwned=16\n<img src=x onerror=window.pwned=17>\n```',
    '`</code><img src=x onerror=window.pwned=18>`',
].join('\n\n');

export const ANSWER = [
    '## Why the cache helps\n\n',
    'A **Mixture-of-Experts** model uses only a few experts per token. What was used a moment ago is *likely* to be used again, ',
    'so keeping it saves a read.\n\n',
    '1. The router picks `4` of 64 experts.\n2. Those in memory are computed first.\n3. The others are read meanwhile.\n\n',
    '| cache | hits |\n| --- | --- |\n| 1 GiB | 41 % |\n| 4 GiB | 83 % |\n\n',
    '```c\nif (resident(e))\n    compute(e); /* while the disk works */\n```\n\n',
    '> Bytes are what counts. See [the method](https://example.com/method).\n',
];

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/* A small generator of repeatable numbers, so that screenshots look alike. */
function random(seed) {
    let a = seed;
    return () => {
        a = (a + 0x6d2b79f5) | 0;
        let t = Math.imul(a ^ (a >>> 15), 1 | a);
        t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
        return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
}

const phase = () => ({
    steps: 0, tokens: 0, wall_seconds: 0, compute_seconds: 0, stall_seconds: 0, other_seconds: 0, bookkeeping_seconds: 0,
    blocks: 0, tokens_done: 0, routed: 0, hits: 0, misses: 0, hit_bytes: 0, miss_bytes: 0, reads: 0, read_bytes: 0,
    dropped: { examined: 0, dropped: 0, substituted: 0, avoided_bytes: 0, weight: 0, dropped_weight: 0, substituted_weight: 0 },
});

/* The made-up model: counters, cache and heat. */
function makeModel(pid) {
    const rnd = random(7);
    const started = Date.now();
    const popularity = Float64Array.from({ length: LAYERS * EXPERTS }, () => rnd() ** 4 + 0.002);
    const heat = new Float64Array(LAYERS * EXPERTS); // share of the last tokens
    const state = new Uint8Array(LAYERS * EXPERTS); // 0 cold, 1 reading, 2 resident, 3 in use
    const m = {
        prompt: phase(), generation: phase(), evictions: 0, now: null, recent: [], recently: 2000, // milliseconds that count as now
        settings: { cache: '1000MiB', drop_cold_experts: 0, drop_renorm: false, lookahead: true },
    };
    const slots = () => (m.settings.cache === 'off' ? 0 : m.settings.cache === 'auto' ? 1100 : Math.floor((parseInt(m.settings.cache, 10) * 2 ** 20) / SLOT));

    function pick(layer) {
        const chosen = new Set();
        const base = layer * EXPERTS;
        let sum = 0;
        for (let e = 0; e < EXPERTS; e++) sum += popularity[base + e];
        while (chosen.size < USED) {
            let r = rnd() * sum, e = 0;
            while (e < EXPERTS - 1 && (r -= popularity[base + e]) > 0) e++;
            chosen.add(base + e);
        }
        return chosen;
    }

    /* One step of `tokens` tokens that took `wall` seconds. */
    m.step = (kind, tokens, wall) => {
        const p = m[kind];
        let misses = 0, asked = 0;
        for (let l = 0; l < LAYERS; l++) {
            for (let e = 0; e < EXPERTS; e++) {
                const i = l * EXPERTS + e;
                heat[i] *= 0.985;
                if (state[i] === 1 || state[i] === 3) state[i] = 2;
            }
            for (const i of pick(l)) {
                asked++;
                heat[i] = Math.min(1, heat[i] + 0.015 * (kind === 'prompt' ? 3 : 1));
                if (state[i] >= 2) state[i] = 3;
                else {
                    misses++;
                    state[i] = 1;
                }
            }
        }
        let resident = state.reduce((n, s) => n + (s > 0), 0);
        while (resident > slots()) {
            let worst = -1;
            for (let i = 0; i < state.length; i++) if (state[i] === 2 && (worst < 0 || heat[i] < heat[worst])) worst = i;
            if (worst < 0) break;
            state[worst] = 0;
            resident--;
            m.evictions++;
        }
        const stall = Math.min(0.75 * wall, misses * 0.0007 * (tokens > 1 ? 6 : 1));
        p.steps++;
        p.tokens += tokens;
        p.tokens_done += tokens;
        p.wall_seconds += wall;
        p.stall_seconds += stall;
        p.compute_seconds += 0.62 * (wall - stall);
        p.other_seconds += 0.33 * (wall - stall);
        p.bookkeeping_seconds += 0.05 * (wall - stall);
        p.blocks += LAYERS;
        p.routed += asked;
        p.hits += asked - misses;
        p.misses += misses;
        p.hit_bytes += (asked - misses) * SLOT;
        p.miss_bytes += misses * SLOT * 1.1;
        p.reads += misses * 3;
        p.read_bytes += misses * (SLOT + 12288);
        m.recent.push({ at: Date.now(), kind, tokens, wall, stall, hits: asked - misses, misses });
    };

    m.stats = (chat) => {
        const t = Date.now();
        m.recent = m.recent.filter((r) => r.at > t - m.recently);
        const sum = (kind, what) => m.recent.filter((r) => !kind || r.kind === kind).reduce((n, r) => n + r[what], 0);
        const rate = (kind) => (sum(kind, 'wall') ? sum(kind, 'tokens') / sum(kind, 'wall') : null);
        const misses = sum('', 'misses'), hits = sum('', 'hits'), wall = sum('', 'wall');
        const bps = (misses * SLOT) / 2;
        const share = hits + misses ? hits / (hits + misses) : null;
        const resident = state.reduce((n, s) => n + (s >= 2), 0);
        const cacheBytes = slots() * SLOT;
        const set = (value, lossy = false, changeable = true, reason = '') => ({ value, changeable, lossy, reason });
        const fixed = (value) => set(value, false, false, 'fixed when the program starts');
        const s = m.settings;
        const lossy = s.drop_cold_experts > 0;
        const plan = { process_bytes: 310e6, files_bytes: 38e6, untouched_bytes: 420e6, dense_bytes: 964 * 2 ** 20, cache_bytes: cacheBytes, scratch_bytes: 24e6 };
        const started_ = m.prompt.steps > 0;
        return {
            api: 1, version: '0.1.0', program: 'llama-server', pid, time_seconds: t / 1000, uptime_seconds: (t - started) / 1000,
            model: { name: 'Made-up-30B-A3B-Q4_K_M.gguf', architecture: 'qwen3moe', layers: LAYERS, experts: EXPERTS, experts_used: USED, expert_bytes: LAYERS * EXPERTS * SLOT, token_bytes: LAYERS * USED * SLOT, tensors: 3 * LAYERS },
            mode: `streaming ${3 * LAYERS} expert tensors (2.0 GiB), cache ${s.cache} cycle, direct reads, 4 lanes, ${lossy ? `lossy: cold experts below ${s.drop_cold_experts}/k left out` : 'lossless'}`,
            lossy, warning: lossy ? 'This model has 4 experts per token: each that is left out costs much.' : '', error: '',
            phase: m.now ?? 'idle',
            now: {
                prompt_tokens_per_second: rate('prompt'), generation_tokens_per_second: rate('generation'), read_bytes_per_second: bps, hit_rate: share, hit_rate_bytes: share,
                compute_share: wall ? 0.5 : null, stall_share: wall ? 0.2 : null, other_share: wall ? 0.27 : null, bookkeeping_share: wall ? 0.03 : null,
            },
            prompt: m.prompt, generation: m.generation,
            cache: { bytes: cacheBytes, slots: slots(), resident, evictions: m.evictions },
            lookahead: { asked: 0, begun: 0, used: 0, read_bytes: 0, pauses: 0 },
            cold: null,
            memory: {
                limit_bytes: 6 * 2 ** 30, limit_by: 'machine',
                plan: started_ ? { total_bytes: Object.values(plan).reduce((a, b) => a + b), ...plan, floor_bytes: 300e6, dense_mapped: false } : null,
                used: { total_bytes: 1.35e9 + resident * SLOT, anonymous_bytes: 1.3e9 + resident * SLOT, file_bytes: 5e7, shared_bytes: 0 },
            },
            disk: { probed_bytes_per_second: 210e6, best_bytes_per_second: 190e6, now_bytes_per_second: bps, io: 'pread', lanes: 4, direct: true },
            settings: {
                cache: { ...set(s.cache), bytes: /^\d/.test(s.cache) ? parseInt(s.cache, 10) * 2 ** 20 : null },
                drop_cold_experts: set(s.drop_cold_experts, lossy), drop_renorm: set(s.drop_renorm, lossy && s.drop_renorm), lookahead: set(s.lookahead),
                n_expert_used: set(null, false, false, 'fixed when the model is loaded'),
                drop_in_prefill: fixed(false), drop_reproducible: fixed(false), cold_model: fixed(null), cache_policy: fixed('cycle'),
                dense: fixed('anon'), io: fixed('pread'), io_threads: fixed(4), memory: fixed(null), staging: fixed(256 * 2 ** 20),
            },
            chat,
            page: { readers: 1, readers_dropped: 0 },
        };
    };

    m.map = () => ({
        layers: Array.from({ length: LAYERS }, (_, l) => ({ first: l * EXPERTS, experts: EXPERTS })),
        data: Buffer.from(Uint8Array.from(state, (s, i) => (s << 6) | Math.round(63 * Math.sqrt(Math.min(1, heat[i]))))).toString('base64'),
    });
    return m;
}

const body = async (request) => {
    let text = '';
    for await (const part of request) text += part;
    return text;
};

const listen = (server, port) => new Promise((done, failed) => {
    server.once('error', failed);
    server.listen(port, '127.0.0.1', () => done(server.address().port));
});

const close = (server) => new Promise((done) => {
    server.close(done);
    server.closeAllConnections();
});

/* What llama-server's part answers, piece by piece. */
async function* answer(question, signal) {
    if (/xss/.test(question)) yield* EVIL.match(/[^]{1,37}/g);
    else if (/forever/.test(question)) for (let i = 1; !signal.aborted; i++) yield `${i} `;
    else yield* ANSWER.join('').match(/[^]{1,9}/g);
}

function llamaServer(model, log, tokensPerSecond, apiKey, context) {
    return createServer(async (request, response) => {
        const head = { 'access-control-allow-origin': request.headers.origin ?? '*', 'access-control-allow-headers': '*', 'access-control-allow-methods': 'GET, POST' };
        if (request.method === 'OPTIONS') return response.writeHead(200, head).end();
        if (request.url !== '/v1/chat/completions' || request.method !== 'POST') return response.writeHead(404, head).end();
        const asked = JSON.parse(await body(request));
        log.requests.push(asked);
        const question = asked.messages.at(-1).content;
        const fail = (status, message, more = {}) => response.writeHead(status, { ...head, 'content-type': 'application/json' }).end(JSON.stringify({ error: { code: status, message, type: 'invalid_request_error', ...more } }));
        if (apiKey && request.headers['x-api-key'] !== apiKey) return fail(401, 'Invalid API Key');
        const n_prompt_tokens = 100 * asked.messages.length, n_ctx = 100 * context;
        if (n_prompt_tokens > n_ctx) return fail(400, 'too long', { type: 'exceed_context_size_error', n_prompt_tokens, n_ctx });
        if (/fail/.test(question)) return fail(400, 'the request exceeds the available context size <b>try increasing it</b>');
        const signal = { aborted: false };
        response.on('close', () => {
            if (!response.writableFinished) log.aborted++;
            signal.aborted = true;
        });
        response.writeHead(200, { ...head, 'content-type': 'text/event-stream' });
        const send = (o) => response.write(`data: ${JSON.stringify(o)}\n\n`);
        model.now = 'prompt';
        await wait(300);
        model.step('prompt', PROMPT_TOKENS, 0.3);
        model.now = 'generation';
        const started = Date.now();
        let n = 0;
        send({ choices: [{ index: 0, delta: { role: 'assistant', content: null }, finish_reason: null }] });
        if (/think/.test(question)) send({ choices: [{ index: 0, delta: { reasoning_content: 'Let me see: **not** Markdown <b>here</b>.' }, finish_reason: null }] });
        for await (const piece of answer(question, signal)) {
            await wait(1000 / tokensPerSecond);
            if (signal.aborted) break;
            model.step('generation', 1, 1 / tokensPerSecond); // whatever it really took
            send({ choices: [{ index: 0, delta: { content: piece }, finish_reason: null }] });
            n++;
            if (/break/.test(question) && n === 5) {
                send({ error: { code: 500, message: 'expert of layer 3 could not be read', type: 'server_error' } });
                response.end();
                model.now = null;
                return;
            }
            if (/cut/.test(question) && n === 5) response.destroy();
        }
        model.now = null;
        if (signal.aborted) return;
        const seconds = (Date.now() - started) / 1000;
        send({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }], timings: { prompt_n: PROMPT_TOKENS, prompt_per_second: PROMPT_TOKENS / 0.3, predicted_n: n, predicted_per_second: n / seconds } });
        response.end('data: [DONE]\n\n');
    });
}

/* What POST /settings says: { status, body }. */
function changeSettings(model, text) {
    const no = (status, error, setting = null) => ({ status, body: { ok: false, error, setting, changed: [] } });
    let wanted;
    try {
        wanted = JSON.parse(text);
    } catch {
        return no(400, 'this is not JSON');
    }
    for (const [name, value] of Object.entries(wanted)) {
        if (!(name in model.settings)) return no(400, `there is no setting ${name}`, name);
        if (name === 'cache' && parseInt(value, 10) > 5000) return no(409, `cache ${value} does not fit: 4100 MiB are left`, name);
    }
    const changed = Object.keys(wanted).filter((name) => model.settings[name] !== wanted[name]);
    Object.assign(model.settings, wanted);
    return { status: 200, body: { ok: true, changed, settings: model.stats(null).settings } };
}

/*
 * Start both servers. page: path of the built page. Ports 0: any free. withChat false: no llama-server; apiKey: what it wants;
 * context: how many messages fit into it.
 * Gives { url, token, model, log: { posts, requests, aborted, readers }, stop() }.
 */
export async function startMock({ page, port = 0, chatPort = 0, withChat = true, tokensPerSecond = 40, apiKey = '', context = Infinity, token = randomBytes(12).toString('hex'), pid = 1000 + Math.floor(Math.random() * 30000) } = {}) {
    const model = makeModel(pid);
    const log = { posts: [], requests: [], aborted: 0 };
    const llama = withChat ? llamaServer(model, log, tokensPerSecond, apiKey, context) : null;
    const chat = llama ? { url: null, port: await listen(llama, chatPort) } : null;
    const html = readFileSync(page, 'utf8');
    const readers = new Set();

    const server = createServer(async (request, response) => {
        const json = (status, o) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(o));
        const path = request.url.split('?')[0];
        if (path === '/' && request.method === 'GET') {
            const nonce = randomBytes(16).toString('base64url');
            const connect = chat ? ` http://127.0.0.1:${chat.port}` : '';
            return response.writeHead(200, {
                'content-type': 'text/html; charset=utf-8',
                'content-security-policy': `default-src 'none'; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'; img-src data:; connect-src 'self'${connect}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
                'x-content-type-options': 'nosniff',
            }).end(html.replaceAll('@NONCE@', nonce));
        }
        if (path === '/stats') return json(200, model.stats(chat));
        if (path === '/events') {
            response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
            const send = (name, o) => response.write(`event: ${name}\ndata: ${JSON.stringify(o)}\n\n`);
            response.write('retry: 2000\n\n');
            let n = 0;
            const tick = () => {
                send('stats', model.stats(chat));
                if (n++ % 2 === 0) send('map', model.map());
            };
            tick();
            const timer = setInterval(tick, 500);
            readers.add(response);
            return response.on('close', () => {
                clearInterval(timer);
                readers.delete(response);
            });
        }
        if (path === '/settings' && request.method === 'POST') {
            const text = await body(request);
            if (!request.headers['x-sluice-token']) return json(401, { ok: false, error: 'changing settings needs the token', setting: null, changed: [] });
            if (request.headers['x-sluice-token'] !== token) return json(403, { ok: false, error: 'this is not the token that was printed', setting: null, changed: [] });
            if (request.headers['content-type'] !== 'application/json') return json(415, { ok: false, error: 'JSON is wanted', setting: null, changed: [] });
            log.posts.push(text);
            const { status, body: answer_ } = changeSettings(model, text);
            return json(status, answer_);
        }
        return json(404, { ok: false, error: 'there is nothing here', setting: null, changed: [] });
    });
    const bound = await listen(server, port);
    return {
        url: `http://127.0.0.1:${bound}/`, port: bound, chatPort: chat?.port ?? 0, token, model, log, readers,
        stop: async () => {
            await close(server);
            if (llama) await close(llama);
        },
    };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
    const mock = await startMock({ page: process.argv[2], port: Number(process.argv[3] ?? 8090) });
    console.log(`${mock.url}#token=${mock.token}`);
}
