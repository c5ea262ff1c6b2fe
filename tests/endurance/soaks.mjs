// soaks.mjs - the programs that compute inside themselves: sluice-soak (tests/soak/), which compares every logit, changes
// budgets, cancels, fails reads and looks at its own descriptors and threads. Here it is started, watched, and killed.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

// One life of a soak. killAfter: rounds after which it is killed by `signal`, at some moment of the next.
export async function soak(run, { name, tokens, perRound, settings, signal = null, killAfter = 0, seed }) {
    const rounds = Math.max(1, Math.ceil(tokens / perRound));
    const args = ['--tokens', `${perRound}`, '--rounds', `${signal ? rounds + 1000 : rounds}`, '--seed', `${seed}`, '--trace', `${run.work}/tmp/${name}.csv`,
        '--set', 'publish=1', ...settings.flatMap((s) => ['--set', s]), ...run.models];
    const child = spawn(`${run.bin}/sluice-soak`, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const life = { name, rounds: 0, tokens: 0, contexts: 0, changes: 0, cancelled: 0, faults: 0, failed: 0, quiet: [], text: '', log: '' };
    run.sampler.watch(name, child.pid);
    run.children.add(child);
    child.stderr.on('data', (d) => { life.log = (life.log + d).slice(-2000); });
    const ended = new Promise((done) => child.on('close', (code, sig) => done({ code, sig })));
    for await (const line of createInterface({ input: child.stdout })) {
        if (line.startsWith('round ')) {
            const value = (key) => Number(line.match(new RegExp(` ${key} (\\d+)`))?.[1]);
            life.rounds++;
            for (const key of ['tokens', 'contexts', 'changes', 'cancelled', 'faults', 'failed']) life[key] = value(key);
            life.quiet.push({ fds: value('fds'), threads: value('threads'), heap: value('heap_kib'), anon: value('anon_kib') });
            run.progress(name, life.tokens);
            if (signal && life.rounds === killAfter) setTimeout(() => child.kill(signal), run.random(200));
        } else if (line.startsWith('soak: ')) {
            life.text = line;
        }
    }
    const { code, sig } = await ended;
    life.samples = run.sampler.end(child.pid);
    run.children.delete(child);
    const good = signal ? sig === signal : code === 0;
    run.check(`${name} ends ${signal ? `by ${signal}` : 'well'}`, good, good ? `${life.rounds} rounds, ${life.tokens} tokens` : `${code ?? sig}: ${life.log}${life.text}`);
    life.killed = signal;
    return life;
}
