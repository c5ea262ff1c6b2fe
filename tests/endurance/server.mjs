// server.mjs - a stock llama-server with the plug-in, driven over HTTP: completions whose every token and probability must be
// those of a server without the plug-in, clients that hang up half-way or while they wait in the queue, settings changed in
// the window, readers of the window who come and go, reads that fail; and its end by SIGTERM or SIGKILL.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { alive, childOf, look, sleep, until } from './proc.mjs';

const TOKEN = 'endurance-0123456789';
const N_PREDICT = 40;
const PROMPTS = ['Once upon a time', 'The old man and the', 'It was a cold day. The', 'Tom and Lily went to the park. They saw', 'A big red ball',
    'One day, a little girl named Sue', 'The dog was very happy because', 'Mom said, "No', 'In the forest there lived a bear who',
    'He looked at the moon and', 'The cat', 'Once there was a king. The king had a'];

// One request on a connection of its own, so that none stays open. onData may destroy it.
function request(url, { method = 'GET', headers = {}, body = null, onData = null } = {}) {
    return new Promise((done) => {
        const got = { status: 0, text: '', whole: false };
        const req = http.request(url, { method, headers: { ...headers, connection: 'close' }, agent: false }, (res) => {
            got.status = res.statusCode;
            res.setEncoding('utf8');
            res.on('data', (d) => { got.text += d; onData?.(got.text, req); });
            res.on('end', () => { got.whole = res.complete; });
            res.on('error', () => {}); // it was cut short: whole says so
        });
        req.on('error', () => {});
        req.on('close', () => done(got));
        req.end(body);
    });
}

// bySluice: `sluice serve` starts it and stays with it.
async function start(run, name, env, bySluice = false) {
    const server = `${run.llama}/llama-server`;
    const command = bySluice ? [`${run.bin}/sluice`, 'serve', '--server', server, '-m', run.demo, '-t', '2', '--port', '0', '--ctx', '1024', '--parallel', '1',
        '--cache', '2MiB', '--force-cache', '--window', '127.0.0.1:0']
        : [server, '-m', run.demo, '-t', '2', '--no-repack', '-ot', 'no_such_tensor=CPU', '--host', '127.0.0.1', '--port', '0', '-c', '1024', '-np', '1',
            '--cache-ram', '0'];
    const child = spawn(command[0], command.slice(1), { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    const s = { child, name, pid: child.pid, log: '', url: '', window: '', ended: null };
    const hear = (d) => {
        s.log = (s.log + d).slice(-20000);
        s.url ||= s.log.match(bySluice ? /^api +(http:\/\/127\.0\.0\.1:\d+)/m : /listening on (http:\/\/127\.0\.0\.1:\d+)/)?.[1] ?? '';
        s.window ||= s.log.match(/window:? +(http:\/\/[^/]+)/)?.[1] ?? '';
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    run.children.add(child);
    s.ended = new Promise((done) => child.on('close', (code, sig) => { run.children.delete(child); s.over = true; done(code ?? sig); }));
    const up = await until(async () => s.over || (s.url && (await request(`${s.url}/health`)).status === 200));
    if (!up || s.over) {
        run.check(`${name} answers`, false, s.log.slice(-800));
        child.kill('SIGKILL');
        return null;
    }
    if (bySluice) s.pid = childOf(child.pid);
    return s;
}

async function stop(s, signal) {
    s.child.kill(signal);
    const timer = setTimeout(() => s.child.kill('SIGKILL'), 300_000);
    const end = await s.ended;
    clearTimeout(timer);
    return end;
}

// A completion, token by token. hangUp: pieces after which the client goes away; 0: before the first.
async function complete(s, prompt, hangUp = Infinity) {
    const body = JSON.stringify({ prompt, n_predict: N_PREDICT, ignore_eos: true, temperature: 0, seed: 1, cache_prompt: false,
        return_tokens: true, n_probs: 2, stream: true });
    const pieces = (text) => text.split('\n\n').filter((p) => p.startsWith('data: {')).map((p) => {
        try { return JSON.parse(p.slice(6)); } catch { return null; } // cut short
    }).filter(Boolean);
    const answer = request(`${s.url}/completion`, { method: 'POST', body, headers: { 'content-type': 'application/json' },
        onData: (text, req) => { if (pieces(text).length >= hangUp) req.destroy(); } });
    const { status, text, whole } = await answer;
    const got = pieces(text);
    return {
        status, whole, failed: status === 500 || /"error"/.test(text), text,
        tokens: got.filter((p) => p.tokens?.length).length,
        exact: JSON.stringify(got.filter((p) => p.tokens?.length).map((p) => [p.content, p.tokens, p.completion_probabilities])),
    };
}

// What a server without the plug-in answers.
export async function reference(run) {
    const s = await start(run, 'llama-server, resident', {});
    const want = [];
    if (!s) return want;
    for (const prompt of PROMPTS) want.push(await complete(s, prompt));
    await stop(s, 'SIGTERM');
    run.check('llama-server, resident: reference', want.every((w) => w.tokens > N_PREDICT / 2 && w.whole && !w.failed), `${want.length} texts, ${want.map((w) => w.tokens).join(' ')} pieces`);
    return want;
}

// Counters as the window shows them, against each other and against the last look.
function counters(run, life, st) {
    const wrong = [];
    for (const phase of ['prompt', 'generation']) {
        const p = st[phase];
        if (p.hits + p.misses !== p.routed) wrong.push(`${phase}: ${p.hits} hits + ${p.misses} misses, ${p.routed} asked for`);
        for (const key of ['blocks', 'routed', 'hits', 'misses', 'hit_bytes', 'miss_bytes', 'reads', 'read_bytes', 'steps', 'tokens']) {
            if (life.stats && p[key] < life.stats[phase][key]) wrong.push(`${phase}: ${key} went back`);
        }
    }
    const set = st.settings.cache;
    if (st.cache.resident > st.cache.slots) wrong.push(`${st.cache.resident} resident in ${st.cache.slots} slots`);
    if (st.lookahead.used > st.lookahead.begun || st.lookahead.begun > st.lookahead.asked) wrong.push(`ahead: ${JSON.stringify(st.lookahead)}`);
    if (/MiB$/.test(set.value) && set.bytes && st.cache.bytes > set.bytes) wrong.push(`cache of ${st.cache.bytes} bytes, ${set.bytes} are allowed`);
    if (st.generation.read_bytes < st.lookahead.read_bytes) wrong.push('more read ahead than in all');
    if (wrong.length) run.check(`${life.name}: counters`, false, wrong.join('; '));
    life.stats = st;
    life.looks++;
}

const stats = async (s) => JSON.parse((await request(`${s.window}/stats`)).text);

// Change a setting through the window.
async function change(run, s, life) {
    const sizes = ['off', 'auto', '1MiB', '2MiB', '3MiB', '5MiB', '64MiB', '1'];
    const what = run.random(4) ? { cache: sizes[run.random(sizes.length)] } : { lookahead: run.random(2) === 1 };
    const { status, text } = await request(`${s.window}/settings`, { method: 'POST', body: JSON.stringify(what),
        headers: { 'content-type': 'application/json', 'x-sluice-token': TOKEN } });
    if (status === 200) life.changes++;
    else if (status === 409) life.refused++;
    else run.check(`${life.name}: a change of settings`, false, `${JSON.stringify(what)}: ${status} ${text}`);
}

// Nothing runs: no more descriptors and threads than the fewest that were seen when nothing ran. The first look may still see
// what is about to end: llama-server's HTTP threads beyond its usual number end when they had nothing to do for a while.
async function quiet(run, s, life) {
    let now = null;
    const same = () => { now = look(s.pid); return now && (!life.base || (now.fds <= life.base.fds && now.threads <= life.base.threads)); };
    if (!life.base) await sleep(4000);
    if (!await until(same)) {
        run.check(`${life.name}: descriptors and threads between requests`, false, `${JSON.stringify(now)}, at first ${JSON.stringify(life.base)}`);
    }
    if (!now) return;
    life.base = { fds: Math.min(now.fds, life.base?.fds ?? Infinity), threads: Math.min(now.threads, life.base?.threads ?? Infinity) };
    life.quiet.push(now);
}

// One life of a server: until it gave `tokens`, then `signal`.
export async function serve(run, want, { name, tokens, env = {}, faults = null, signal, bySluice = false }) {
    const life = { name, tokens: 0, sessions: 0, cancelled: 0, changes: 0, refused: 0, failed: 0, faults: 0, looks: 0, quiet: [], stats: null, base: null, killed: signal };
    const log = `${run.work}/tmp/${name}.faults`;
    const preload = faults ? { LD_PRELOAD: `${run.bin}/libsluice-faulty.so`, FAULTY_LOG: log, ...faults } : {};
    const s = await start(run, name, { GGML_BACKEND_PATH: `${run.bin}/libggml-sluice.so`, SLUICE_CACHE: '2MiB', SLUICE_FORCE_CACHE: '1',
        SLUICE_WINDOW: '127.0.0.1:0', SLUICE_WINDOW_TOKEN: TOKEN, ...preload, ...env }, bySluice);
    if (!s) return life;
    run.sampler.watch(name, s.pid);
    let readers = [];
    for (let i = 0; life.tokens < tokens && !s.over && !run.failed; i++) {
        const which = run.random(PROMPTS.length);
        const dice = run.random(8);
        const hangUp = run.random(N_PREDICT);
        const answer = complete(s, PROMPTS[which], dice === 0 ? hangUp : Infinity);
        if (dice === 1) {
            await sleep(run.random(20));
            await impatient(s);
            life.cancelled++;
        }
        if (dice < 6) await change(run, s, life);
        if (dice === 2) readers.push(listen(s, 1 + run.random(3)));
        if (dice === 3) counters(run, life, await stats(s));
        if (dice === 4 && (await request(`${s.window}/metrics`)).status !== 200) run.check(`${name}: /metrics`, false);
        const got = await answer;
        life.sessions++;
        life.tokens += got.tokens;
        if (dice === 0) {
            life.cancelled++;
            if (!JSON.stringify(JSON.parse(want[which].exact).slice(0, got.tokens)).startsWith(got.exact)) run.check(`${name}: a text before the client left`, false, got.text.slice(0, 300));
        } else if (got.failed && faults?.FAULTY_MODE === 'eio') {
            life.failed++;
            if (!want[which].exact.startsWith(got.exact.replace(/\]$/, ''))) run.check(`${name}: a text before a read failed`, false);
        } else if (!got.whole || got.exact !== want[which].exact) {
            run.check(`${name}: the text of a request`, false, `${got.status}, ${got.tokens} tokens: ${got.text.slice(0, 400)}`);
        }
        run.progress(name, life.tokens);
        if (i % 40 === 4) {
            await Promise.all(readers);
            readers = [];
            await quiet(run, s, life);
        }
    }
    await Promise.all(readers);
    if (!s.over && !run.failed) await quiet(run, s, life);
    if (!s.over) counters(run, life, await stats(s));
    if (!s.over && signal === 'SIGKILL') complete(s, PROMPTS[0]); // in the middle of something
    if (s.over) run.check(`${name} runs on`, false, s.log.slice(-800));
    life.samples = run.sampler.end(s.pid);
    const end = await stop(s, signal);
    run.check(`${name}: llama-server is gone`, await until(() => !alive(s.pid)));
    run.check(`${name} ends by ${signal}`, signal === 'SIGKILL' ? end === 'SIGKILL' : end === 0, `${end}; ${life.sessions} requests, ${life.tokens} tokens`);
    if (faults && signal !== 'SIGKILL') {
        life.faults = Number(readFileSync(log, 'utf8').match(/faults (\d+)/)?.[1] ?? 0);
        run.check(`${name}: reads failed`, life.faults > 0, `${life.faults} of them, ${life.failed} requests`);
    }
    return life;
}

// A client that hangs up while it waits for its turn.
function impatient(s) {
    return new Promise((done) => {
        const req = http.request(`${s.url}/completion`, { method: 'POST', agent: false, headers: { 'content-type': 'application/json' } });
        req.on('error', () => {});
        req.on('close', done);
        req.end(JSON.stringify({ prompt: 'never to be read', n_predict: 400, ignore_eos: true }), () => setTimeout(() => req.destroy(), 10));
    });
}

// A reader of the window's events who leaves after some.
function listen(s, events) {
    return request(`${s.window}/events`, { onData: (text, req) => { if (text.split('\n\n').length > events) req.destroy(); } });
}
