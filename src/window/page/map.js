/*
 * map.js - which experts are where: a cell per expert, a row per layer (on a narrow screen a column per layer).
 *
 * The program sends a byte per expert: what it is doing and how often it is used. Only cells that changed are drawn
 * again, which is a few hundred of some thousands from second to second.
 */
const CacheMap = (() => {
    const COLD = 0, READING = 1, RESIDENT = 2; // the high two bits; 3: in memory and in use at this moment
    const SAYS = ['on disk', 'being read', 'in memory', 'in memory, in use now'];
    const LEVELS = 8; // shades of heat that are told apart
    const $ = (id) => document.getElementById(id);

    let layers = []; // { first, experts }
    let data = new Uint8Array(0);
    let drawn = null; // the data that the canvas shows
    let grid = null; // how cells lie: { columns, rows, width, h, gap, turned, scale }
    let shades = null; // colours by byte
    let at = null; // the cell that is described: { layer, expert }

    /* Colour of a cell, mixed from the style sheet's: two hues (memory, disk), the stronger the more it is used. */
    function colours() {
        const mix = (a, b, share) => a.map((v, i) => Math.round(v + (b[i] - v) * share));
        const parse = (name) => Charts.colour(name).match(/[0-9a-f]{2}/gi).map((h) => parseInt(h, 16));
        const cold = parse('cell-cold'), coldHot = parse('cell-cold-hot'), least = parse('cell-least'), most = parse('cell-most');
        const table = [];
        for (let byte = 0; byte < 256; byte++) {
            const level = Math.round(((byte & 63) / 63) * (LEVELS - 1)) / (LEVELS - 1);
            const state = byte >> 6;
            const c = state === READING ? parse('warn') : state === COLD ? mix(cold, coldHot, level) : mix(least, most, level);
            table.push(`rgb(${c.join(' ')})`);
        }
        return table;
    }

    /*
     * Cells of whole device pixels, of which some are a pixel wider than others so that a row fills the width; layers become
     * columns where rows of experts would be too fine to see.
     */
    function layout() {
        const canvas = $('map-canvas');
        const width = canvas.parentElement.clientWidth;
        const experts = Math.max(0, ...layers.map((l) => l.experts));
        if (!width || !experts) return null;
        const scale = window.devicePixelRatio || 1;
        const turned = width / experts < 4 && layers.length < experts;
        const columns = turned ? layers.length : experts;
        const rows = turned ? experts : layers.length;
        const w = Math.max(2, Math.min(28, width / columns));
        const h = turned ? Math.max(3, Math.min(w, 480 / rows)) : Math.max(4, Math.min(w, 14, 360 / rows));
        const gap = Math.min(w, h) >= 5 ? Math.max(1, Math.floor(scale)) : 0;
        return { columns, rows, width: Math.floor(w * columns * scale), h: Math.max(1, Math.floor(h * scale)), gap, turned, scale };
    }

    function draw(all) {
        const canvas = $('map-canvas');
        if (all || !grid) {
            grid = layout();
            canvas.hidden = !grid;
            if (!grid) return;
            shades = colours();
            drawn = null;
            canvas.width = grid.width;
            canvas.height = grid.rows * grid.h;
            canvas.style.width = `${canvas.width / grid.scale}px`;
            canvas.style.height = `${canvas.height / grid.scale}px`;
        }
        const pen = canvas.getContext('2d', { alpha: true });
        const same = drawn && drawn.length === data.length ? drawn : null;
        layers.forEach((layer, l) => {
            for (let e = 0; e < layer.experts; e++) {
                const i = layer.first + e;
                if (same && shades[same[i]] === shades[data[i]]) continue;
                pen.fillStyle = shades[data[i]];
                const x = grid.turned ? l : e;
                const y = grid.turned ? e : l;
                const left = Math.floor((x * grid.width) / grid.columns);
                const right = Math.floor(((x + 1) * grid.width) / grid.columns);
                pen.fillRect(left, y * grid.h, right - left - grid.gap, grid.h - grid.gap);
            }
        });
        drawn = data.slice();
    }

    /* The line under the map. */
    function describe() {
        const counts = [0, 0, 0, 0];
        for (const byte of data) counts[byte >> 6]++;
        const memory = counts[RESIDENT] + counts[3];
        let text = data.length
            ? `${Format.count(memory)} of ${Format.count(data.length)} in memory, ${Format.count(counts[READING])} being read. Point at a cell, tap it, or use the arrow keys.`
            : 'No experts yet: the map fills with the first token.';
        if (at && layers[at.layer] && at.expert < layers[at.layer].experts) {
            const byte = data[layers[at.layer].first + at.expert];
            const share = ((byte & 63) / 63) ** 2;
            const use = (byte & 63) === 0 ? 'not used lately' : `used by ${share < 0.01 ? 'under 1 %' : Format.percent(share)} of the last tokens`;
            text = `Layer ${at.layer + 1} of ${layers.length}, expert ${at.expert}: ${SAYS[byte >> 6]}, ${use}.`;
        }
        const line = $('map-cell');
        line.setAttribute('aria-live', at ? 'polite' : 'off'); // the counts, which change all the time, are not read out
        if (line.textContent !== text) line.textContent = text;
    }

    /* The cell under the pointer. */
    function find(event) {
        if (!grid) return null;
        const box = $('map-canvas').getBoundingClientRect();
        const x = Math.floor(((event.clientX - box.left) * grid.scale * grid.columns) / grid.width);
        const y = Math.floor(((event.clientY - box.top) * grid.scale) / grid.h);
        const layer = grid.turned ? x : y;
        const expert = grid.turned ? y : x;
        return layers[layer] && expert >= 0 && expert < layers[layer].experts ? { layer, expert } : null;
    }

    function key(event) {
        const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
        if (event.key === 'Escape') at = null;
        else if (step && layers.length) {
            const [dx, dy] = step;
            const was = at ?? { layer: 0, expert: 0 };
            const layer = Math.min(layers.length - 1, Math.max(0, was.layer + (grid?.turned ? dx : dy)));
            const expert = Math.min(layers[layer].experts - 1, Math.max(0, was.expert + (grid?.turned ? dy : dx)));
            at = { layer, expert };
        } else return;
        event.preventDefault();
        describe();
    }

    function start() {
        const canvas = $('map-canvas');
        canvas.addEventListener('pointermove', (e) => {
            at = find(e);
            describe();
        });
        canvas.addEventListener('pointerdown', (e) => {
            at = find(e);
            describe();
        });
        canvas.addEventListener('pointerleave', (e) => {
            if (e.pointerType !== 'mouse') return; // a tap's cell stays described
            at = null;
            describe();
        });
        canvas.addEventListener('keydown', key);
        new ResizeObserver(() => draw(true)).observe(canvas.parentElement);
        matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw(true));
        describe();
    }

    /* A report: { layers, data (base64) }. */
    function set(report) {
        const text = atob(report.data);
        const bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
        const fits = report.layers.every((l) => l.first + l.experts <= bytes.length);
        if (!fits) return; // not a map
        const changed = JSON.stringify(report.layers) !== JSON.stringify(layers);
        layers = report.layers;
        data = bytes;
        if (!document.hidden) draw(changed);
        describe();
    }

    return { start, set };
})();
