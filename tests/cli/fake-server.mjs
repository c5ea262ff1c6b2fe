#!/usr/bin/env node
// fake-server.mjs - stands in for llama-server in tests of what `sluice serve` does around it. Writes what it was
// given to the file FAKE_TOLD, and behaves as FAKE says:
//   well       loads for a moment, answers, ends when asked          page      the same, and GET / is a page
//   early      ends with 3 before it listens                         dies      ends with 7 when GET /die is asked
//   stubborn   does not end when asked                               refuses   answers 500 to completions
//   key        answers 401 to completions                            chatty    writes a megabyte of log, long lines too
//   loading    never gets ready                                      rude      breaks connections instead of answering completions
//   bad        ends with 9 when asked
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';

const kind = process.env.FAKE ?? 'well';
const args = process.argv.slice(2);
const env = Object.entries(process.env).filter(([k]) => /^(SLUICE_|LD_PRELOAD)/.test(k)).map(([k, v]) => `${k}=${v}`);
// Before the file: who has seen that may send signals.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => kind === 'stubborn' || process.exit(kind === 'bad' ? 9 : 0));
if (process.env.FAKE_TOLD) writeFileSync(process.env.FAKE_TOLD, [`pid ${process.pid}`, ...args, ...env].join('\n') + '\n');

const log = (text) => process.stderr.write(text + '\n');
log('0.00.000.001 I srv  main: loading');
if (kind === 'early') {
    log('0.00.000.002 E srv  main: something is missing');
    process.exit(3);
}
if (process.env.SLUICE_WINDOW !== 'off') log(`sluice: window: http://${process.env.SLUICE_WINDOW}/#token=abc`);
if (kind === 'chatty') {
    log('x'.repeat(5000));
    for (let i = 0; i < 10000; i++) log(`0.00.000.003 I srv  line ${i} ${'.'.repeat(80)}`);
}

let asked = 0; // the first questions come while the model is being loaded
createServer((request, response) => {
    const answer = (status) => response.writeHead(status, { 'Content-Type': 'application/json' }).end('{}');
    if (request.url === '/health') return answer(++asked < 3 || kind === 'loading' ? 503 : 200);
    if (request.url === '/completion') {
        if (kind === 'rude') return request.socket.destroy();
        log('sluice: streaming 6 expert tensors (1.0 MiB), cache off, direct reads, 4 lanes, lossless');
        return answer(kind === 'refuses' ? 500 : kind === 'key' ? 401 : 200);
    }
    if (kind === 'dies' && request.url === '/die') {
        log('0.00.000.004 I srv  main: a line before the last');
        log('0.00.000.005 E srv  main: the last words');
        process.exit(7);
    }
    answer(kind === 'page' ? 200 : 404);
}).listen(Number(args[args.indexOf('--port') + 1]), args[args.indexOf('--host') + 1]);
