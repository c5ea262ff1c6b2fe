// proc.mjs - what /proc says of a process over time, and whether that is flat.
import { readFileSync, readdirSync, appendFileSync, writeFileSync } from 'node:fs';

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Conditions are waited for, not for a time; the limit only ends a hang.
export async function until(condition, ms = 600_000) {
    for (const end = Date.now() + ms; Date.now() < end;) {
        if (await condition()) return true;
        await sleep(20);
    }
    return false;
}

export function alive(pid) {
    try {
        return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'latin1'));
    } catch {
        return false;
    }
}

// The one child of a process.
export const childOf = (pid) => Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').trim().split(' ')[0]);

// One look: anonymous memory and proportional share in KiB, descriptors, threads. null: it is not there any more.
export function look(pid) {
    try {
        const status = readFileSync(`/proc/${pid}/status`, 'latin1');
        const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1');
        const number = (text, key) => Number(text.match(new RegExp(`^${key}:\\s+(\\d+)`, 'm'))[1]);
        return {
            anon: number(status, 'RssAnon'), pss: number(rollup, 'Pss'), threads: number(status, 'Threads'),
            fds: readdirSync(`/proc/${pid}/fd`).length,
        };
    } catch {
        return null;
    }
}

// Names of shared memory that a process has mapped: only what has a name can outlive it.
function sharedMemory(pid) {
    try {
        return readFileSync(`/proc/${pid}/maps`, 'latin1').match(/\/dev\/shm\/.*|\/SYSV.*/g) ?? [];
    } catch {
        return [];
    }
}

export function median(list) {
    const s = [...list].sort((a, b) => a - b);
    return s.length === 0 ? NaN : (s[(s.length - 1) >> 1] + s[s.length >> 1]) / 2;
}

// Of numbers in the order in which they came: medians of the first and the last third, and how much the line that fits all
// of them best rises from the first to the last.
export function trend(list) {
    const n = list.length;
    const third = Math.max(1, Math.floor(n / 3));
    const mean = list.reduce((a, b) => a + b, 0) / n;
    const mid = (n - 1) / 2;
    let above = 0;
    let below = 0;
    list.forEach((y, x) => { above += (x - mid) * (y - mean); below += (x - mid) ** 2; });
    return { n, first: median(list.slice(0, third)), last: median(list.slice(-third)), rise: below ? (above / below) * (n - 1) : 0 };
}

// Looks at processes now and then, for as long as they live. Everything goes to a CSV file as well.
export class Sampler {
    constructor(file, ms) {
        this.file = file;
        this.of = new Map(); // pid -> { name, samples }
        this.shared = new Set(); // names of shared memory that any of them had
        this.began = Date.now();
        writeFileSync(file, 'seconds,name,pid,anon_kib,pss_kib,fds,threads\n');
        this.timer = setInterval(() => this.sample(), ms);
    }

    watch(name, pid) {
        this.of.set(pid, { name, samples: [] });
    }

    sample() {
        for (const [pid, { name, samples }] of this.of) {
            const s = look(pid);
            if (!s) continue;
            if (samples.push(s) % 10 === 5) for (const name of sharedMemory(pid)) this.shared.add(name);
            appendFileSync(this.file, `${((Date.now() - this.began) / 1000).toFixed(2)},${name},${pid},${s.anon},${s.pss},${s.fds},${s.threads}\n`);
        }
    }

    // What was seen of a process, which is not watched from here on.
    end(pid) {
        const { samples } = this.of.get(pid) ?? { samples: [] };
        this.of.delete(pid);
        return samples;
    }

    stop() {
        clearInterval(this.timer);
    }
}
