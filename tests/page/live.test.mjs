/*
 * live.test.mjs - the page of a real program with a real llama-server beside it.
 *
 * SLUICE_PAGE_COMMAND starts it, in bash: @WINDOW@ and @CHAT@ in it become free ports of 127.0.0.1. It must stream a model
 * small enough to answer in seconds, with a fixed cache of less than all experts and a context of some thousand tokens (an
 * answer must not end while it is looked at: the demo model's 512 are too few, so it is told another number), and end on SIGTERM:
 *
 *     SLUICE_PAGE_COMMAND='exec build/bin/sluice serve -m models/demo.gguf --cache 3MiB --ctx 8192 --port @CHAT@ \
 *         --window 127.0.0.1:@WINDOW@ -- --override-kv qwen3moe.context_length=int:8192'
 *
 * SLUICE_PAGE_CACHE is another cache size that the model may have (5MiB).
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { after, before, test } from 'node:test';
import { assertContrast, assertFits, launch, open, PHONE, shot, until } from './browser.mjs';

const COMMAND = process.env.SLUICE_PAGE_COMMAND;
const CACHE = process.env.SLUICE_PAGE_CACHE ?? '5MiB';
assert.ok(COMMAND?.includes('@WINDOW@') && COMMAND.includes('@CHAT@'), 'SLUICE_PAGE_COMMAND must say how to start the program, with @WINDOW@ and @CHAT@ as its ports');

const freePort = () => new Promise((done) => {
    const s = createServer().listen(0, '127.0.0.1', () => {
        const { port } = s.address();
        s.close(() => done(port));
    });
});

let browser, program, ports, view;

/* Start the program; its address with the token, once it and llama-server answer. */
async function start() {
    const command = COMMAND.replaceAll('@WINDOW@', ports[0]).replaceAll('@CHAT@', ports[1]);
    const child = spawn('bash', ['-c', command], { detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (d) => (said += d));
    const ended = new Promise((done) => child.on('exit', done));
    const address = await until('the window\'s address', async () => {
        if (child.exitCode !== null) assert.fail(`the program ended:\n${said.slice(-2000)}`);
        return /(http:\/\/127\.0\.0\.1:\d+\/#token=[\w-]+)/.exec(said)?.[1];
    });
    await until('llama-server', async () => {
        if (child.exitCode !== null) assert.fail(`the program ended:\n${said.slice(-2000)}`);
        return (await fetch(`http://127.0.0.1:${ports[1]}/health`).catch(() => null))?.ok;
    });
    return {
        address,
        stop: async () => {
            if (child.exitCode === null) process.kill(-child.pid, 'SIGTERM');
            await ended;
        },
    };
}

const stats = async () => (await fetch(`http://127.0.0.1:${ports[0]}/stats`)).json();
const text = (selector) => view.page.locator(selector).textContent();
const number = async (selector) => Number((await text(selector)).replace(/[^\d.]/g, ''));
const generated = async () => Number((await text('#t-gen-sub')).split(' tokens')[0].replace(/\D/g, ''));
const lastAnswer = () => view.page.locator('.message.assistant').last();
const answered = () => view.page.waitForSelector('#chat-send:not([hidden])');
async function ask(question) {
    await view.page.fill('#chat-input', question);
    await view.page.press('#chat-input', 'Enter');
}

/* llama-server goes on to the end of the context from here on: what ends an answer is the reader. */
const endless = (page) => page.route('**/v1/chat/completions', (route) => {
    const asked = route.request().postDataJSON();
    return asked ? route.continue({ postData: JSON.stringify({ ...asked, ignore_eos: true }) }) : route.continue();
});

before(async () => {
    ports = [await freePort(), await freePort()];
    program = await start();
    browser = await launch();
    view = await open(browser, program.address, { ports, allowed: [/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/, /status of (401|403)/] });
});
after(async () => {
    await browser?.close();
    await program?.stop();
});

test('it knows the program and the model', async () => {
    const s = await stats();
    await until('the model', async () => (await text('#model')) === s.model.name);
    assert.equal(await text('#guarantee'), 'lossless');
    assert.equal(await text('#mode'), s.mode);
    assert.ok(s.model.layers > 0 && s.model.experts > 1);
    assert.ok(await view.page.locator('#chat').isVisible());
    view.check();
});

test('a question is answered', async () => {
    await ask('Tell me a story about a baker.');
    await answered();
    assert.equal(await lastAnswer().locator('.error').count(), 0);
    assert.ok((await lastAnswer().locator('.markdown').textContent()).length > 20);
    assert.match(await lastAnswer().locator('.note').textContent(), /\d+ tokens, [\d.]+ tok\/s/);
    view.check();
});

test('numbers move during a generation, and stop stops it in the engine', async () => {
    await endless(view.page);
    const first = await generated();
    await ask('Tell me a long story.');
    const s = await until('a generation', async () => {
        const now = await stats();
        return now.phase === 'generation' && now.generation.tokens > first && now;
    });
    const speed = await until('tokens per second', () => number('#t-gen'));
    assert.ok(speed > 0);
    await until('more tokens', async () => (await generated()) > s.generation.tokens);
    for (const chart of ['c-gen', 'c-time', 'c-disk', 'c-hit']) {
        await until(`values in ${chart}`, async () => (await view.page.locator(`#${chart} .key b`).first().textContent()) !== '–');
    }
    const sum = s.generation.compute_seconds + s.generation.stall_seconds + s.generation.other_seconds + s.generation.bookkeeping_seconds;
    assert.ok(Math.abs(sum - s.generation.wall_seconds) < 0.01 * s.generation.wall_seconds + 0.01, `${sum} of ${s.generation.wall_seconds}`);
    await until('a map with experts in memory', async () => /^[1-9][\d\u202f]* of /.test(await text('#map-cell')));
    await until('the memory plan', async () => /planned/.test(await text('#m-limit')));
    await shot(view.page, 'live-desktop', { whole: false });
    await view.page.click('#chat-stop');
    await answered();
    assert.equal(await lastAnswer().locator('.note').textContent(), 'stopped');
    const tokens = async () => (await stats()).generation.tokens;
    await until('no more tokens', async () => {
        const was = await tokens();
        await new Promise((done) => setTimeout(done, 1000));
        return (await tokens()) === was;
    });
    await until('the page says so', async () => (await text('#t-gen')) === '–');
    view.check();
});

test('a settings change arrives in the engine', async () => {
    const row = (name) => view.page.locator('.setting', { has: view.page.locator(`#set-${name}`) });
    const before_ = await stats();
    assert.equal(await view.page.inputValue('#set-cache + .size'), before_.settings.cache.value);
    await view.page.fill('#set-cache + .size', CACHE);
    await row('cache').locator('button').click();
    await until('it is in force', async () => (await row('cache').locator('.said').textContent()) === 'in force');
    const after_ = await stats();
    assert.notEqual(after_.cache.bytes, before_.cache.bytes);
    assert.equal(after_.settings.cache.value, CACHE);
    const ahead = before_.settings.lookahead.value;
    await view.page.click('#set-lookahead');
    await until('reading ahead', async () => (await stats()).settings.lookahead.value === !ahead);
    await view.page.click('#set-lookahead');
    await until('reading ahead again', async () => (await stats()).settings.lookahead.value === ahead);

    await view.page.locator('#set-drop_cold_experts').fill('1');
    await row('drop_cold_experts').locator('button').click();
    await until('it says lossy', async () => (await text('#guarantee')) === 'lossy');
    const dropped = async () => (await stats()).generation.dropped.dropped;
    const were = await dropped();
    await ask('Tell me another story.');
    await until('experts are left out', async () => (await dropped()) > were);
    await view.page.keyboard.press('Escape');
    await answered();
    await view.page.locator('#set-drop_cold_experts').fill('0');
    await row('drop_cold_experts').locator('button').click();
    await until('lossless again', async () => (await text('#guarantee')) === 'lossless');
    view.check();
});

test('a phone beside it', async () => {
    const phone = await open(browser, program.address, { ports, viewport: PHONE, colorScheme: 'dark' });
    for (const part of ['chat', 'live', 'settings']) {
        await phone.page.click(`.views button[data-show="${part}"]`);
        await phone.page.waitForTimeout(700);
        await assertFits(phone.page, part);
        await assertContrast(phone.page, part);
        await shot(phone.page, `live-phone-${part}`, { whole: part !== 'chat' });
    }
    phone.check();
    await phone.close();
});

test('it goes on with the next program', async () => {
    await program.stop();
    await view.page.waitForSelector('html[data-link="lost"]');
    program = await start();
    await view.page.waitForSelector('html[data-link="live"]');
    const s = await stats();
    await until('its settings', async () => (await view.page.inputValue('#set-cache + .size')) === s.settings.cache.value);
    // The old token is not its; the new one is asked for.
    await view.page.click('#set-lookahead');
    await view.page.waitForSelector('#token-form:not([hidden])');
    assert.equal((await stats()).settings.lookahead.value, s.settings.lookahead.value);
    await view.page.fill('#token', program.address);
    await view.page.press('#token', 'Enter');
    await view.page.click('#set-lookahead');
    await until('the change', async () => (await stats()).settings.lookahead.value === !s.settings.lookahead.value);
    view.check();
});
