# bpe.py owns the tokenizer of the demo model: a byte-level BPE with GPT-2's byte alphabet and GPT-2's
# way of cutting text into words, because llama.cpp's tokenizer model "gpt2" with pre-tokenizer
# "gpt-2" then gives the same ids. Token 0 is the end-of-text mark, 1-256 are the bytes, the rest
# are merges in the order in which they were learned.
#
# Python's re has no \p{L}; [^\W\d_] is the same set for every text that the corpus can contain
# (letters, ASCII digits, punctuation). tokens.c and evaluate.py compare with llama.cpp on real text.

import collections
import json
import re

EOT = "<|endoftext|>"
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def byte_alphabet():
    """GPT-2's printable stand-in for each byte."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, spare = {}, 256
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(spare)
            spare += 1
    return table


ALPHABET = byte_alphabet()


def to_symbols(word):
    return tuple(ALPHABET[b] for b in word.encode("utf-8"))


def train(texts, vocab_size):
    """The merges learned from these texts, most frequent pair first, ties by the pair itself."""
    counts = collections.Counter()
    for t in texts:
        counts.update(WORDS.findall(t))
    words = [[list(to_symbols(w)), n] for w, n in sorted(counts.items())]
    pairs = collections.Counter()
    where = collections.defaultdict(set)
    for i, (sym, n) in enumerate(words):
        for p in zip(sym, sym[1:]):
            pairs[p] += n
            where[p].add(i)
    merges = []
    while len(merges) < vocab_size - 257 and pairs:
        best = max(pairs.items(), key=lambda kv: (kv[1], kv[0]))
        if best[1] < 8:
            break
        pair = best[0]
        merges.append(pair)
        for i in where.pop(pair):
            sym, n = words[i]
            for p in zip(sym, sym[1:]):
                pairs[p] -= n
                if pairs[p] <= 0:
                    del pairs[p]
            j = 0
            while j < len(sym) - 1:
                if (sym[j], sym[j + 1]) == pair:
                    sym[j:j + 2] = [sym[j] + sym[j + 1]]
                j += 1
            for p in zip(sym, sym[1:]):
                pairs[p] += n
                where[p].add(i)
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.tokens = [EOT] + [ALPHABET[b] for b in range(256)] + [a + b for a, b in self.merges]
        self.id = {t: i for i, t in enumerate(self.tokens)}
        self.cache = {}
        self.byte = {c: b for b, c in ALPHABET.items()}

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            return cls(json.load(f))

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump(self.merges, f, ensure_ascii=False)

    def word(self, w):
        if w not in self.cache:
            sym = list(to_symbols(w))
            while len(sym) > 1:
                rank, i = min((self.rank.get(p, 1 << 30), i) for i, p in enumerate(zip(sym, sym[1:])))
                if rank == 1 << 30:
                    break
                sym[i:i + 2] = [sym[i] + sym[i + 1]]
            self.cache[w] = [self.id[s] for s in sym]
        return self.cache[w]

    def encode(self, text):
        return [i for w in WORDS.findall(text) for i in self.word(w)]

    def decode(self, ids):
        return bytes(self.byte[c] for i in ids if i for c in self.tokens[i]).decode("utf-8", "replace")
