/*
 * settings.js - what may be changed while the model runs, what each costs, and what was measured of the lossy ones.
 *
 * A value that the reader is editing is left alone until it is applied; everything else follows the program, which may
 * refuse (its message is shown) or be changed from elsewhere. Changes need the token that the program printed: it comes in
 * the address after #, is kept for this tab and taken out of the address bar, and without it everything is only shown.
 */
const Settings = (() => {
    const KEY = 'sluice.token'; // in sessionStorage
    const $ = (id) => document.getElementById(id);
    let token = '';
    let current = null; // settings of the last report
    const rows = new Map(); // by name: { element, control, show(value), read(), dirty, badge, reason, said, button }

    function element(tag, className, ...children) {
        const e = document.createElement(tag);
        if (className) e.className = className;
        e.append(...children);
        return e;
    }

    /* ---- the token ---- */

    function takeToken() {
        const m = /[#&]token=([A-Za-z0-9_-]+)/.exec(location.hash);
        if (m) {
            keepToken(m[1]);
            history.replaceState(null, '', location.pathname + location.search);
        } else {
            try {
                token = sessionStorage.getItem(KEY) || '';
            } catch {
                token = ''; // no storage in this browser: the token lives as long as the page
            }
        }
    }

    function keepToken(text) {
        token = text;
        try {
            if (text) sessionStorage.setItem(KEY, text);
            else sessionStorage.removeItem(KEY);
        } catch {
            // the same
        }
    }

    /* ---- sending ---- */

    function say(text, bad) {
        $('settings-said').textContent = text;
        $('settings-said').classList.toggle('error', !!bad);
    }

    async function apply(name) {
        const row = rows.get(name);
        const value = row.read();
        if (value === null) {
            row.said.textContent = 'A size like 2000MiB or 4GiB.';
            return;
        }
        row.busy = true;
        row.said.textContent = 'waiting for the running layers';
        refresh();
        try {
            const response = await fetch('settings', {
                method: 'POST',
                headers: { 'content-type': 'application/json', 'x-sluice-token': token },
                body: JSON.stringify({ [name]: value }),
            });
            const answer = await response.json().catch(() => ({}));
            if (response.status === 401 || response.status === 403) {
                keepToken('');
                row.said.textContent = '';
                say(answer.error || 'That token is not the program’s.', true);
                $('token').value = '';
            } else if (!response.ok) {
                row.said.textContent = answer.error || `Refused (${response.status}).`;
            } else {
                row.dirty = false;
                row.said.textContent = answer.changed?.length === 0 ? 'as it was' : 'in force';
                if (answer.settings) current = answer.settings;
                say('');
            }
        } catch {
            row.said.textContent = 'No answer from the program.';
        }
        row.busy = false;
        if (!row.button) row.dirty = false; // a box shows what is in force, also after a refusal
        refresh();
    }

    /* ---- what was measured ---- */

    const headings = (...texts) => {
        const tr = element('tr', '');
        for (const text of texts) tr.append(Object.assign(element('th', '', text), { scope: 'col' }));
        return element('thead', '', tr);
    };

    /* Rows of PRICES as a table: what is read less, how often another token is the likeliest, how far the model is off. */
    function priceTable(prices, first, label, caption) {
        const table = element('table', 'prices', element('caption', '', caption), headings(first, 'read less', 'other top token', 'KL, nats'));
        const body = element('tbody', '');
        for (const p of prices) {
            const cells = [label(p), Format.percent(p.avoided), Format.percent(1 - p.same_top, 1), p.kl.toFixed(4)];
            const tr = element('tr', '', ...cells.map((text, i) => element(i ? 'td' : 'th', '', text)));
            tr.firstChild.scope = 'row';
            tr.dataset.at = String(p.drop ?? p.experts);
            body.append(tr);
        }
        table.append(body);
        return table;
    }

    /* The measured rows that fit how experts are left out now; with copies, of each type that was measured. */
    function dropPrices() {
        const cold = !!current.cold_model?.value;
        const renorm = current.drop_renorm?.value === true;
        const reproducible = current.drop_reproducible?.value === true;
        return PRICES.filter((p) => p.method === (cold ? 'cold' : 'drop') && p.reproducible === reproducible && (cold || p.renorm === renorm));
    }

    const HOW = 'Measured on the demo model (32 experts, 4 per token) with room for a fifth of its experts: docs/quality.md. Other models lose other amounts.';
    let pricesShown = '';

    function drawPrices() {
        const prices = dropPrices();
        const state = JSON.stringify(prices);
        if (state !== pricesShown) {
            pricesShown = state;
            const way = prices[0].copies ? 'computed from smaller copies' : `the others ${prices[0].renorm ? 'scaled up' : 'left as they are'}`;
            rows.get('drop_cold_experts').prices.replaceChildren(
                priceTable(prices, 'F', (p) => [p.drop, p.copies].filter(Boolean).join(', '), `${HOW} Here: ${way}${prices[0].reproducible ? ', reproducible' : ''}.`));
        }
        // The measured values on either side of the chosen one.
        const f = Number(rows.get('drop_cold_experts').control.value);
        const measured = prices.map((p) => p.drop);
        const below = Math.max(...measured.filter((m) => m <= f), -1);
        const above = Math.min(...measured.filter((m) => m >= f), 2);
        for (const tr of rows.get('drop_cold_experts').prices.querySelectorAll('tbody tr')) {
            const at = Number(tr.dataset.at);
            tr.classList.toggle('chosen', f > 0 && (at === below || at === above));
        }
    }

    /* ---- the rows ---- */

    /* A row of the panel. `control` is the labelled input; `extra` stands beside it. */
    function addRow(name, title, cost, control, { extra = [], button = true, read = null, show = null, prices = false } = {}) {
        const row = { name, control, dirty: false, busy: false, read, show };
        control.id = `set-${name}`;
        row.badge = element('span', 'badge');
        row.reason = element('p', 'reason');
        row.said = element('span', 'said');
        row.said.setAttribute('role', 'status');
        row.button = button ? Object.assign(element('button', '', 'Apply'), { type: 'submit' }) : null;
        const label = Object.assign(element('label', '', title), { htmlFor: control.id });
        const costLine = Object.assign(element('p', 'cost', cost), { id: `cost-${name}` });
        control.setAttribute('aria-describedby', costLine.id);
        row.inputs = [control, ...extra.filter((e) => 'disabled' in e), ...(row.button ? [row.button] : [])];
        row.element = element('form', 'setting',
            element('div', 'setting-head', label, row.badge),
            element('div', 'row', control, ...extra, ...(row.button ? [row.button] : []), row.said),
            costLine, row.reason);
        if (prices) {
            row.prices = element('div', 'price-box');
            row.element.append(row.prices);
        }
        row.element.addEventListener('submit', (e) => {
            e.preventDefault();
            apply(name);
        });
        row.element.addEventListener('input', () => {
            row.dirty = true;
            row.said.textContent = '';
            refresh();
        });
        rows.set(name, row);
        $('settings-list').append(row.element);
    }

    function toggle(name, title, cost) {
        const box = Object.assign(element('input', ''), { type: 'checkbox' });
        const row = { read: () => box.checked, show: (v) => (box.checked = v === true) };
        addRow(name, title, cost, box, { button: false, ...row });
        box.addEventListener('change', () => apply(name));
    }

    function build() {
        const mode = element('select', '');
        for (const [value, text] of [['auto', 'automatic'], ['off', 'off'], ['size', 'this size']]) mode.append(Object.assign(element('option', '', text), { value }));
        const size = Object.assign(element('input', 'size'), { type: 'text', inputMode: 'text', spellcheck: false, autocomplete: 'off', placeholder: '2000MiB' });
        size.setAttribute('aria-label', 'Size of the expert cache, with a unit');
        addRow('cache', 'Expert cache', 'Costs memory; a smaller one reads more and is slower. Never changes the output.', mode, {
            extra: [size],
            read: () => (mode.value !== 'size' ? mode.value : /^\s*\d+(\.\d+)?\s*([kmgt](i?b)?)?\s*$/i.test(size.value) ? size.value.replace(/\s/g, '') : null),
            show: (v) => {
                mode.value = v === 'auto' || v === 'off' ? v : 'size';
                size.value = mode.value === 'size' ? v : '';
            },
        });
        mode.addEventListener('change', () => {
            if (mode.value === 'size') size.focus();
        });

        toggle('lookahead', 'Read ahead', 'Costs reads that turn out to be in vain, only while the disk is idle. Never changes the output.');

        const slider = Object.assign(element('input', ''), { type: 'range', min: '0', max: '1', step: '0.05' });
        const output = element('output', '');
        output.htmlFor = 'set-drop_cold_experts';
        addRow('drop_cold_experts', 'Leave out cold experts, F',
            'Costs accuracy: an expert that would have to be read is left out if its weight is below F / experts per token. 0 is off and lossless.', slider, {
                extra: [output],
                prices: true,
                read: () => Number(slider.value),
                show: (v) => (slider.value = String(v ?? 0)),
            });

        toggle('drop_renorm', 'Scale the others up', 'Costs accuracy: only with F above 0, and measured worse than leaving the others as they are.');

        const experts = Object.assign(element('input', 'size wide'), { type: 'text', readOnly: true });
        addRow('n_expert_used', 'Experts per token', 'Costs accuracy: fewer than the model’s own number make it another, weaker model.', experts, {
            button: false,
            prices: true,
            show: (v) => (experts.value = v === null ? 'the model’s own' : String(v)),
        });
        const fewer = PRICES.filter((p) => p.method === 'experts');
        rows.get('n_expert_used').prices.append(priceTable(fewer, 'of 4', (p) => String(p.experts), HOW));

        $('settings-list').append(element('details', 'fixed', element('summary', '', 'Fixed since the program started'),
            Object.assign(element('dl', 'fixed-list'), { id: 'fixed-list' })));
    }

    const FIXED = [
        ['memory', 'memory ceiling', (v) => (v === null ? 'what the machine leaves' : Format.bytes(v))],
        ['staging', 'cache that a prompt passes through', (v) => Format.bytes(v)],
        ['dense', 'dense weights', String],
        ['cache_policy', 'cache policy', String],
        ['io', 'reads by', String],
        ['io_threads', 'reads in flight', String],
        ['drop_in_prefill', 'leave out in prompts too', (v) => (v ? 'yes' : 'no')],
        ['drop_reproducible', 'leave out reproducibly', (v) => (v ? 'yes' : 'no')],
        ['cold_model', 'smaller copies of experts', (v) => v ?? 'none'],
    ];
    let fixedShown = '';

    function drawFixed() {
        const items = FIXED.filter(([name]) => current[name]).map(([name, title, text]) => [title, text(current[name].value)]);
        const state = JSON.stringify(items);
        if (state === fixedShown) return;
        fixedShown = state;
        $('fixed-list').replaceChildren(...items.map(([title, text]) => element('div', '', element('dt', '', title), element('dd', '', text))));
    }

    /* Show the program's values where the reader is not editing. */
    function refresh() {
        if (!current) return;
        $('token-form').hidden = !!token;
        for (const [name, row] of rows) {
            const s = current[name];
            row.element.hidden = !s;
            if (!s) continue;
            if (!row.dirty && !row.busy) row.show(s.value);
            for (const input of row.inputs) input.disabled = row.busy || !s.changeable || !token;
            if (row.button) row.button.hidden = !row.dirty;
            row.badge.textContent = s.lossy ? 'lossy: changes the output' : 'lossless';
            row.badge.className = `badge ${s.lossy ? 'lossy' : 'lossless'}`;
            row.reason.textContent = s.reason || '';
            row.reason.hidden = !s.reason;
        }
        const cache = rows.get('cache');
        cache.inputs[1].hidden = cache.control.value !== 'size';
        const f = Number(rows.get('drop_cold_experts').control.value);
        rows.get('drop_cold_experts').element.querySelector('output').textContent = f === 0 ? 'off' : f.toFixed(2);
        drawPrices();
        drawFixed();
    }

    function start() {
        takeToken();
        build();
        addEventListener('hashchange', () => {
            takeToken();
            refresh();
        });
        $('token-form').addEventListener('submit', (e) => {
            e.preventDefault();
            const text = $('token').value.trim().replace(/^.*[#&]token=/, '');
            if (!text) return;
            keepToken(text);
            $('token').value = '';
            say('');
            refresh();
        });
    }

    /* The `settings` of a report. */
    function set(settings) {
        current = settings;
        refresh();
    }

    return { start, set };
})();
