/*
 * chat.js - a conversation with the model, over llama-server's own API (/v1/chat/completions).
 *
 * The conversation is this page's: llama-server keeps none, so each request carries all of it, and localStorage keeps it
 * over a reload. An answer is shown while it comes; Stop ends the request, and llama-server then ends the generation.
 * Drawing Markdown costs more the longer the text is, and the processor that draws is the one that computes tokens: an
 * answer is drawn at most ten times a second, and less often if drawing takes long.
 */
const Chat = (() => {
    const KEY = 'sluice.chat'; // in localStorage: a JSON array of messages
    const API_KEY = 'sluice.api-key'; // in sessionStorage: llama-server's key, if it was started with one
    const MESSAGES_MAX = 200; // kept; older ones are forgotten
    const DRAW_MS = 100; // least time between two draws of an answer
    const $ = (id) => document.getElementById(id);

    let api = ''; // llama-server's address, without a slash at the end; '' when there is no chat
    let messages = []; // { role, content, thought, note, error }
    let running = null; // AbortController of the request under way
    let apiKey = ''; // '' unless llama-server wants one

    function load() {
        try {
            const kept = JSON.parse(localStorage.getItem(KEY) || '[]');
            if (!Array.isArray(kept)) return;
            messages = kept
                .filter((m) => m && ['user', 'assistant'].includes(m.role) && typeof m.content === 'string')
                .map((m) => ({ role: m.role, content: m.content, thought: String(m.thought || ''), note: String(m.note || ''), error: String(m.error || '') }))
                .slice(-MESSAGES_MAX);
        } catch {
            messages = []; // not ours, or damaged
        }
    }

    function save() {
        messages = messages.slice(-MESSAGES_MAX);
        if (messages[0]?.role === 'assistant') messages.shift(); // many chat templates refuse to begin with an answer
        try {
            localStorage.setItem(KEY, JSON.stringify(messages));
            note('');
        } catch {
            note('too long to be kept over a reload');
        }
    }

    const note = (text) => {
        $('chat-note').textContent = text;
    };

    function element(tag, className, text) {
        const e = document.createElement(tag);
        e.className = className;
        if (text !== undefined) e.textContent = text;
        return e;
    }

    /* A message's place in the log; draw() fills it. */
    function place(message) {
        const article = element('article', `message ${message.role}`);
        article.setAttribute('aria-label', message.role === 'user' ? 'You' : 'Answer');
        $('chat-log').append(article);
        draw(message, article);
        return article;
    }

    function draw(message, article, busy = false) {
        const parts = [];
        if (message.thought) {
            const details = element('details', 'thought');
            details.open = article.querySelector('.thought')?.open ?? false;
            details.append(element('summary', '', 'Thinking'), element('div', 'plain', message.thought));
            parts.push(details);
        }
        if (message.role === 'user') {
            parts.push(element('div', 'plain', message.content));
        } else if (message.content) {
            const text = element('div', 'markdown');
            text.append(Markdown.render(message.content));
            parts.push(text);
        } else if (busy && !message.thought) {
            parts.push(element('div', 'waiting', 'reading the prompt'));
        }
        if (message.error) parts.push(element('div', 'error', message.error));
        if (message.note) parts.push(element('div', 'note', message.note));
        article.replaceChildren(...parts);
        article.classList.toggle('busy', busy);
    }

    /* Follow the answer, unless the reader has scrolled up. */
    function follow(change) {
        const log = $('chat-log');
        const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
        change();
        if (atEnd) log.scrollTop = log.scrollHeight;
    }

    function showAll() {
        const log = $('chat-log');
        log.replaceChildren();
        if (!messages.length) log.append(element('p', 'empty', 'Ask the model something. What it costs shows beside this.'));
        messages.forEach(place);
        log.scrollTop = log.scrollHeight;
    }

    /* Send becomes Stop and back. Whoever used the button keeps the focus where it makes sense. */
    function busy(on) {
        const focused = document.activeElement;
        $('chat-send').hidden = on;
        $('chat-stop').hidden = !on;
        $('chat-clear').disabled = on;
        if (on && focused === $('chat-send')) $('chat-stop').focus();
        if (!on && focused === $('chat-stop')) $('chat-input').focus();
    }

    /* What went wrong, of an answer that is not a stream: llama-server's error object, with a message for people in any case. */
    async function refusal(response) {
        let text = '';
        let error = {};
        try {
            text = await response.text();
            error = JSON.parse(text).error ?? {};
            if (typeof error === 'string') error = { message: error };
        } catch {
            // not JSON: the text itself
        }
        const message = String(error.message || text.trim().slice(0, 500) || response.statusText || 'nothing');
        return { ...error, message: `llama-server says: ${message} (${response.status})` };
    }

    /*
     * Send the conversation; the response, when it is a stream. Where it has become longer than the context, its oldest
     * part is left out, so that a quarter of the context or more is free for the answer; `notes.left` says so.
     */
    async function send(conversation, signal, notes) {
        let left = 0;
        for (;;) {
            const response = await fetch(`${api}/v1/chat/completions`, {
                method: 'POST',
                headers: { 'content-type': 'application/json', ...(apiKey && { 'x-api-key': apiKey }) },
                body: JSON.stringify({ messages: conversation.slice(left), stream: true }),
                signal,
                credentials: 'omit',
            });
            if (response.ok) {
                if (left) notes.left = `without the ${left} oldest messages: the context is full`;
                return response;
            }
            const error = await refusal(response);
            if (response.status === 401) $('key-form').hidden = false;
            const rest = conversation.length - left;
            if (error.type !== 'exceed_context_size_error' || rest < 3) throw new Error(error.message);
            const fits = Math.floor((0.75 * rest * error.n_ctx) / error.n_prompt_tokens) || 1;
            left += 2 * Math.max(1, Math.ceil((rest - fits) / 2)); // questions with their answers
            left = Math.min(left, conversation.length - 1);
        }
    }

    /* The messages that are sent: questions with their answers, and the new question. What got no answer is left out. */
    function conversation() {
        return messages
            .filter((m, i) => (m.role === 'assistant' ? m.content : i === messages.length - 1 || messages[i + 1].content))
            .map(({ role, content }) => ({ role, content }));
    }

    /* The `data:` lines of a stream of server-sent events, as they come. */
    async function* lines(body) {
        const reader = body.getReader();
        const decoder = new TextDecoder();
        let rest = '';
        try {
            for (;;) {
                const { done, value } = await reader.read();
                rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
                const ends = rest.split(/\r\n|\n|\r(?!$)/);
                rest = done ? '' : ends.pop();
                for (const line of ends) {
                    const m = /^(data|error): ?(.*)$/.exec(line);
                    if (m) yield m[2];
                }
                if (done) return;
            }
        } finally {
            reader.releaseLock();
        }
    }

    /* One piece of an answer into the message. Throws with llama-server's message when it is an error. */
    function take(message, piece, notes) {
        if (piece.error) throw new Error(`llama-server says: ${piece.error.message || JSON.stringify(piece.error)}`);
        const choice = piece.choices?.[0];
        if (choice?.delta?.content) message.content += choice.delta.content;
        if (choice?.delta?.reasoning_content) message.thought += choice.delta.reasoning_content;
        if (choice?.finish_reason === 'length') notes.cut = 'cut off: the context is full';
        const t = piece.timings;
        if (t && Format.known(t.predicted_per_second)) {
            notes.speed = `${t.predicted_n} tokens, ${Format.short(t.predicted_per_second)} tok/s; prompt ${t.prompt_n} tokens, ${Format.short(t.prompt_per_second)} tok/s`;
        }
    }

    async function ask(text) {
        if (running || !api) return;
        const request = new AbortController();
        running = request;
        if (!messages.length) $('chat-log').replaceChildren();
        const question = { role: 'user', content: text, thought: '', note: '', error: '' };
        const answer = { role: 'assistant', content: '', thought: '', note: '', error: '' };
        messages.push(question);
        save();
        place(question);
        const asked = conversation();
        messages.push(answer);
        const article = place(answer);
        $('chat-log').scrollTop = $('chat-log').scrollHeight;
        draw(answer, article, true);
        busy(true);
        $('chat-said').textContent = 'The answer is coming.';

        let timer = 0;
        let wait = DRAW_MS;
        const drawSoon = () => {
            if (timer) return;
            timer = setTimeout(() => {
                timer = 0;
                const t = performance.now();
                follow(() => draw(answer, article, true));
                wait = Math.max(DRAW_MS, 30 * (performance.now() - t)); // a thirtieth of the time at most
            }, wait);
        };
        const notes = {}; // what is said under the answer: left, cut, stopped, speed
        let stopped = false;
        let ended = false;
        try {
            const response = await send(asked, request.signal, notes);
            for await (const line of lines(response.body)) {
                if (line === '[DONE]') {
                    ended = true;
                    break;
                }
                if (!line) continue;
                take(answer, JSON.parse(line), notes);
                drawSoon();
            }
            if (!ended) throw new Error('The connection ended in the middle of the answer.');
        } catch (e) {
            stopped = request.signal.aborted;
            if (stopped) notes.stopped = 'stopped';
            else if (e instanceof TypeError) answer.error = `No connection to llama-server at ${api}.`; // what fetch throws
            else if (e instanceof SyntaxError) answer.error = 'llama-server sent something that is not JSON.';
            else answer.error = e.message;
        }
        answer.note = [notes.left, notes.cut, notes.stopped, notes.speed].filter(Boolean).join('; ');
        request.abort(); // after [DONE] the rest of the connection is of no use
        clearTimeout(timer);
        follow(() => draw(answer, article));
        running = null;
        save();
        busy(false);
        $('chat-said').textContent = answer.error || (stopped ? 'Stopped.' : `Answer: ${answer.content}`);
    }

    function submit() {
        const input = $('chat-input');
        const text = input.value.trim();
        if (!text || running || !api) return;
        input.value = '';
        grow();
        ask(text);
    }

    /* The input is as high as its text, up to a third of the window. */
    function grow() {
        const input = $('chat-input');
        input.style.height = 'auto';
        input.style.height = `${Math.min(input.scrollHeight + 2, innerHeight / 3)}px`;
    }

    function start() {
        $('chat-form').addEventListener('submit', (e) => {
            e.preventDefault();
            submit();
        });
        $('chat-input').addEventListener('keydown', (e) => {
            if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
            e.preventDefault();
            submit();
        });
        $('chat-input').addEventListener('input', grow);
        $('chat-stop').addEventListener('click', () => running?.abort());
        document.addEventListener('keydown', (e) => {
            if (e.key === 'Escape') running?.abort();
        });
        $('chat-clear').addEventListener('click', () => {
            messages = [];
            save();
            showAll();
            $('chat-input').focus();
        });
        $('key-form').addEventListener('submit', (e) => {
            e.preventDefault();
            apiKey = $('key').value.trim();
            try {
                sessionStorage.setItem(API_KEY, apiKey);
            } catch {
                // no storage in this browser: it is known as long as the page lives
            }
            $('key').value = '';
            $('key-form').hidden = true;
            $('chat-input').focus();
        });
        try {
            apiKey = sessionStorage.getItem(API_KEY) || '';
        } catch {
            apiKey = '';
        }
        load();
        showAll();
    }

    /* Where llama-server is; nothing: there is no chat. Only http addresses, whoever says so. */
    function connect(url) {
        const next = typeof url === 'string' && /^https?:\/\//.test(url) ? url.replace(/\/+$/, '') : '';
        if (next === api) return;
        api = next;
        $('chat').hidden = !api;
        $('nav-chat').hidden = !api;
        document.documentElement.classList.toggle('has-chat', !!api);
        if (api) {
            $('chat-log').scrollTop = $('chat-log').scrollHeight;
            grow();
        }
    }

    return { start, connect };
})();
