/*
 * page.test.mjs - the page in a real browser against the mock: what it shows, sends, keeps and refuses.
 * PAGE is the built page, CSV docs/quality.csv (run.sh sets them).
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { assertContrast, assertFits, assertNamed, assertSeen, launch, open, PHONE, shot, until } from './browser.mjs';
import { startMock } from './mock.mjs';

const PAGE = process.env.PAGE;
let browser;
before(async () => {
    browser = await launch();
});
after(() => browser?.close());

/* A mock and the page on it, closed after the test whatever happens; at its end nothing bad may have been seen. */
async function withPage(t, options, run) {
    const mock = await startMock({ page: PAGE, ...options.mock });
    const seen = [];
    t.after(async () => {
        for (const s of seen) await s.close();
        await mock.stop();
    });
    const openPage = async (more = {}) => {
        const s = await open(browser, `${mock.url}${more.hash ?? `#token=${mock.token}`}`, { ports: [mock.port, mock.chatPort], allowed: options.allowed, ...more });
        seen.push(s);
        return s;
    };
    const s = await openPage(options.open);
    await run(mock, s.page, s, openPage);
    for (const one of seen) one.check();
}

const text = (page, selector) => page.locator(selector).textContent();
const number = async (page, selector) => Number((await text(page, selector)).replace(/[^\d.]/g, ''));
/* Tokens generated, as the tile says. */
const generated = async (page) => Number((await text(page, '#t-gen-sub')).split(' tokens')[0].replace(/\D/g, ''));
async function ask(page, question) {
    await page.fill('#chat-input', question);
    await page.press('#chat-input', 'Enter');
}
const answered = (page) => page.waitForSelector('#chat-send:not([hidden])');
const lastAnswer = (page) => page.locator('.message.assistant').last();

test('one file, with a place for a nonce in every script and style, and nothing to fetch', () => {
    const html = readFileSync(PAGE, 'utf8');
    assert.ok(html.length < 400 * 1024, `${html.length} bytes`);
    const opened = html.match(/<(script|style)\b[^>]*>/g).filter((tag) => tag.includes('nonce="@NONCE@"'));
    assert.equal(html.split('@NONCE@').length - 1, opened.length);
    assert.ok(opened.length >= 6); // three libraries, the page; two styles
    const markup = html.replace(/<(script|style)\b[^>]*>[^]*?<\/\1>/g, '');
    assert.ok(!/<(script|style)/.test(markup));
    assert.ok(!/\s(src|style|on\w+)=/i.test(markup), 'nothing of that in the markup');
    assert.deepEqual([...markup.matchAll(/href="([^"]*)"/g)].map((m) => m[1]), ['data:,', '#main']);
    assert.ok(!/sourceMappingURL/.test(html));
});

test('the token leaves the address bar and is kept for the tab', async (t) => {
    await withPage(t, {}, async (mock, page) => {
        assert.equal(page.url(), mock.url);
        assert.equal(await page.evaluate(() => sessionStorage.getItem('sluice.token')), mock.token);
        await page.reload();
        await page.waitForSelector('#set-lookahead:not(:disabled)');
        assert.equal(await page.locator('#token-form').isVisible(), false);
    });
});

test('numbers move while a question is answered, and the answer is Markdown', async (t) => {
    await withPage(t, { mock: { tokensPerSecond: 20 } }, async (mock, page) => {
        assert.equal(await text(page, '#t-gen'), '–');
        const charted = (chart) => page.evaluate((id) => document.querySelector(`#${id} .key b`).textContent, chart);
        mock.model.recently = Infinity; // all that was counted is now, however late the page looks
        await ask(page, 'Why does a cache help?');
        const first = await until('tokens per second', () => number(page, '#t-gen'));
        assert.equal(first, 20);
        const tokens = () => generated(page);
        await until('generated tokens', tokens);
        await until('all of them', async () => mock.model.now === null && (await tokens()) === mock.model.generation.tokens);
        await until('speed of the prompt', async () => await number(page, '#t-prompt') > 100);
        await until('speed of the disk', async () => await number(page, '#t-disk') > 0);
        await until('hits', async () => await number(page, '#t-hit') > 0);
        await until('a chart', async () => (await charted('c-gen')) !== '–');
        await answered(page);
        const answer = lastAnswer(page);
        assert.equal(await answer.locator('h2').textContent(), 'Why the cache helps');
        assert.equal(await answer.locator('td').count(), 4);
        assert.equal(await answer.locator('ol li').count(), 3);
        assert.match(await answer.locator('pre code').textContent(), /if \(resident\(e\)\)/);
        assert.equal(await answer.locator('a').getAttribute('href'), 'https://example.com/method');
        assert.equal(await answer.locator('a').getAttribute('rel'), 'noopener noreferrer nofollow');
        assert.match(await answer.locator('.note').textContent(), /\d+ tokens, [\d.]+ tok\/s; prompt 96 tokens/);
        for (const chart of ['c-gen', 'c-prompt', 'c-time', 'c-disk', 'c-hit']) {
            await until(`values in ${chart}`, async () => (await charted(chart)) !== '–');
            const inked = await page.evaluate((id) => {
                const canvas = document.querySelector(`#${id} canvas`);
                const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
                const colours = new Set();
                for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200) colours.add(`${d[i]},${d[i + 1]},${d[i + 2]}`);
                return colours.size;
            }, chart);
            assert.ok(inked > 3, `${chart} shows something: ${inked} colours`);
        }
    });
});

test('the map shows what the program says, cell by cell', async (t) => {
    await withPage(t, {}, async (mock, page) => {
        await ask(page, 'hello');
        await answered(page);
        const bytes = Buffer.from(mock.model.map().data, 'base64');
        const all = `${bytes.filter((b) => b >> 6 >= 2).length} of 1536 in memory`;
        await until('the last report of the map', async () => (await text(page, '#map-cell')).replaceAll('\u202f', '').startsWith(all));
        const canvas = page.locator('#map-canvas');
        await canvas.focus();
        for (let i = 0; i < 3; i++) await page.keyboard.press('ArrowRight');
        await page.keyboard.press('ArrowDown');
        const says = ['on disk', 'being read', 'in memory', 'in memory, in use now'];
        assert.ok((await text(page, '#map-cell')).startsWith(`Layer 2 of 24, expert 3: ${says[bytes[64 + 3] >> 6]}`), await text(page, '#map-cell'));
        const box = await canvas.boundingBox();
        await page.mouse.move(box.x + (box.width * 40.4) / 64, box.y + (box.height * 7.4) / 24);
        assert.ok((await text(page, '#map-cell')).startsWith(`Layer 8 of 24, expert 40: ${says[bytes[7 * 64 + 40] >> 6]}`), await text(page, '#map-cell'));
        await page.mouse.move(5, 5);
        const resident = bytes.filter((b) => b >> 6 >= 2).length;
        assert.match((await text(page, '#map-cell')).replaceAll('\u202f', ''), new RegExp(`^${resident} of 1536 in memory`));
        // The colours: as many different ones as kinds of cells, at least.
        const pixel = (layer, expert) => page.evaluate(([l, e]) => {
            const c = document.getElementById('map-canvas');
            return [...c.getContext('2d').getImageData((c.width / 64) * e + 1, (c.height / 24) * l + 1, 1, 1).data].join();
        }, [layer, expert]);
        const where = (state) => bytes.findIndex((b) => b >> 6 === state);
        const colours = await Promise.all([0, 2].map((s) => pixel(Math.floor(where(s) / 64), where(s) % 64)));
        assert.notEqual(colours[0], colours[1]);
    });
});

test('stop stops, at both ends', async (t) => {
    await withPage(t, {}, async (mock, page) => {
        await ask(page, 'go on forever');
        await until('some of the answer', async () => (await page.locator('.message.assistant .markdown').count()) > 0);
        await page.click('#chat-stop');
        await answered(page);
        await until('llama-server sees the end', () => mock.log.aborted === 1);
        assert.equal(await lastAnswer(page).locator('.note').textContent(), 'stopped');
        const stopped = mock.model.generation.tokens;
        const said = await lastAnswer(page).locator('.markdown').textContent();
        await page.waitForTimeout(500);
        assert.ok(mock.model.generation.tokens <= stopped + 1);
        assert.equal(await lastAnswer(page).locator('.markdown').textContent(), said);
        // By the keyboard too; and the next question carries what was said.
        await ask(page, 'forever again');
        await until('some of it', async () => (await page.locator('.message.assistant .markdown').count()) > 1);
        await page.keyboard.press('Escape');
        await answered(page);
        await until('llama-server sees that', () => mock.log.aborted === 2);
        const sent = mock.log.requests.at(-1).messages;
        assert.deepEqual(sent.map((m) => m.role), ['user', 'assistant', 'user']);
        assert.ok(sent[1].content.trim().startsWith('1 2 3'), sent[1].content.slice(0, 20));
    });
});

test('the conversation is kept over a reload, until it is cleared', async (t) => {
    await withPage(t, { mock: { tokensPerSecond: 200 } }, async (mock, page) => {
        await ask(page, 'think, then answer <i>this</i>');
        await answered(page);
        await page.reload();
        await page.waitForSelector('.message.assistant h2');
        assert.equal(await text(page, '.message.user'), 'think, then answer <i>this</i>');
        assert.equal(await text(page, '.thought .plain'), 'Let me see: **not** Markdown <b>here</b>.');
        await page.click('#chat-clear');
        assert.equal(await page.locator('.message').count(), 0);
        await page.reload();
        await page.waitForSelector('.empty');
        assert.equal(await page.locator('.message').count(), 0);
        // What is not a conversation is ignored.
        for (const bad of ['{', '{"a":1}', '[null,1,{"role":"system","content":"x"},{"role":"user","content":5}]']) {
            await page.evaluate((v) => localStorage.setItem('sluice.chat', v), bad);
            await page.reload();
            await page.waitForSelector('.empty');
        }
    });
});

test('what a model writes cannot do anything', async (t) => {
    await withPage(t, { mock: { tokensPerSecond: 300 }, allowed: [/TrustedHTML/] }, async (mock, page, s) => {
        await ask(page, 'xss');
        await answered(page);
        const answer = lastAnswer(page);
        await until('all of it', async () => (await answer.textContent()).includes('good'));
        // Touch what could be touched: hover, focus, click without following.
        for (const a of await answer.locator('a').all()) await a.hover();
        await page.waitForTimeout(300);
        assert.equal(await page.evaluate(() => window.pwned), undefined);
        const left = await answer.evaluate((e) => ({
            tags: [...new Set([...e.querySelectorAll('.markdown *')].map((x) => x.tagName))],
            attributes: [...new Set([...e.querySelectorAll('.markdown *')].flatMap((x) => [...x.attributes].map((a) => a.name)))].sort(),
            links: [...e.querySelectorAll('a[href]')].map((a) => a.href),
        }));
        for (const tag of ['IMG', 'SCRIPT', 'IFRAME', 'OBJECT', 'SVG', 'svg', 'STYLE', 'FORM', 'INPUT', 'LINK', 'MATH', 'math']) assert.ok(!left.tags.includes(tag), tag);
        assert.deepEqual(left.attributes, ['href', 'rel', 'target']);
        assert.deepEqual(left.links.filter((l) => !/^https?:/.test(l)), []);
        assert.ok(left.links.includes('https://example.com/page'));
        assert.ok(left.links.includes('http://evil.invalid/track.png'), 'an image is a link, not fetched');
        assert.deepEqual(s.errors, []); // nothing was even tried
        // The browser itself refuses HTML from strings, whoever tries.
        assert.match(await page.evaluate(() => {
            try {
                document.createElement('p').innerHTML = '<b>x</b>';
                return 'allowed';
            } catch (e) {
                return String(e);
            }
        }), /TrustedHTML/);
        // The same text in a model's name, mode line or message is text.
        const stats = mock.model.stats;
        mock.model.stats = (chat) => {
            const o = stats(chat);
            o.model.name = o.mode = o.error = o.warning = o.program = o.settings.n_expert_used.reason = '<img src=x onerror="window.pwned=20">';
            return o;
        };
        await until('it is shown', async () => (await text(page, '#model')).startsWith('<img'));
        await page.waitForTimeout(200);
        assert.equal(await page.evaluate(() => window.pwned), undefined);
    });
});

test('errors of the API are shown as what they are', async (t) => {
    await withPage(t, { allowed: [/status of 400/, /ERR_/] }, async (mock, page) => {
        const error = async (question) => {
            await ask(page, question);
            await answered(page);
            return lastAnswer(page).locator('.error').textContent();
        };
        assert.equal(await error('fail'), 'llama-server says: the request exceeds the available context size <b>try increasing it</b> (400)');
        assert.equal(await error('break'), 'llama-server says: expert of layer 3 could not be read');
        assert.match(await lastAnswer(page).locator('.markdown').textContent(), /Why the cache/);
        assert.match(await error('cut'), /No connection|connection ended/);
        // An answer that failed with nothing is not sent along.
        assert.deepEqual(mock.log.requests.at(-1).messages.map((m) => m.role), ['user', 'assistant', 'user']);
        await mock.stop();
        await page.waitForSelector('html[data-link="lost"]');
        assert.match(await error('anyone?'), /^No connection to llama-server at http:\/\/127\.0\.0\.1:\d+\.$/);
    });
});

test('a llama-server with a key is asked with it', async (t) => {
    await withPage(t, { mock: { apiKey: 'secret', tokensPerSecond: 200 }, allowed: [/status of 401/] }, async (mock, page) => {
        await ask(page, 'hello');
        await answered(page);
        assert.equal(await lastAnswer(page).locator('.error').textContent(), 'llama-server says: Invalid API Key (401)');
        await page.fill('#key', 'secret');
        await page.press('#key', 'Enter');
        await ask(page, 'hello');
        await answered(page);
        assert.equal(await lastAnswer(page).locator('h2').textContent(), 'Why the cache helps');
        assert.equal(await page.locator('#key-form').isVisible(), false);
    });
});

test('a conversation longer than the context goes on without its oldest part', async (t) => {
    await withPage(t, { mock: { context: 5, tokensPerSecond: 300 }, allowed: [/status of 400/] }, async (mock, page) => {
        for (const question of ['one', 'two', 'three', 'four']) {
            await ask(page, question);
            await answered(page);
            assert.equal(await lastAnswer(page).locator('h2').count(), 1, question);
        }
        assert.deepEqual(mock.log.requests.map((r) => r.messages.length), [1, 3, 5, 7, 3]);
        assert.deepEqual(mock.log.requests.at(-1).messages.map((m) => m.role), ['user', 'assistant', 'user']);
        assert.equal(mock.log.requests.at(-1).messages[0].content, 'three');
        assert.match(await lastAnswer(page).locator('.note').textContent(), /^without the 4 oldest messages: the context is full; \d+ tokens/);
        assert.equal(await page.locator('.message').count(), 8, 'all of it is still shown');
    });
});

test('settings arrive, refusals are shown, and prices stand beside the lossy ones', async (t) => {
    await withPage(t, { allowed: [/status of 409/] }, async (mock, page) => {
        const row = (name) => page.locator('.setting', { has: page.locator(`#set-${name}`) });
        for (const name of ['cache', 'lookahead', 'drop_cold_experts', 'drop_renorm', 'n_expert_used']) {
            assert.equal(await row(name).locator('.badge').textContent(), 'lossless', `${name} is lossless by default`);
            assert.match(await row(name).locator('.cost').textContent(), /^Costs /);
        }
        assert.equal(await page.inputValue('#set-cache + .size'), '1000MiB');
        await page.fill('#set-cache + .size', '1500MiB');
        await row('cache').locator('button').click();
        await until('the cache setting', () => mock.model.settings.cache === '1500MiB');
        assert.equal(await row('cache').locator('.said').textContent(), 'in force');
        await page.fill('#set-cache + .size', '9000MiB');
        await page.press('#set-cache + .size', 'Enter');
        await until('the refusal', async () => (await row('cache').locator('.said').textContent()) === 'cache 9000MiB does not fit: 4100 MiB are left');
        assert.equal(mock.model.settings.cache, '1500MiB');
        await page.fill('#set-cache + .size', 'much');
        const posts = mock.log.posts.length;
        await page.press('#set-cache + .size', 'Enter');
        assert.match(await row('cache').locator('.said').textContent(), /A size like/);
        assert.equal(mock.log.posts.length, posts);
        await page.selectOption('#set-cache', 'auto');
        await row('cache').locator('button').click();
        await until('automatic', () => mock.model.settings.cache === 'auto');

        await page.click('#set-lookahead');
        await until('lookahead', () => mock.model.settings.lookahead === false);

        await page.locator('#set-drop_cold_experts').fill('0.6');
        await row('drop_cold_experts').locator('button').click();
        await until('the threshold', () => mock.model.settings.drop_cold_experts === 0.6);
        await until('it says lossy', async () => (await text(page, '#guarantee')) === 'lossy');
        assert.equal(await row('drop_cold_experts').locator('.badge').textContent(), 'lossy: changes the output');
        assert.deepEqual(await row('drop_cold_experts').locator('tr.chosen th').allTextContents(), ['0.5', '0.75']);
        assert.ok(await page.locator('#banner').isVisible());
        // Changed from elsewhere: the page follows.
        mock.model.settings.drop_cold_experts = 0;
        await until('the slider follows', async () => (await page.inputValue('#set-drop_cold_experts')) === '0');
        assert.equal(await page.locator('#set-n_expert_used').getAttribute('disabled') !== null, true);
        assert.match(await row('n_expert_used').locator('.reason').textContent(), /fixed when the model is loaded/);
    });
});

test('prices are those of docs/quality.csv', async (t) => {
    const [head, ...lines] = readFileSync(process.env.CSV, 'utf8').trim().split('\n');
    const names = head.split(',');
    const csv = lines.map((l) => Object.fromEntries(l.split(',').map((v, i) => [names[i], v]))).filter((r) => r.cache_mib === '3');
    const lossless = csv.find((r) => r.method === 'lossless');
    await withPage(t, {}, async (mock, page) => {
        const shown = (name) => page.locator('.setting', { has: page.locator(`#set-${name}`) }).locator('tbody tr').evaluateAll((rows) => rows.map((r) => [...r.children].map((c) => c.textContent)));
        const expected = (rows, label) => rows.map((r) => [
            label(r),
            `${(100 * (1 - r.read_bytes / lossless.read_bytes)).toFixed(0)} %`,
            `${(100 * (1 - r.same_top)).toFixed(1)} %`,
            Number(r.kl).toFixed(4),
        ]);
        const drop = (renorm) => csv.filter((r) => r.method === 'drop' && r.renorm === renorm && r.reproducible === 'no');
        await until('prices', async () => (await shown('drop_cold_experts')).length === 4);
        assert.deepEqual(await shown('drop_cold_experts'), expected(drop('off'), (r) => r.drop));
        assert.deepEqual((await shown('drop_cold_experts'))[1], ['0.5', '30 %', '1.6 %', '0.0026']); // as docs/quality.md says
        assert.deepEqual(await shown('n_expert_used'), expected(csv.filter((r) => r.method === 'experts'), (r) => r.experts));
        await page.click('#set-drop_renorm');
        await until('the other prices', async () => (await shown('drop_cold_experts'))[1][3] === '0.0057');
        assert.deepEqual(await shown('drop_cold_experts'), expected(drop('on'), (r) => r.drop));
        // With smaller copies: those of each type that was measured.
        const s = mock.model.stats;
        mock.model.stats = (chat) => {
            const o = s(chat);
            o.settings.cold_model.value = 'model-Q3_K.gguf';
            return o;
        };
        await until('copies', async () => (await shown('drop_cold_experts')).length === 8);
        const cold = csv.filter((r) => r.method === 'cold' && r.reproducible === 'no');
        assert.deepEqual(await shown('drop_cold_experts'), expected(cold, (r) => `${r.drop}, ${r.file.replace('.gguf', '')}`));
    });
});

test('without the token nothing can be changed, and a wrong one is asked for again', async (t) => {
    await withPage(t, { open: { hash: '' }, allowed: [/status of 403/] }, async (mock, page) => {
        await page.waitForSelector('#token-form:not([hidden])');
        for (const name of ['cache', 'lookahead', 'drop_cold_experts']) assert.ok(await page.locator(`#set-${name}`).isDisabled());
        await page.fill('#token', 'wrong');
        await page.press('#token', 'Enter');
        await page.click('#set-lookahead');
        await until('the refusal', async () => /not the token/.test(await text(page, '#settings-said')));
        assert.ok(await page.locator('#token-form').isVisible());
        assert.equal(await page.isChecked('#set-lookahead'), true, 'the box shows what is in force');
        assert.equal(mock.log.posts.length, 0);
        await page.fill('#token', `${mock.url}#token=${mock.token}`); // the whole address is fine too
        await page.press('#token', 'Enter');
        await page.click('#set-lookahead');
        await until('the change', () => mock.model.settings.lookahead === false);
    });
});

test('it says that the program is gone, and goes on with the next one', async (t) => {
    await withPage(t, { mock: { tokensPerSecond: 200 }, allowed: [/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/] }, async (mock, page) => {
        await ask(page, 'hello');
        await answered(page);
        await until('tokens', () => generated(page));
        await mock.stop();
        await page.waitForSelector('html[data-link="lost"]');
        assert.equal(await text(page, '#link-text'), 'disconnected, trying again');
        await page.waitForTimeout(1500);
        assert.equal(await page.getAttribute('html', 'data-link'), 'lost');
        const next = await startMock({ page: PAGE, port: mock.port, chatPort: mock.chatPort, tokensPerSecond: 200 });
        t.after(() => next.stop());
        await page.waitForSelector('html[data-link="live"]');
        await until('its counters', async () => (await text(page, '#t-gen-sub')) === 'none yet');
        await ask(page, 'and now?');
        await answered(page);
        await until('its tokens', () => generated(page));
        assert.ok(next.model.generation.tokens > 0);
    });
});

test('without llama-server there is no chat, and no model is no error', async (t) => {
    await withPage(t, { mock: { withChat: false } }, async (mock, page) => {
        assert.equal(await page.locator('#chat').isVisible(), false);
        const s = mock.model.stats;
        mock.model.stats = (chat) => ({ ...s(chat), model: null });
        mock.model.map = () => ({ layers: [], data: '' });
        await until('no model', async () => (await text(page, '#model')) === 'no model yet');
        await until('no map', async () => /No experts yet/.test(await text(page, '#map-cell')) && !(await page.locator('#map-canvas').isVisible()));
        await shot(page, 'desktop-no-model');
    });
});

test('a step is shown in the seconds that it took', async (t) => {
    await withPage(t, {}, async (mock, page) => {
        const c = await page.evaluate(() => {
            const h = History.make();
            const phase = { tokens: 0, wall_seconds: 0, compute_seconds: 0, stall_seconds: 0, other_seconds: 0, bookkeeping_seconds: 0, read_bytes: 0, hits: 0, misses: 0, hit_bytes: 0, miss_bytes: 0 };
            const at = (t, generation) => h.push({ pid: 1, uptime_seconds: t, prompt: { ...phase }, generation: { ...phase, ...generation } });
            at(10, {});
            at(10.5, { read_bytes: 500 });
            at(11, { read_bytes: 1000 });
            for (let t = 11.5; t < 16; t += 0.5) at(t, { read_bytes: 1000 });
            at(16, { tokens: 1, wall_seconds: 5, compute_seconds: 2, stall_seconds: 2.5, other_seconds: 0.25, bookkeeping_seconds: 0.25, read_bytes: 6000, hits: 30, misses: 10 });
            const one = h.columns();
            h.push({ pid: 2, uptime_seconds: 3, prompt: phase, generation: phase });
            return { one, restarted: h.columns() };
        });
        const tail = (column) => column.slice(-6).map((v) => (v === null ? null : Number(v.toFixed(6))));
        assert.deepEqual(tail(c.one.generation), [null, 0.2, 0.2, 0.2, 0.2, 0.2]);
        assert.deepEqual(tail(c.one.stall), [null, 2500, 2500, 2500, 2500, 2500]);
        assert.deepEqual(tail(c.one.other), [null, 500, 500, 500, 500, 500]);
        assert.deepEqual(tail(c.one.bytes), [1000, 0, 0, 0, 0, 5000]);
        assert.deepEqual(tail(c.one.hits), [null, null, null, null, null, 0.75]);
        assert.deepEqual(tail(c.one.prompt), [null, null, null, null, null, null]);
        assert.ok(c.restarted.bytes.every((v) => v === null));
    });
});

for (const colorScheme of ['light', 'dark']) {
    test(`readable on phone and desktop, ${colorScheme}`, async (t) => {
        await withPage(t, { mock: { tokensPerSecond: 20 }, open: { colorScheme } }, async (mock, page, _, openPage) => {
            const phone = (await openPage({ viewport: PHONE, colorScheme })).page;
            await ask(page, 'Why does a cache help?');
            await answered(page);
            await ask(page, 'go on forever');
            await page.waitForTimeout(9000); // something to see in the charts
            await page.keyboard.press('Escape');
            await answered(page);
            await assertSeen(page, '#chat-input', '#chat-send', '#t-gen');
            await assertFits(page, 'desktop');
            await assertContrast(page, 'desktop');
            await assertNamed(page, 'desktop');
            await shot(page, `desktop-${colorScheme}`, { whole: false });
            await page.locator('#settings-title').scrollIntoViewIfNeeded();
            await page.mouse.move(900, 500);
            await page.mouse.wheel(0, 5000);
            await page.waitForTimeout(300);
            await shot(page, `desktop-${colorScheme}-end`, { whole: false });
            for (const view of ['chat', 'live', 'settings']) {
                await phone.click(`.views button[data-show="${view}"]`);
                if (view === 'chat') {
                    await ask(phone, 'Why does a cache help?');
                    await answered(phone);
                    await assertSeen(phone, '#chat-input', '#chat-send', '#nav-chat');
                }
                await phone.waitForTimeout(700);
                await assertFits(phone, `phone, ${view}`);
                await assertContrast(phone, `phone, ${view}`);
                await assertNamed(phone, `phone, ${view}`);
                await shot(phone, `phone-${colorScheme}-${view}`, { whole: view !== 'chat' });
            }
            if (colorScheme === 'light') {
                // A tap on the map says which expert that is.
                await phone.click('.views button[data-show="live"]');
                await phone.locator('#map-canvas').tap({ position: { x: 20, y: 20 } });
                assert.match(await text(phone, '#map-cell'), /^Layer \d+ of 24, expert \d+: /);
            }
        });
    });
}
