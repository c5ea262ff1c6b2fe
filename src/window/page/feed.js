/*
 * feed.js - what the program says, over server-sent events, and the last minutes of it.
 *
 * Feed keeps the connection: when the program ends or restarts it says so, asks again once a second, and goes on with
 * whatever program answers. The browser's own reconnecting is not used: it gives up on some errors and waits for long on
 * others.
 *
 * History turns counters that only grow into numbers per second of the clock. What a step did is known when it ends, and a
 * step may take longer than the second between two reports (a prompt, a slow disk): so its time, tokens and bytes are
 * spread evenly over the seconds that it took, back from its end. A model at 0.2 tokens per second so gives a line, not a
 * row of spikes.
 */
const Feed = (() => {
    const RETRY_MS = 1000; // between two attempts to connect
    const SILENT_MS = 5000; // without news for so long, the connection is given up: reports come twice a second

    /* on: { link(state), stats(object), map(object) }; state: 'connecting', 'live' or 'lost'. */
    function open(on) {
        let source = null;
        let timer = 0;
        let known = false; // there was a connection before

        function lost() {
            source.close();
            source = null;
            clearTimeout(timer);
            on.link(known ? 'lost' : 'connecting');
            timer = setTimeout(connect, RETRY_MS);
        }

        function alive() {
            clearTimeout(timer);
            timer = setTimeout(lost, SILENT_MS);
        }

        function receive(name, event) {
            alive();
            let data;
            try {
                data = JSON.parse(event.data);
            } catch {
                return; // cut off; the next one comes at once
            }
            if (name === 'stats') {
                known = true;
                on.link('live');
            }
            on[name](data);
        }

        function connect() {
            source = new EventSource('events');
            source.addEventListener('error', lost);
            source.addEventListener('stats', (e) => receive('stats', e));
            source.addEventListener('map', (e) => receive('map', e));
            alive();
        }

        on.link('connecting');
        connect();
    }

    return { open };
})();

const History = (() => {
    const SPAN = 120; // seconds kept and shown
    const PARTS = ['tokens', 'wall', 'compute', 'stall', 'other']; // per phase

    /* The counters of a report that are charted. */
    function counters(stats) {
        const phase = (p) => ({
            tokens: p.tokens,
            wall: p.wall_seconds,
            compute: p.compute_seconds,
            stall: p.stall_seconds,
            other: p.other_seconds + p.bookkeeping_seconds,
        });
        const sum = (name) => stats.prompt[name] + stats.generation[name];
        return {
            pid: stats.pid,
            t: stats.uptime_seconds,
            prompt: phase(stats.prompt),
            generation: phase(stats.generation),
            bytes: sum('read_bytes'),
            hits: sum('hits'),
            misses: sum('misses'),
            hitBytes: sum('hit_bytes'),
            missBytes: sum('miss_bytes'),
        };
    }

    const fresh = () => ({
        seen: 0, // how much of this second the reports cover, seconds
        prompt: Object.fromEntries(PARTS.map((p) => [p, 0])),
        generation: Object.fromEntries(PARTS.map((p) => [p, 0])),
        bytes: 0, hits: 0, misses: 0, hitBytes: 0, missBytes: 0,
    });

    function make() {
        let last = null; // counters of the last report
        let seconds = new Map(); // second of the program's clock -> what happened in it

        /* Call add(second, share of the interval) for each second that from..to touches. */
        function spread(from, to, add) {
            from = Math.max(from, to - SPAN, 0);
            const length = to - from;
            for (let s = Math.floor(from); s < to; s++) {
                const part = Math.min(to, s + 1) - Math.max(from, s);
                if (part <= 0) continue;
                if (!seconds.has(s)) seconds.set(s, fresh());
                add(seconds.get(s), part / length, part);
            }
        }

        function push(stats) {
            const now = counters(stats);
            const was = last;
            last = now;
            if (!was || was.pid !== now.pid || now.t < was.t) {
                seconds = new Map(); // another program, another clock
                return;
            }
            if (now.t === was.t) {
                last = was;
                return;
            }
            spread(was.t, now.t, (s, share, length) => {
                s.seen += length;
                for (const name of ['bytes', 'hits', 'misses', 'hitBytes', 'missBytes']) s[name] += share * (now[name] - was[name]);
            });
            for (const phase of ['prompt', 'generation']) {
                const wall = now[phase].wall - was[phase].wall;
                if (!(wall > 0)) continue;
                spread(now.t - wall, now.t, (s, share) => {
                    for (const part of PARTS) s[phase][part] += share * (now[phase][part] - was[phase][part]);
                });
            }
            for (const s of seconds.keys()) {
                if (s < now.t - SPAN - 1) seconds.delete(s);
            }
        }

        /* The whole seconds up to now, oldest first, as columns for charts; null where nothing was to be measured. */
        function columns() {
            const end = last ? Math.floor(last.t) : 0;
            const c = { now: end, x: [], generation: [], prompt: [], compute: [], stall: [], other: [], bytes: [], hits: [], hitBytes: [] };
            for (let x = end - SPAN; x < end; x++) {
                const s = seconds.get(x);
                const rate = (p) => (s && s[p].wall > 1e-6 && s[p].tokens > 0 ? s[p].tokens / s[p].wall : null);
                const perToken = (part) => (s && s.generation.tokens > 0 ? (1000 * s.generation[part]) / s.generation.tokens : null);
                c.x.push(x);
                c.generation.push(rate('generation'));
                c.prompt.push(rate('prompt'));
                for (const part of ['compute', 'stall', 'other']) c[part].push(perToken(part));
                c.bytes.push(s && s.seen > 0.2 ? s.bytes / s.seen : null);
                c.hits.push(s && s.hits + s.misses > 0 ? s.hits / (s.hits + s.misses) : null);
                c.hitBytes.push(s && s.hitBytes + s.missBytes > 0 ? s.hitBytes / (s.hitBytes + s.missBytes) : null);
            }
            return c;
        }

        return { push, columns };
    }

    return { make, SPAN };
})();
