#!/usr/bin/env python3
"""seeds.py - make the seeds of the binary formats in tests/fuzz/corpus, from their descriptions.

Run by hand when a format changes; the seeds are committed, the tests do not need Python. Regression inputs (their
names begin with "found-") are left alone. Text seeds are written by hand.
"""
import os
import struct

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(target, name, data):
    os.makedirs(os.path.join(here, target), exist_ok=True)
    with open(os.path.join(here, target, name), "wb") as f:
        f.write(data)


# ---- GGUF ----

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q", I64: "<q",
        F64: "<d"}
BLOCK = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144)}  # F32, F16, Q4_0, Q8_0, Q4_K


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def value(kind, v):
    return text(v) if kind == STRING else struct.pack(PACK[kind], v)


def pair(key, kind, v):
    if isinstance(v, list):
        return text(key) + struct.pack("<IIQ", ARRAY, kind, len(v)) + b"".join(value(kind, x) for x in v)
    return text(key) + struct.pack("<I", kind) + value(kind, v)


def gguf(pairs, tensors, version=3, data=True, align=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pair(*p) for p in pairs)
    at = 0
    for name, dims, kind in tensors:
        n, size = BLOCK[kind]
        total = size * (dims[0] if dims else 1) // n
        for d in dims[1:]:
            total *= d
        head += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        head += struct.pack("<IQ", kind, at)
        at += (total + align - 1) // align * align
    head += bytes(-len(head) % align)
    return head + (bytes(i * 7 % 256 for i in range(at)) if data else b"")


def experts(layer, n, kind=0):
    row = BLOCK[kind][0]
    return [(f"blk.{layer}.ffn_gate_exps.weight", [row, 2, n], kind), (f"blk.{layer}.ffn_up_exps.weight", [row, 2, n], kind),
            (f"blk.{layer}.ffn_down_exps.weight", [row, 1, n], kind)]


moe = [("general.architecture", STRING, "qwen3moe"), ("general.name", STRING, "seed"),
       ("qwen3moe.block_count", U32, 2), ("qwen3moe.context_length", U32, 64), ("qwen3moe.expert_count", U32, 4),
       ("qwen3moe.expert_used_count", U32, 2)]
dense = [("token_embd.weight", [4, 8], 0), ("blk.0.attn_q.weight", [4, 4], 1), ("output_norm.weight", [4], 0)]
put("gguf", "moe", gguf(moe, dense + experts(0, 4) + experts(1, 4)))
put("gguf", "moe-quantised", gguf(moe, dense + experts(0, 4, 8)))
put("gguf", "headers-only", gguf(moe, dense + experts(0, 4, 12) + experts(1, 4, 2), data=False))
put("gguf", "arrays", gguf(
    [("general.alignment", U32, 8), ("x.expert_count", U32, 8), ("x.expert_used_count", U16, [1, 2]),
     ("general.architecture", STRING, "x"), ("x.block_count", I64, 2), ("tokenizer.ggml.tokens", STRING, ["a", "", "bc"]),
     ("tokenizer.ggml.scores", F32, [0.5, -1]), ("a", F64, 1.5), ("b", BOOL, 1), ("c", I8, -1), ("d", U8, [1, 2, 3])],
    [("blk.0.ffn_up_exps.weight", [4, 2, 8], 0), ("blk.1.ffn_up_chexps.weight", [4, 2, 4], 0), ("n", [], 0)], align=8))
put("gguf", "dense", gguf([("general.architecture", STRING, "llama"), ("llama.block_count", U32, 1)], dense, version=2))
put("gguf", "layers-most", gguf(
    moe[:5] + [("qwen3moe.expert_used_count", U8, [1 + i % 2 for i in range(512)])], experts(0, 4)))


def shard(i, n, tensors):
    return gguf((moe if i == 0 else []) + [("split.no", U16, i), ("split.count", U16, n)], tensors)


put("gguf", "shards", b"|SHARD|".join(
    [shard(0, 3, dense), shard(1, 3, experts(0, 4)), shard(2, 3, experts(1, 4))]))


# ---- prompt caches, references, counters ----


def part(data):
    return data + bytes(-len(data) % 64)


def prompt(facts, tokens, logits, state):
    """Without a right checksum: the target makes one."""
    body = part(facts) + part(struct.pack(f"<{len(tokens)}i", *tokens)) + part(struct.pack(f"<{len(logits)}f", *logits)) + state
    return struct.pack("<8sIIQQQQQQ", b"SLUICEPC", 1, 0x01020304, 128 + len(body), len(facts), len(tokens), len(logits),
                       len(state), 0) + bytes(64) + body


put("saved", "prompt", prompt(b"model=1\ncontext size=4096\n", [1, 2, 5], [0.5] * 8, b"state" * 20))
put("saved", "prompt-other", prompt(b"model=1\ncontext size=512\nx=y\n", [], [], b"s"))


def reference(vocab, ctx, chunks):
    rows = chunks * (ctx - 1 - ctx // 2)
    row = struct.pack("<dII", 1.25, 1, 0) + struct.pack(f"<{vocab}H", *[0 if i == 1 else 100 * i for i in range(vocab)])
    return struct.pack("<8sIIIIIIQ", b"sluiceKL", 1, vocab, ctx, chunks, 4, 2, 7) + bytes(24) + struct.pack(
        f"<{chunks * ctx}i", *range(chunks * ctx)) + row * rows


put("saved", "reference", reference(6, 8, 2))
put("saved", "reference-small", reference(2, 3, 1))


def sums(steps, wall):
    return struct.pack("<QQ5d10QdQQQQdd", steps, 2 * steps, wall, wall / 4, wall / 4, wall / 4, wall / 4, 4096, 2, 8, 5, 3,
                       500, 300, 1, 10, 1, 2 * wall, 8, 1, 0, 4096, 4.0, 0.5)


def counters(layers):
    step = struct.pack("<QQ5dQQQQQ", 1, 1, 0.5, 0.1, 0.2, 0.1, 0.1, 4096, 5, 3, 500, 300)
    return (struct.pack("<QQQd16s32s512s512s", 4711, 1, 99, 1e5, b"0.1.0", b"sluice", b"/models/a.gguf", b"streaming") +
            struct.pack("<9Q", 4, 1 << 20, 4 << 20, 20, 10, 50, 8192, 10, 6) + sums(1, 2.0) + sums(20, 10.0) +
            struct.pack("<Q", 20) + step * 16 + struct.pack("<Q", layers) +
            b"".join(struct.pack("<II", i % 9, 8) for i in range(layers)))


put("saved", "counters", counters(4))
put("saved", "counters-many", counters(70))
