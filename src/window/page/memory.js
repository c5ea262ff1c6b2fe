/*
 * memory.js - what the process uses against what it planned and what it may use: one bar and its legend.
 *
 * The bar ends at what is allowed, if that is near; where it is far away, the parts would be too small to see, and the
 * bar ends with the plan.
 */
const Memory = (() => {
    const $ = (id) => document.getElementById(id);
    /* The plan's rows in the order of the bar; the six add up to its total. */
    const ROWS = [
        ['dense_bytes', 'dense weights', 'dense'],
        ['cache_bytes', 'expert cache', 'cache'],
        ['process_bytes', 'program', 'process'],
        ['untouched_bytes', 'KV cache, compute', 'untouched'],
        ['files_bytes', 'libraries', 'files'],
        ['scratch_bytes', 'scratch', 'scratch'],
    ];
    let shown = ''; // the state that is drawn

    function draw(memory) {
        const state = JSON.stringify(memory);
        if (state === shown) return;
        shown = state;
        const { plan, used } = memory;
        const limit = memory.limit_bytes;
        const need = Math.max(plan ? plan.total_bytes : 0, used.total_bytes) || 1;
        const whole = limit && limit < 3 * need ? Math.max(limit, need) : need;
        const parts = [];
        const legend = [];
        for (const [name, label, mark] of plan ? ROWS : []) {
            if (!plan[name]) continue;
            const part = document.createElement('i');
            part.className = `m-${mark}`;
            part.style.width = `${(100 * plan[name]) / whole}%`;
            parts.push(part);
            const item = document.createElement('li');
            const swatch = document.createElement('i');
            swatch.className = `m-${mark}`;
            const value = document.createElement('b');
            value.textContent = Format.bytes(plan[name]);
            item.append(swatch, `${label} `, value);
            legend.push(item);
        }
        const mark = document.createElement('span');
        mark.className = 'm-mark';
        mark.style.left = `${(100 * used.total_bytes) / whole}%`;
        $('m-bar').replaceChildren(...parts, mark);
        $('m-legend').replaceChildren(...legend);
        const planned = plan ? `planned ${Format.bytes(plan.total_bytes)}` : 'no plan before the first token';
        const allowed = limit ? `allowed ${Format.bytes(limit)} (${memory.limit_by === 'setting' ? 'setting' : 'machine'})` : '';
        $('m-used').textContent = `in use ${Format.bytes(used.total_bytes)}`;
        $('m-limit').textContent = [planned, allowed].filter(Boolean).join(', ');
        $('m-bar').setAttribute('aria-label', `In use ${Format.bytes(used.total_bytes)}; ${planned}${allowed ? `; ${allowed}` : ''}`);
    }

    return { draw };
})();
