/* main.js - puts a report where its parts are shown, and decides when to draw. */
(() => {
    const $ = (id) => document.getElementById(id);
    const root = document.documentElement;
    const history_ = History.make();
    let charts = null;
    let disk = null; // bytes per second that the disk was measured at, or reached
    let drawn = -1; // second of the program's clock that the charts end with
    let dirty = false; // reports came while nobody looked
    let chosen = false; // the reader chose what a narrow screen shows

    const text = (id, value) => {
        if ($(id).textContent !== value) $(id).textContent = value;
    };

    function build() {
        const span = History.SPAN;
        const line = (label, colour, show, more = {}) => ({ label, colour, show, fill: true, ...more });
        const ms = (v) => `${Format.short(v)} ms`;
        const percent = (v) => `${v.toFixed(0)} %`;
        charts = {
            generation: Charts.make('c-gen', { span, series: [line('', 'accent', Format.short)] }),
            prompt: Charts.make('c-prompt', { span, series: [line('', 'accent', Format.short, { bars: true })] }),
            time: Charts.make('c-time', {
                span,
                stacked: true,
                series: [line('experts', 'accent', ms, { bars: true }), line('other', 'rest', ms, { bars: true }), line('waiting for reads', 'warn', ms, { bars: true })],
            }),
            disk: Charts.make('c-disk', {
                span,
                top: () => (disk ? (disk * 1.1) / 1e9 : 0),
                series: [line('read', 'warn', Format.short), line('disk', 'muted', Format.short, { fill: false, dash: [4, 4] })],
            }),
            hits: Charts.make('c-hit', {
                span,
                max: 100,
                series: [line('by count', 'accent', percent), line('by bytes', 'muted', percent, { fill: false, dash: [4, 3] })],
            }),
        };
    }

    function drawCharts() {
        const c = history_.columns();
        const times = (column, factor) => column.map((v) => (v === null ? null : v * factor));
        Charts.set(charts.generation, c.x, [c.generation], c.now);
        Charts.set(charts.prompt, c.x, [c.prompt], c.now);
        Charts.set(charts.time, c.x, [c.compute, c.other, c.stall], c.now);
        Charts.set(charts.disk, c.x, [times(c.bytes, 1e-9), c.x.map(() => (disk ? disk / 1e9 : null))], c.now);
        Charts.set(charts.hits, c.x, [times(c.hits, 100), times(c.hitBytes, 100)], c.now);
    }

    function phaseLine(p) {
        return p.tokens ? `${Format.count(p.tokens)} tokens, mean ${Format.short(p.tokens / p.wall_seconds)}` : 'none yet';
    }

    function tiles(s) {
        text('t-gen', Format.short(s.now.generation_tokens_per_second));
        text('t-gen-sub', phaseLine(s.generation));
        text('t-prompt', Format.short(s.now.prompt_tokens_per_second));
        text('t-prompt-sub', phaseLine(s.prompt));
        text('t-disk', Format.gbs(s.now.read_bytes_per_second));
        const d = s.disk;
        const probed = d.probed_bytes_per_second;
        disk = probed ?? (d.best_bytes_per_second || null);
        const share = disk ? `${Format.percent(s.now.read_bytes_per_second / disk)} of ` : '';
        text('t-disk-sub', disk ? `${share}${Format.gbs(disk)} ${probed ? 'probed' : 'best so far'}` : `${d.io}, ${d.lanes} at once`);
        const all = (name) => s.prompt[name] + s.generation[name];
        const asked = all('hits') + all('misses');
        const asked_bytes = all('hit_bytes') + all('miss_bytes');
        text('t-hit', s.now.hit_rate === null ? Format.NONE : (100 * s.now.hit_rate).toFixed(0));
        text('t-hit-sub', asked ? `in all ${Format.percent(all('hits') / asked)}, bytes ${Format.percent(all('hit_bytes') / asked_bytes)}` : 'nothing asked for yet');
        text('t-mem', Format.gib(s.memory.used.total_bytes));
        text('t-mem-sub', s.memory.plan ? `of ${Format.gib(s.memory.plan.total_bytes)} planned` : 'no plan yet');
    }

    function head(s) {
        const m = s.model;
        text('model', m ? m.name : 'no model yet');
        text('program', `${s.program}${m ? `, ${m.layers} layers × ${m.experts} experts${m.experts_used ? `, ${m.experts_used} per token` : ''}` : ''}`);
        $('guarantee').hidden = !m;
        text('guarantee', s.lossy ? 'lossy' : 'lossless');
        $('guarantee').className = `badge ${s.lossy ? 'lossy' : 'lossless'}`;
        text('mode', s.mode);
        text('version', `sluice ${s.version}`);
        const rate = s.now.generation_tokens_per_second;
        document.title = rate ? `${Format.short(rate)} tok/s, sluice` : 'sluice';
        const bad = [s.error, s.warning].filter(Boolean).join(' ');
        $('banner').hidden = !bad;
        $('banner').className = `banner ${s.error ? 'error' : ''}`;
        text('banner', bad);
    }

    /* The chat's address: given whole, or as a port of the host that this page came from. */
    function chatAddress(chat) {
        if (!chat) return '';
        return chat.url ?? `http://${location.hostname}:${chat.port}`;
    }

    function stats(s) {
        head(s);
        tiles(s);
        Memory.draw(s.memory);
        Settings.set(s.settings);
        const chat = chatAddress(s.chat);
        Chat.connect(chat);
        if (!chosen) view(chat ? 'chat' : 'live');
        if (!chat && root.dataset.view === 'chat') view('live');
        history_.push(s);
        const second = Math.floor(s.uptime_seconds);
        if (document.hidden) dirty = true;
        else if (second !== drawn) drawCharts(); // they show whole seconds: once for each is enough
        drawn = second;
    }

    function link(state) {
        root.dataset.link = state;
        text('link-text', { connecting: 'connecting', live: 'live', lost: 'disconnected, trying again' }[state]);
    }

    /* On a narrow screen one part is shown at a time: the chat, until the reader chooses. */
    function view(name) {
        if (root.dataset.view === name) return;
        root.dataset.view = name;
        for (const button of document.querySelectorAll('.views button')) {
            if (button.dataset.show === name) button.setAttribute('aria-current', 'true');
            else button.removeAttribute('aria-current');
        }
        scrollTo(0, 0);
    }

    for (const button of document.querySelectorAll('.views button')) {
        button.addEventListener('click', () => {
            chosen = true;
            view(button.dataset.show);
        });
    }
    document.addEventListener('visibilitychange', () => {
        if (document.hidden || !dirty) return;
        dirty = false;
        drawCharts();
    });
    $('licences').textContent = LICENCES;
    build();
    drawCharts();
    CacheMap.start();
    Settings.start();
    Chat.start();
    Feed.open({ link, stats, map: CacheMap.set });
})();
