# export_gguf.py owns the file format: it writes a checkpoint as a GGUF that unmodified llama.cpp loads
# as architecture qwen3moe (matrices F16; norms and routers F32, as llama.cpp's own converter has them).
# The format is written by hand, since it is short: header, key-value pairs, tensor table, data.
#
#   python3 export_gguf.py CHECKPOINT.pt TOKENIZER.json OUT.gguf

import struct
import sys

import machine  # noqa: F401
import numpy as np
import torch

import bpe
from model import Config

ALIGN = 32
F32, F16 = 0, 1


def text(s):
    b = s.encode("utf-8")
    return struct.pack("<Q", len(b)) + b


def value(v):
    """(type number, bytes) of a GGUF value"""
    if isinstance(v, bool):
        return 7, struct.pack("<?", v)
    if isinstance(v, int):
        return 4, struct.pack("<I", v)
    if isinstance(v, float):
        return 6, struct.pack("<f", v)
    if isinstance(v, str):
        return 8, text(v)
    if isinstance(v, list):
        # Token types are the only list of numbers here, and llama.cpp wants them as signed.
        kind = 5 if isinstance(v[0], int) else 8
        body = b"".join(struct.pack("<i", x) if kind == 5 else text(x) for x in v)
        return 9, struct.pack("<IQ", kind, len(v)) + body
    raise TypeError(v)


def metadata(c, tok):
    a = "qwen3moe."
    return {
        "general.architecture": "qwen3moe",
        "general.name": "sluice demo",
        "general.description": "Short stories from a grammar. Trained by sluice's tools/demo-model on text that the project wrote.",
        "general.license": "mit",
        "general.file_type": 1,
        a + "block_count": c.layers,
        a + "context_length": c.context,
        a + "embedding_length": c.dim,
        a + "feed_forward_length": c.expert_ff * c.top_k,
        a + "expert_feed_forward_length": c.expert_ff,
        a + "expert_count": c.experts,
        a + "expert_used_count": c.top_k,
        a + "attention.head_count": c.heads,
        a + "attention.head_count_kv": c.kv_heads,
        a + "attention.key_length": c.head_dim,
        a + "attention.value_length": c.head_dim,
        a + "attention.layer_norm_rms_epsilon": c.eps,
        a + "rope.freq_base": c.rope_base,
        a + "rope.dimension_count": c.head_dim,
        a + "vocab_size": c.vocab,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tok.tokens,
        "tokenizer.ggml.token_type": [3] + [1] * (len(tok.tokens) - 1),
        "tokenizer.ggml.merges": [f"{x} {y}" for x, y in tok.merges],
        # Every training row begins with the end-of-text token, so every prompt has to.
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        # No chat template: with one that is not in its own list, llama.cpp's plain completion program
        # would enter chat mode by itself and stop with an error.
    }


def tensors(state, c):
    """name -> array, in file order; numpy's last axis is GGUF's first"""
    n = lambda k: state[k].numpy()
    yield "token_embd.weight", n("embed"), F16
    yield "output.weight", n("head"), F16
    yield "output_norm.weight", n("out_norm.weight"), F32
    for i in range(c.layers):
        b, at, mo = f"blk.{i}.", f"attn.{i}.", f"moe.{i}."
        yield b + "attn_norm.weight", n(f"attn_norm.{i}.weight"), F32
        yield b + "attn_q.weight", n(at + "q"), F16
        yield b + "attn_k.weight", n(at + "k"), F16
        yield b + "attn_v.weight", n(at + "v"), F16
        yield b + "attn_output.weight", n(at + "o"), F16
        yield b + "attn_q_norm.weight", n(at + "q_norm.weight"), F32
        yield b + "attn_k_norm.weight", n(at + "k_norm.weight"), F32
        yield b + "ffn_norm.weight", n(f"ffn_norm.{i}.weight"), F32
        yield b + "ffn_gate_inp.weight", n(mo + "router"), F32
        yield b + "ffn_gate_exps.weight", n(mo + "gate_up")[:, :c.expert_ff], F16
        yield b + "ffn_up_exps.weight", n(mo + "gate_up")[:, c.expert_ff:], F16
        yield b + "ffn_down_exps.weight", n(mo + "down"), F16


def write(path, meta, items):
    table, data, offset = b"", [], 0
    for name, array, kind in items:
        raw = np.ascontiguousarray(array, dtype="<f4" if kind == F32 else "<f2").tobytes()
        table += text(name) + struct.pack("<I", array.ndim) + struct.pack(f"<{array.ndim}Q", *reversed(array.shape))
        table += struct.pack("<IQ", kind, offset)
        raw += bytes(-len(raw) % ALIGN)
        data.append(raw)
        offset += len(raw)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(data), len(meta))
    for k, v in meta.items():
        kind, body = value(v)
        head += text(k) + struct.pack("<I", kind) + body
    head += table
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGN))
        for raw in data:
            f.write(raw)


def main():
    checkpoint, tokenizer, out = sys.argv[1:4]
    saved = torch.load(checkpoint)
    c, tok = Config(**saved["config"]), bpe.Tokenizer.load(tokenizer)
    assert c.vocab == len(tok.tokens)
    write(out, metadata(c, tok), list(tensors(saved["model"], c)))
    print(f"{out}: step {saved['step']} of {saved['args']['steps']}")


if __name__ == "__main__":
    main()
