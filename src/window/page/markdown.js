/*
 * markdown.js - a model's answer as a piece of document. What a model writes is a stranger's text.
 *
 * marked makes HTML of it and DOMPurify takes out what could do anything but be read: only the tags below survive, of
 * attributes only links' addresses, and of those only http, https and mailto. Images are not fetched (an address in an
 * answer could carry the conversation away): they become links. DOMPurify gives nodes, never a string, so nothing here
 * or elsewhere sets innerHTML; the page's content security policy refuses it as well.
 */
const Markdown = (() => {
    const TAGS = ['p', 'br', 'hr', 'strong', 'em', 'del', 'code', 'pre', 'blockquote', 'ul', 'ol', 'li', 'a', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6',
        'table', 'thead', 'tbody', 'tr', 'th', 'td'];
    const escape = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

    const parser = new marked.Marked({
        gfm: true,
        breaks: true,
        async: false,
        renderer: {
            html: ({ text }) => escape(text), // HTML in an answer is shown as it was written
            image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
        },
    });

    DOMPurify.addHook('afterSanitizeAttributes', (node) => {
        if (node.tagName !== 'A') return;
        if (!/^(https?|mailto):/i.test(node.getAttribute('href') || '')) node.removeAttribute('href');
        node.setAttribute('target', '_blank');
        node.setAttribute('rel', 'noopener noreferrer nofollow');
    });

    /* Markdown as a DocumentFragment. */
    function render(text) {
        let html;
        try {
            html = parser.parse(text);
        } catch {
            html = `<p>${escape(text)}</p>`; // the parser failed on this text: show it plain
        }
        return DOMPurify.sanitize(html, {
            ALLOWED_TAGS: TAGS,
            ALLOWED_ATTR: ['href', 'start'],
            ALLOW_DATA_ATTR: false,
            ALLOW_ARIA_ATTR: false,
            RETURN_DOM_FRAGMENT: true,
        });
    }

    return { render };
})();
