/* format.js - numbers as text: few digits, always with a unit, an en dash where there is nothing to say. */
const Format = (() => {
    const NONE = '–';
    const known = (v) => typeof v === 'number' && Number.isFinite(v);

    /* Three digits at most before and after the point together, as far as the number is below 1000. */
    function short(v) {
        if (!known(v)) return NONE;
        const a = Math.abs(v);
        if (a === 0) return '0';
        if (a < 0.01) return v.toPrecision(1);
        return v.toFixed(a < 10 ? 2 : a < 100 ? 1 : 0);
    }

    /* Bytes in powers of 1024, as sluice counts memory. */
    function bytes(v) {
        if (!known(v)) return NONE;
        const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
        let i = 0;
        while (Math.abs(v) >= 1024 && i < units.length - 1) {
            v /= 1024;
            i++;
        }
        return `${i === 0 ? v.toFixed(0) : short(v)} ${units[i]}`;
    }

    const gib = (v) => (known(v) ? short(v / 2 ** 30) : NONE);

    /* Bytes per second in powers of 1000, as disks are sold and `sluice plan` prints them. */
    const gbs = (v) => (known(v) ? short(v / 1e9) : NONE);

    function percent(share, digits = 0) {
        return known(share) ? `${(100 * share).toFixed(digits)} %` : NONE;
    }

    function count(v) {
        return known(v) ? Math.round(v).toLocaleString('en-US').replaceAll(',', '\u202f') : NONE;
    }

    function ms(seconds) {
        return known(seconds) ? `${short(1000 * seconds)} ms` : NONE;
    }

    return { NONE, known, short, bytes, gib, gbs, percent, count, ms };
})();
