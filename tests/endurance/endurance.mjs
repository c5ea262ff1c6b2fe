// endurance.mjs - the endurance run: what runs beside what, for how long, and what must hold at the end. Started by run.sh.
//
// Three programs share one disk at any time: a soak with reader threads that lives from beginning to end (its memory is
// what is looked at most), soaks with lru that are killed and started again, and llama-server with the plug-in, the
// same; beside them `sluice run`, a text at a time. Each has a share of the tokens, so that they end at about the same time. What happens is drawn from one seed.
import { readdirSync, readFileSync, rmSync, writeFileSync, existsSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { Sampler, alive, trend } from './proc.mjs';
import { soak } from './soaks.mjs';
import { reference, serve } from './server.mjs';
import { runs } from './runs.mjs';

const { BIN, LLAMA_BIN, WORK, TOKENS, DEMO, SANITIZED, ENDURANCE_SEED } = process.env;
const total = Number(TOKENS);
const short = total < 20000;
const seed = Number(ENDURANCE_SEED || Math.floor(Date.now() / 1000));

// Bounds, in KiB. Of memory between two models, measured by the soak itself after malloc gave back what it holds free; of what
// malloc has given out then; and of samples of whole lives, which contain whatever runs at that moment (a model in turn, a cache of any size).
const BOUND = { quiet: 1024, heap: 256, samples: 8192 };
const ENOUGH = 60; // samples, after the first quarter, which is warm-up

let state = seed;
const run = {
    bin: BIN, llama: LLAMA_BIN, work: WORK, demo: DEMO, sanitized: SANITIZED === '1', failed: 0, checks: 0, children: new Set(), sampler: null,
    models: [DEMO, ...readdirSync(`${WORK}/models`).sort().map((f) => `${WORK}/models/${f}`)],
    // mulberry32
    random(n) {
        state = (state + 0x6d2b79f5) | 0;
        let t = Math.imul(state ^ (state >>> 15), 1 | state);
        t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
        return ((t ^ (t >>> 14)) >>> 0) % n;
    },
    check(label, good, detail = '') {
        run.checks++;
        if (!good) run.failed++;
        console.log(`${good ? 'ok  ' : 'FAIL'} ${label}${detail === '' ? '' : `: ${detail}`}`);
    },
    done: {},
    progress(name, tokens) {
        run.done[name] = tokens;
        const now = Date.now();
        if (now - (run.told ?? 0) < 30_000) return;
        run.told = now;
        const sum = Object.values(run.done).reduce((a, b) => a + b, 0);
        console.log(`     ${((now - began) / 1000).toFixed(0)} s: ${sum} tokens`);
    },
};
const began = Date.now();
process.on('exit', () => { for (const c of run.children) c.kill('SIGKILL'); });
for (const sig of ['SIGINT', 'SIGTERM']) process.on(sig, () => process.exit(1));
// A file left by something else would be counted as ours.
const statDir = `${process.env.XDG_RUNTIME_DIR}/sluice-${process.getuid()}`;
const statFiles = () => (existsSync(statDir) ? readdirSync(statDir).filter((f) => f.endsWith('.stat')) : []);
const sockets = () => readFileSync('/proc/net/unix', 'utf8').split('\n').filter((l) => l.includes(WORK)).length;

console.log(`     seed ${seed}, ${total} tokens, ${run.models.length} models`);
run.sampler = new Sampler(`${WORK}/samples.csv`, short ? 100 : 500);

const share = (part) => Math.round(total * part);
const perRound = short ? 50 : 200;
const lives = { steady: null, killed: [], servers: [], run: null };
let mostFiles = 0; // stat files at a time
const counting = setInterval(() => { mostFiles = Math.max(mostFiles, statFiles().length); }, 200);

async function steady() {
    lives.steady = await soak(run, { name: 'soak, cycle', tokens: share(0.5), perRound, settings: ['cache_policy=cycle'], seed });
}

async function soaksToKill() {
    const part = share(run.sanitized ? 0.45 : 0.33);
    const ends = short ? ['SIGKILL', null] : [null, 'SIGKILL', 'SIGTERM', 'SIGKILL', 'SIGTERM', null];
    const each = Math.ceil(part / ends.length);
    for (const [i, signal] of ends.entries()) {
        if (run.failed) return;
        const life = await soak(run, { name: `soak, lru ${i + 1}`, tokens: each, perRound, settings: ['cache_policy=lru'], seed: seed + i + 1,
            signal, killAfter: Math.max(1, Math.ceil(each / perRound)) });
        lives.killed.push(life);
    }
}

async function servers() {
    if (run.sanitized) return;
    const want = await reference(run);
    if (run.failed) return;
    const part = Math.max(share(0.12), 600);
    const plan = short ? [
        { part: 0.5, signal: 'SIGTERM', faults: { FAULTY_MODE: 'eio', FAULTY_EVERY: '4000', FAULTY_AFTER: '300' } },
        { part: 0.5, signal: 'SIGKILL', bySluice: true },
    ] : [
        { part: 0.06, signal: 'SIGKILL' },
        { part: 0.06, signal: 'SIGTERM', faults: { FAULTY_MODE: 'eio', FAULTY_EVERY: '5000', FAULTY_AFTER: '300' } },
        { part: 0.06, signal: 'SIGKILL', env: { SLUICE_IO_THREADS: '1' } },
        { part: 0.06, signal: 'SIGTERM', faults: { FAULTY_MODE: 'short', FAULTY_EVERY: '7' } },
        { part: 0.58, signal: 'SIGTERM' },
        { part: 0.06, signal: 'SIGKILL', env: { SLUICE_CACHE_POLICY: 'lru' } },
        { part: 0.06, signal: 'SIGKILL', bySluice: true },
        { part: 0.06, signal: 'SIGTERM', bySluice: true },
    ];
    for (const [i, p] of plan.entries()) {
        if (run.failed) return;
        lives.servers.push(await serve(run, want, { ...p, name: `${p.bySluice ? 'sluice serve' : 'llama-server'} ${i + 1}`, tokens: Math.round(part * p.part) }));
    }
}

async function single() {
    lives.run = await runs(run, share(0.05));
}

await Promise.all([steady(), soaksToKill(), servers(), single()]);
clearInterval(counting);
run.sampler.stop();

// ---- what must hold at the end

const table = [];
// Flat? values in KiB over a life.
function flat(name, what, values, bound) {
    const kept = values.slice(Math.ceil(values.length / 4));
    if (run.sanitized || kept.length < (what === 'anonymous' ? ENOUGH : 3) || (short && what === 'anonymous')) return;
    const t = trend(kept);
    table.push([name, what, t.n, t.first, t.last, t.rise, bound]);
    const grown = Math.max(t.last - t.first, t.rise);
    run.check(`${name}: ${what} memory is flat`, grown <= bound, `first third ${t.first.toFixed(0)} KiB, last ${t.last.toFixed(0)}, the line rises ${t.rise.toFixed(0)}; bound ${bound}; ${t.n} values`);
}
const soaks = [lives.steady, ...lives.killed].filter(Boolean);
for (const life of soaks) {
    // A round's memory depends on its model: whole turns through the models are compared.
    const turns = [];
    const n = run.models.length;
    for (let i = n; i + n <= life.quiet.length; i += n) turns.push(life.quiet.slice(i, i + n));
    const mean = (key) => turns.map((turn) => turn.reduce((a, q) => a + q[key], 0) / n);
    if (!short) flat(life.name, 'quiet', mean('anon'), BOUND.quiet);
    flat(life.name, 'malloc', mean('heap'), BOUND.heap);
    flat(life.name, 'anonymous', life.samples.map((s) => s.anon), BOUND.samples);
}
for (const life of lives.servers) flat(life.name, 'anonymous', life.samples?.map((s) => s.anon) ?? [], BOUND.samples);

// Files of killed processes are removed by the next that starts; what the last ones left, by `sluice top`.
const killed = soaks.filter((l) => l.killed).length + lives.servers.filter((l) => l.killed === 'SIGKILL').length + (lives.run?.killed ?? 0);
run.check('counters\' files do not pile up', mostFiles <= 8, `${mostFiles} at most at a time, ${killed} processes were killed`);
const top = spawnSync(`${BIN}/sluice`, ['top', '--once'], { encoding: 'utf8' });
const left = statFiles();
run.check('none of them outlives `sluice top`', left.length === 0, `${left.join(' ')} ${top.stderr.trim()}`);
run.check('no shared memory has a name', run.sampler.shared.size === 0, [...run.sampler.shared].join(' '));
run.check('no socket is left', sockets() === 0);
run.check('no process is left', [...run.children].every((c) => !alive(c.pid)));

const sum = (list, key) => list.reduce((a, l) => a + (l?.[key] ?? 0), 0);
const all = [...soaks, ...lives.servers, ...lives.run ? [lives.run] : []];
const tokens = sum(all, 'tokens');
run.check('all tokens were computed', tokens >= total * 0.9, `${tokens} of ${total}`);
const seconds = (Date.now() - began) / 1000;
const sessions = sum(soaks, 'contexts') + sum(lives.servers, 'sessions') + sum([lives.run], 'sessions');
const report = {
    seed, seconds, tokens, sessions, models: run.models.map((m) => m.replace(/.*\//, '')),
    cancelled: sum(all, 'cancelled'), changes: sum(all, 'changes'), faults: sum(all, 'faults'), failed: sum(all, 'failed'), killed,
    rounds: sum(soaks, 'rounds'), memory: table, mostFiles, kinds: lives.run?.kinds,
    programs: all.map((l) => ({ name: l.name, tokens: l.tokens, sessions: l.contexts ?? l.sessions, cancelled: l.cancelled, changes: l.changes, faults: l.faults,
        failed: l.failed, killed: l.killed ?? null, quiet: l.quiet?.length, fds: l.quiet?.at(-1)?.fds, threads: l.quiet?.at(-1)?.threads, summary: l.text })),
};
writeFileSync(`${WORK}/report.json`, `${JSON.stringify(report, null, 1)}\n`);
console.log(`     ${tokens} tokens in ${seconds.toFixed(0)} s; ${sessions} sessions, ${report.rounds} loads of a model in the soaks, ${report.cancelled} cancelled, `
    + `${report.changes} changes of settings, ${report.faults} faults (${report.failed} steps and requests failed), ${killed} processes killed`);
for (const p of report.programs) console.log(`     ${JSON.stringify(p)}`);
console.log(`${run.checks - run.failed} of ${run.checks} checks passed`);
if (run.failed === 0) rmSync(`${WORK}/tmp`, { recursive: true, force: true });
process.exit(run.failed ? 1 : 0);
