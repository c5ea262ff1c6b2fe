/*
 * charts.js - the lines and bars over time, drawn by uPlot.
 *
 * All charts show the same SPAN of seconds, one value a second, with fixed marks ("2 min", "1 min", "now"): the data
 * moves, the axis does not. Colours come from the style sheet, so that light and dark are decided in one place; uPlot asks
 * for them at every draw. The value under the pointer, or the newest one, stands in the chart's caption.
 */
const Charts = (() => {
    const HEIGHT = 104; // of a chart, CSS pixels
    const charts = [];

    /* A colour of the style sheet. Read again after the scheme has changed, not at each of thousands of draws. */
    let colours = {};
    function colour(name) {
        if (!colours[name]) colours[name] = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
        return colours[name];
    }
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
        colours = {};
        for (const c of charts) c.plot.redraw(false);
    });

    /* The caption's key of one series: its colour, its name, its value. */
    function key(caption, series) {
        const swatch = document.createElement('i');
        swatch.className = `k-${series.colour}${series.dash ? ' k-dash' : ''}`;
        swatch.setAttribute('aria-hidden', 'true');
        const value = document.createElement('b');
        const span = document.createElement('span');
        span.className = 'key';
        span.append(swatch, `${series.label} `, value);
        caption.append(span);
        return value;
    }

    /*
     * A chart in the figure `id`. `series`: { label, colour (of the style sheet), fill, bars, dash, show(v) }. With
     * `stacked`, values are put on top of each other, the first one lowest. `top`: least height of the scale, or a
     * function that gives it.
     */
    function make(id, { series, stacked = false, top = 0, max = null, span }) {
        const figure = document.getElementById(id);
        const box = figure.querySelector('.plot');
        const title = figure.querySelector('figcaption').textContent;
        const keys = document.createElement('span');
        keys.className = 'keys';
        figure.querySelector('figcaption').append(keys);
        const values = series.map((s) => key(keys, s));
        const chart = { plot: null, raw: null, now: 0, values, series, figure };

        const marks = () => [chart.now - span, chart.now - span / 2, chart.now];
        const font = '11px system-ui, sans-serif';
        const order = stacked ? [...series.keys()].reverse() : [...series.keys()]; // the tallest is drawn first
        const options = {
            width: 300,
            height: HEIGHT,
            padding: [8, 14, 0, 0],
            legend: { show: false },
            cursor: { y: false, drag: { x: false, y: false }, points: { show: !stacked && !series[0].bars, size: 6 } },
            select: { show: false },
            scales: {
                x: { time: false, range: () => [chart.now - span, chart.now] },
                y: {
                    range: (_, _min, high) => {
                        if (max !== null) return [0, max];
                        const least = typeof top === 'function' ? top() : top;
                        return [0, Math.max(least, (high ?? 0) * 1.08) || 1];
                    },
                },
            },
            axes: [
                {
                    stroke: () => colour('muted'),
                    font,
                    size: 22,
                    gap: 7,
                    splits: marks,
                    values: () => [`${span / 60} min`, `${span / 120} min`, 'now'],
                    grid: { show: false },
                    ticks: { show: false },
                },
                {
                    stroke: () => colour('muted'),
                    font,
                    size: 40,
                    gap: 4,
                    space: 28,
                    values: (_, marks_) => marks_.map((v) => (v === 0 ? '0' : Number(v.toPrecision(3)).toString())),
                    grid: { stroke: () => colour('line'), width: 1 },
                    ticks: { show: false },
                },
            ],
            series: [
                {},
                ...order.map((i) => ({
                    stroke: () => colour(series[i].colour),
                    fill: series[i].fill || series[i].bars ? () => colour(series[i].bars ? series[i].colour : `${series[i].colour}-soft`) : undefined,
                    width: series[i].bars ? 0 : 1.5,
                    dash: series[i].dash,
                    paths: series[i].bars ? uPlot.paths.bars({ size: [0.86, 12], align: -1 }) : undefined,
                    points: { show: false, filter: series[i].bars ? undefined : lonely, size: 4 },
                })),
            ],
            hooks: { setCursor: [() => caption(chart)] },
        };
        chart.plot = new uPlot(options, [[], ...series.map(() => [])], box);
        const canvas = box.querySelector('canvas');
        canvas.setAttribute('role', 'img');
        canvas.setAttribute('aria-label', `Chart of the last ${span / 60} minutes: ${title}. The newest values stand above it.`);
        chart.order = order;
        chart.stacked = stacked;
        new ResizeObserver(() => {
            const width = Math.floor(box.clientWidth);
            if (width > 0 && width !== chart.plot.width) chart.plot.setSize({ width, height: HEIGHT });
        }).observe(box);
        charts.push(chart);
        return chart;
    }

    /* Points are drawn only where a line has nothing to join: the values with none on either side. */
    function lonely(plot, index) {
        const data = plot.data[index];
        const found = [];
        for (let i = 0; i < data.length; i++) {
            if (data[i] != null && data[i - 1] == null && data[i + 1] == null) found.push(i);
        }
        return found.length ? found : null;
    }

    /* The values under the pointer, or the newest ones that there are. */
    function caption(chart) {
        if (!chart.raw) return;
        const at = chart.plot.cursor.idx;
        chart.series.forEach((s, k) => {
            const column = chart.raw[k];
            let v = at == null ? null : column[at];
            for (let i = column.length - 1; at == null && v == null && i >= 0; i--) v = column[i];
            const text = v == null ? Format.NONE : s.show(v);
            if (chart.values[k].textContent !== text) chart.values[k].textContent = text;
        });
    }

    /* Show columns (one array per series, null for nothing) over the times xs; `now` is the right edge. */
    function set(chart, xs, columns, now) {
        chart.raw = columns;
        chart.now = now;
        let shown = columns;
        if (chart.stacked) {
            const below = new Array(xs.length).fill(0);
            shown = columns.map((column) => column.map((v, i) => (v == null ? null : (below[i] += v))));
        }
        chart.plot.setData([xs, ...chart.order.map((i) => shown[i])]);
        caption(chart);
    }

    return { make, set, colour };
})();
