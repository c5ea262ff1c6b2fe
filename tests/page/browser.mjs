/*
 * browser.mjs - chromium for tests of the page, and what must hold in every one of them: no error in the console, no
 * exception, no request to anyone but the program and its chat.
 *
 * PLAYWRIGHT is the folder of playwright-core, CHROMIUM the browser; run.sh sets both. SHOTS, if set, is a folder for
 * screenshots, to be looked at.
 */
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const { chromium } = await import(pathToFileURL(join(process.env.PLAYWRIGHT, 'index.mjs')).href);

const HANG = 300000; // milliseconds: no test is decided by time, this only ends one that hangs

export const PHONE = { width: 360, height: 740 };
export const DESKTOP = { width: 1280, height: 800 };

/* --no-sandbox: as root in a container chromium does not start otherwise. Nothing but our own page is opened. */
export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox', '--disable-dev-shm-usage'] });

/*
 * Open an address and watch it. `hosts`: ports that may be asked. Gives { page, errors, check(), close() }; check asserts
 * that nothing bad was seen but what `allowed` (regular expressions) matches.
 */
export async function open(browser, url, { viewport = DESKTOP, colorScheme = 'light', ports, allowed = [], prepare = null, phone = viewport.width < 500 } = {}) {
    const context = await browser.newContext({ viewport, colorScheme, hasTouch: phone, deviceScaleFactor: phone ? 2 : 1, reducedMotion: 'reduce' });
    const page = await context.newPage();
    const errors = [];
    page.on('console', (m) => m.type() === 'error' && errors.push(`console: ${m.text()}`));
    page.on('pageerror', (e) => errors.push(`exception: ${e.message}`));
    page.on('request', (r) => {
        const u = new URL(r.url());
        if (u.protocol === 'data:') return;
        if (u.hostname !== '127.0.0.1' || !ports.includes(Number(u.port))) errors.push(`request to ${r.url()}`);
    });
    page.setDefaultTimeout(HANG);
    if (prepare) await prepare(page);
    await page.goto(url);
    await page.waitForSelector('html[data-link="live"]');
    return {
        page,
        errors,
        check() {
            assert.deepEqual(errors.filter((e) => !allowed.some((a) => a.test(e))), []);
        },
        close: () => context.close(),
    };
}

/* Wait until ask() gives something true; the last answer. */
export async function until(what, ask, ms = HANG) {
    const end = Date.now() + ms;
    for (;;) {
        const answer = await ask();
        if (answer) return answer;
        if (Date.now() > end) assert.fail(`waited ${ms} ms for: ${what}`);
        await new Promise((done) => setTimeout(done, 50));
    }
}

export async function shot(page, name, { whole = true } = {}) {
    if (!process.env.SHOTS) return;
    mkdirSync(process.env.SHOTS, { recursive: true });
    await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`), fullPage: whole });
}

/* Nothing is wider than the window. */
export async function assertFits(page, what) {
    const wide = await page.evaluate(() => {
        const limit = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= limit) return [];
        return [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > limit + 1).map((e) => `${e.tagName}#${e.id}.${e.className}`).slice(0, 5);
    });
    assert.deepEqual(wide, [], `${what}: wider than the window`);
}

/* Every text has a contrast of at least 4.5 to what it stands on (WCAG AA), by the colours that the browser computed. */
export async function assertContrast(page, what) {
    const weak = await page.evaluate(() => {
        const parse = (text) => {
            const n = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
            return { c: n.slice(0, 3), a: n.length > 3 ? n[3] : 1 };
        };
        const over = (top, below) => top.c.map((v, i) => v * top.a + below[i] * (1 - top.a));
        const light = (c) => {
            const [r, g, b] = c.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ground = (e) => {
            const chain = [];
            for (let n = e; n; n = n.parentElement) chain.unshift(parse(getComputedStyle(n).backgroundColor));
            return chain.reduce((below, top) => over(top, below), [255, 255, 255]);
        };
        const found = [];
        for (const e of document.querySelectorAll('body *')) {
            const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
            if (!own || !e.checkVisibility() || e.closest('.visually-hidden, .skip, :disabled, noscript')) continue;
            const below = ground(e);
            const ink = over(parse(getComputedStyle(e).color), below);
            const [a, b] = [light(ink), light(below)].sort((x, y) => y - x);
            const ratio = (a + 0.05) / (b + 0.05);
            if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${e.tagName}.${e.className} "${e.textContent.trim().slice(0, 30)}"`);
        }
        return [...new Set(found)];
    });
    assert.deepEqual(weak, [], `${what}: too little contrast`);
}

/* Every control has a name that is read out. */
export async function assertNamed(page, what) {
    const nameless = await page.evaluate(() =>
        [...document.querySelectorAll('button, input, select, textarea, canvas, [role="img"], [role="log"]')]
            .filter((e) => e.checkVisibility())
            .filter((e) => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.labels?.length || (e.tagName === 'BUTTON' && e.textContent.trim())))
            .map((e) => e.outerHTML.slice(0, 80)));
    assert.deepEqual(nameless, [], `${what}: controls without a name`);
}

/* All that can be used without scrolling is within the window. */
export async function assertSeen(page, ...selectors) {
    for (const selector of selectors) {
        const box = await page.locator(selector).boundingBox();
        const size = page.viewportSize();
        assert.ok(box && box.x >= 0 && box.y >= 0 && box.x + box.width <= size.width && box.y + box.height <= size.height, `${selector} is outside of the window: ${JSON.stringify(box)}`);
    }
}
