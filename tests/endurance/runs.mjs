// runs.mjs - `sluice run`, again and again for one short text each: with the defaults, on a disk that fails,
// killed at any moment, with traces that go to a full disk and no room for its counters' file. A run that ends by
// itself gives the text of a resident one; one that does not says why, and what it had written is the beginning of that text.
import { spawn, execFileSync } from 'node:child_process';

const N = 40;
const PROMPTS = ['Once upon a time', 'The little dog', 'One day the sun', 'A bird sat on'];

function start(run, args, { env = {}, wrap = [] } = {}) {
    const all = [...wrap, `${run.bin}/sluice`, 'run', '-m', run.demo, '-t', '2', '-n', `${N}`, '--ignore-eos', '--temp', '0', '-c', '256', '-q', ...args];
    const child = spawn(all[0], all.slice(1), { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    const r = { child, out: '', err: '' };
    child.stdout.setEncoding('latin1'); // bytes: an interrupted text may end within a character
    run.children.add(child);
    child.stdout.on('data', (d) => { r.out += d; });
    child.stderr.on('data', (d) => { r.err += d; });
    r.ended = new Promise((done) => child.on('close', (code, sig) => { run.children.delete(child); done(code ?? sig); }));
    return r;
}

// A file system of a few KiB, full, of which nobody else sees anything. False: that is not allowed here.
function tinyAllowed() {
    try {
        execFileSync('unshare', ['-m', 'mount', '-t', 'tmpfs', '-o', 'size=4k', 'none', '/mnt'], { stdio: 'ignore' });
        return true;
    } catch {
        return false;
    }
}

export async function runs(run, tokens) {
    const life = { name: 'sluice run', tokens: 0, sessions: 0, cancelled: 0, failed: 0, killed: 0, full: 0, kinds: {} };
    const want = [];
    for (const prompt of PROMPTS) {
        const r = start(run, ['-p', prompt, '--resident']);
        run.check('sluice run, resident', await r.ended === 0 && r.out.length > 0, r.err.slice(0, 300));
        want.push(r.out);
    }
    const preload = (mode, every, after) => ({ env: { LD_PRELOAD: `${run.bin}/libsluice-faulty.so`, FAULTY_MODE: mode, FAULTY_EVERY: `${every}`, FAULTY_AFTER: `${after}` } });
    const fill = 'mount -t tmpfs -o size=4k,mode=700 none "$0" && head -c 4096 /dev/zero >"$0/full" && exec "$@"';
    const kinds = [
        { name: 'defaults' },
        { name: 'traces to a full disk', args: ['--route-trace', '/dev/full', '--csv', '/dev/full'], may: /No space left/ },
        { name: 'SIGKILL', signal: 'SIGKILL' },
        { name: 'SIGINT', signal: 'SIGINT' },
        { name: 'SIGTERM', signal: 'SIGTERM' },
        ...run.sanitized ? [] : [
            { name: 'short reads', ...preload('short', 3, 0) },
            { name: 'failing reads', ...preload('eio', 1, 200 + run.random(400)), may: /failed: Input\/output error/ },
        ],
        ...tinyAllowed() ? [{ name: 'no room for counters', wrap: ['unshare', '-m', 'sh', '-c', fill, `${run.work}/xdg`] }] : [],
    ];
    for (let i = 0; (life.tokens < tokens || i < kinds.length) && !run.failed; i++) {
        const kind = kinds[i % kinds.length];
        const which = run.random(PROMPTS.length);
        const cache = ['0', '1MiB', '2MiB', '4MiB', '64MiB'][run.random(5)];
        const r = start(run, ['-p', PROMPTS[which], '--cache', cache, '--force-cache', ...kind.args ?? []], kind);
        const timer = kind.signal && setTimeout(() => r.child.kill(kind.signal), 20 + run.random(400));
        const end = await r.ended;
        clearTimeout(timer);
        life.sessions++;
        life.kinds[kind.name] = (life.kinds[kind.name] ?? 0) + 1;
        const whole = end === 0 && r.out === want[which];
        const said = kind.may?.test(r.err) && want[which].startsWith(r.out.trimEnd());
        // A program that was told to end may have been quicker.
        const ended = kind.signal && (end === kind.signal || end === 0 || end === 130) && want[which].startsWith(r.out.trimEnd());
        if (!whole && !said && !ended) {
            run.check(`sluice run, ${kind.name}, cache ${cache}`, false, `${end}: ${r.err.slice(0, 400)} | ${JSON.stringify(r.out)} | ${JSON.stringify(want[which])}`);
        }
        life.tokens += whole ? N : Math.round(N * r.out.length / want[which].length);
        life.failed += !whole && said ? 1 : 0;
        life.killed += !whole && ended ? 1 : 0;
        run.progress(life.name, life.tokens);
    }
    return life;
}
