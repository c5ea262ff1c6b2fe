#!/usr/bin/env python3
"""frontier.py runs `sluice eval` over the lossy settings and writes what they cost: a CSV, tables, an SVG plot.

    tools/quality/frontier.py run --sluice build/bin/sluice --work DIR --csv docs/quality.csv [--cold FILE.gguf] [--jobs 2]
    tools/quality/frontier.py tables --csv docs/quality.csv      Markdown, for docs/quality.md
    tools/quality/frontier.py plot --csv docs/quality.csv --svg docs/quality.svg
    tools/quality/frontier.py speed --sluice build/bin/sluice --work DIR --csv docs/quality-speed.csv

`run` goes on where a CSV ends, so it can be stopped and started. Each run is compared with the lossless one of the
same model, text and shape (one token at a time, one thread). Reading ahead is off: what it reads depends on the disk's
speed, and without it every number repeats exactly. Nothing in `run` depends on how busy the machine is; `speed` does.
Only the standard library is needed.
"""
import argparse
import csv
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

FIELDS = [
    "method", "cache_mib", "drop", "renorm", "reproducible", "experts", "file", "chunks", "tokens", "perplexity",
    "perplexity_se", "log_ratio", "log_ratio_se", "kl", "kl_se", "kl_median", "kl_99", "kl_99_se", "kl_max", "same_top",
    "same_top_se", "mib_per_token", "read_bytes", "hit_rate", "dropped_share", "dropped_weight", "substituted_share",
    "substituted_weight",
]
KEY = ["method", "cache_mib", "drop", "renorm", "reproducible", "experts", "file"]
FS = ["0.25", "0.5", "0.75", "1"]
COMMON = ["-t", "1", "--decode", "--no-lookahead", "--no-direct-io", "--no-publish", "-q", "--json"]


def row(method, cache, drop="", renorm="", reproducible="", experts="", file=""):
    return dict(method=method, cache_mib=cache, drop=drop, renorm=renorm, reproducible=reproducible, experts=experts, file=file)


def grid(args):
    """All runs. The first is the reference."""
    c, other = str(args.cache), str(args.other_cache)
    rows = [row("lossless", c)]
    rows += [row("experts", c, experts=str(k)) for k in range(args.top_k - 1, 0, -1)]
    for reproducible in ("no", "yes"):
        rows += [row("drop", c, f, renorm, reproducible) for renorm in ("on", "off") for f in FS]
    rows += [row("whole", c, file=f) for f in args.whole]
    rows.append(row("lossless", other))
    rows += [row("drop", other, f, "off", "no") for f in FS]
    for f in args.cold:  # nothing is left out there that could be renormalised
        rows += [row("cold", c, x, "off", r, file=f) for r in ("no", "yes") for x in FS]
    # What it means that a number is small: the resident model, computed in another shape.
    return rows + [row("rounding", "", file=f) for f in ("batches of 512", "2 threads")]


def options(r, args):
    """The command line of a run, after `sluice eval`."""
    model = os.path.join(args.work, r["file"]) if r["method"] == "whole" else args.model
    o = ["-m", model, "-f", args.text] + (["--resident"] if r["method"] == "rounding" else ["--cache", r["cache_mib"]])
    if r["drop"]:
        o += ["--drop-cold-experts", r["drop"], "--drop-renorm", r["renorm"]]
        o += ["--drop-reproducible"] if r["reproducible"] == "yes" else []
    if r["experts"]:
        o += ["--n-expert-used", r["experts"]]
    if r["method"] == "cold":
        o += ["--cold-model", os.path.join(args.work, r["file"])]
    return o


def evaluate(r, args, more):
    command = [args.sluice, "eval"] + options(r, args) + more
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_WAIT_POLICY="passive"))
    if done.returncode:
        sys.exit("%s\n%s" % (" ".join(command), done.stderr))
    return json.loads(done.stdout)


def fill(r, o):
    """The numbers of a run. Standard errors are those between chunks."""
    ref, e = o.get("reference"), o["eval"]
    drop = e.get("drop", {})
    r = dict(r, chunks=o["chunks"], tokens=o["tokens_scored"], perplexity=o["perplexity"],
             perplexity_se=o["perplexity"] * o["log_perplexity"]["standard_error_by_chunk"],
             mib_per_token=e.get("mib_per_token", 0), read_bytes=e.get("read_bytes", 0), hit_rate=e.get("hit_rate", 0),
             **{k + "_share": drop.get(k, 0) / (drop.get("examined") or 1) for k in ("dropped", "substituted")},
             **{k: drop.get(k, 0) / (drop.get("weight") or 1) for k in ("dropped_weight", "substituted_weight")})
    if ref:
        r.update(log_ratio=ref["log_perplexity_ratio"]["mean"],
                 log_ratio_se=ref["log_perplexity_ratio"]["standard_error_by_chunk"], kl=ref["kl"]["mean"],
                 kl_se=ref["kl"]["standard_error_by_chunk"], kl_median=ref["kl_median"]["value"],
                 kl_99=ref["kl_99"]["value"], kl_99_se=ref["kl_99"]["standard_error"], kl_max=ref["kl_max"],
                 same_top=ref["same_top"]["mean"], same_top_se=ref["same_top"]["standard_error_by_chunk"])
    return {k: "%.6g" % v if isinstance(v, float) else v for k, v in r.items()}


def key(r):
    return tuple(r[k] for k in KEY)


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def run(args):
    os.makedirs(args.work, exist_ok=True)
    chunks = ["--chunks", str(args.chunks)] if args.chunks else []
    ref = os.path.join(args.work, "lossless.ref")
    if not os.path.exists(ref):
        evaluate(row("lossless", str(args.cache)), args, COMMON + chunks + ["--ref-save", ref + ".new"])
        os.rename(ref + ".new", ref)
    done = {key(r) for r in read_csv(args.csv)} if os.path.exists(args.csv) else set()
    if not done:
        with open(args.csv, "w", newline="", encoding="utf-8") as f:
            csv.DictWriter(f, FIELDS, lineterminator="\n").writeheader()

    def one(r):
        common = [x for x in COMMON if x != "--decode" or r["file"] != "batches of 512"]
        common += ["-t", "2"] if r["file"] == "2 threads" else []
        common += ["--ref-other-model"] if r["method"] == "whole" else []
        return fill(r, evaluate(r, args, common + chunks + ["--ref", ref]))

    todo = [r for r in grid(args) if key(r) not in done]
    with ThreadPoolExecutor(args.jobs) as pool:
        for r in pool.map(one, todo):
            with open(args.csv, "a", newline="", encoding="utf-8") as f:
                csv.DictWriter(f, FIELDS, lineterminator="\n").writerow(r)
            print(", ".join(x for x in key(r) if x), "kl", r["kl"], "MiB/token", r["mib_per_token"], flush=True)


def speed(args):
    """Tokens per second of some settings, direct reads, in turns: ratios to the lossless run of the same round."""
    c = str(args.cache)
    rows = [row("lossless", c), row("experts", c, experts=str(args.top_k - 1)), row("experts", c, experts=str(args.top_k // 2))]
    rows += [row("drop", c, f, "off", r) for r in ("no", "yes") for f in FS]
    rows += [row("cold", c, f, "off", "no", file=x) for x in args.cold for f in FS]
    rates = [[] for _ in rows]
    for _ in range(args.rounds):
        for i, r in enumerate(rows):
            o = evaluate(r, args, ["-t", str(args.threads), "--decode", "--no-publish", "-q", "--json", "--chunks", str(args.chunks or 2)])
            rates[i].append(o["eval"]["tokens_per_second"])
    with open(args.csv, "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(KEY + ["tokens_per_second", "ratio", "ratio_low", "ratio_high"])
        for r, rate in zip(rows, rates):
            ratios = sorted(a / b for a, b in zip(rate, rates[0]))
            out.writerow(list(key(r)) + ["%.1f" % sorted(rate)[len(rate) // 2], "%.3f" % ratios[len(ratios) // 2],
                                         "%.3f" % ratios[0], "%.3f" % ratios[-1]])
    print("| setting | tokens per second | of lossless | lowest..highest of %d rounds |\n| --- | --- | --- | --- |" % args.rounds)
    for r in read_csv(args.csv):
        print("| %s | %s | %s | %s..%s |" % (name(r), r["tokens_per_second"], r["ratio"], r["ratio_low"], r["ratio_high"]))


def name(r):
    if r["method"] == "experts":
        return "%s experts per token" % r["experts"]
    if r["method"] == "whole":
        return "whole model %s" % os.path.splitext(r["file"])[0]
    if r["method"] == "lossless":
        return "lossless"
    if r["method"] == "rounding":
        return "lossless, " + r["file"]
    text = "F %s, renorm %s" % (r["drop"], r["renorm"]) if r["method"] == "drop" else "F %s, copies %s" % (
        r["drop"], os.path.splitext(r["file"])[0])
    return text + (", reproducible" if r["reproducible"] == "yes" else "")


def with_se(value, se, digits):
    return "%.*f ± %.*f" % (digits, float(value), digits, float(se))


def tables(args):
    rows = read_csv(args.csv)
    base = {r["cache_mib"]: float(r["mib_per_token"]) for r in rows if r["method"] == "lossless"}
    for cache in list(base) + [""]:
        print("\nCache %s MiB:\n" % cache if cache else "\nRounding:\n")
        print("| setting | MiB per token | bytes avoided % | routings given up % | their weight % | perplexity | ln ratio | KL mean |"
              " KL 99 % | KL max | same top token % |")
        print("| --- " * 11 + "|")
        for r in rows:
            if r["cache_mib"] != cache:
                continue
            given = float(r["dropped_share"]) + float(r["substituted_share"])
            weight = float(r["dropped_weight"]) + float(r["substituted_weight"])
            cells = [name(r), "%.3f" % float(r["mib_per_token"]), "%.1f" % (100 - 100 * float(r["mib_per_token"]) / base.get(cache, math.inf)),
                     "%.1f" % (100 * given), "%.1f" % (100 * weight), "%.4f" % float(r["perplexity"]),
                     with_se(r["log_ratio"], r["log_ratio_se"], 4), with_se(r["kl"], r["kl_se"], 5),
                     "%.3f" % float(r["kl_99"]), "%.2f" % float(r["kl_max"]),
                     with_se(100 * float(r["same_top"]), 100 * float(r["same_top_se"]), 2)]
            print("| " + " | ".join(cells) + " |")


STYLE = {  # series: colour, dash, marker
    "fewer experts per token": ("#666666", "", "square"),
    "drop, renorm on": ("#1f6fb4", "5 3", "open"),
    "drop, renorm off": ("#1f6fb4", "", "circle"),
    "drop, renorm on, reproducible": ("#d9822b", "5 3", "open"),
    "drop, renorm off, reproducible": ("#d9822b", "", "circle"),
    "whole model quantised": ("#a13fa1", "", "square"),
}


COLD_COLOURS = ["#2a8f57", "#b0892b", "#7a4fb5"]


def series(r):
    if r["method"] == "drop":
        return "drop, renorm " + r["renorm"] + (", reproducible" if r["reproducible"] == "yes" else "")
    if r["method"] == "cold":
        return "cold model " + os.path.splitext(r["file"])[0] + (", reproducible" if r["reproducible"] == "yes" else "")
    return {"experts": "fewer experts per token", "whole": "whole model quantised"}[r["method"]]


def mark(shape, x, y, colour):
    if shape == "square":
        return '<rect x="%.1f" y="%.1f" width="7" height="7" fill="%s"/>' % (x - 3.5, y - 3.5, colour)
    if shape == "diamond":
        return '<path d="M%.1f %.1fl4.5 4.5l-4.5 4.5l-4.5 -4.5z" fill="%s"/>' % (x, y - 4.5, colour)
    return '<circle cx="%.1f" cy="%.1f" r="3.8" fill="%s" stroke="%s" stroke-width="1.5"/>' % (
        x, y, colour if shape == "circle" else "white", colour)


def plot(args):
    rows = read_csv(args.csv)
    cache = rows[0]["cache_mib"]
    rows = [r for r in rows if r["cache_mib"] == cache]
    floor = [float(r["kl"]) for r in read_csv(args.csv) if r["method"] == "rounding"]
    lossless = next(float(r["mib_per_token"]) for r in rows if r["method"] == "lossless")
    rows = [r for r in rows if r["method"] != "lossless" and float(r["kl"]) > 0]
    width, height, left, right, top, bottom = 820, 620, 70, 20, 40, 155
    xs = [float(r["mib_per_token"]) for r in rows] + [lossless]
    kls = [float(r["kl"]) for r in rows]
    x_max = math.ceil(max(xs) * 10) / 10 + 0.05
    y_low, y_high = math.floor(math.log10(min(kls))), math.ceil(math.log10(max(kls)))

    def px(x):
        return left + (width - left - right) * x / x_max

    def py(kl):
        return height - bottom - (height - top - bottom) * (math.log10(kl) - y_low) / (y_high - y_low)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">' % (width, height),
           '<rect width="%d" height="%d" fill="white"/>' % (width, height),
           '<text x="%d" y="22" font-size="14">Divergence from the lossless run against bytes read (demo model, cache %s MiB)</text>' % (left, cache)]
    for e in range(y_low, y_high + 1):
        y = py(10.0 ** e)
        out.append('<path d="M%d %.1fH%d" stroke="#ddd"/>' % (left, y, width - right))
        out.append('<text x="%d" y="%.1f" text-anchor="end">%g</text>' % (left - 6, y + 4, 10.0 ** e))
    for i in range(int(x_max * 10) + 1):
        x = px(i / 10)
        out.append('<path d="M%.1f %dV%d" stroke="#eee"/>' % (x, top, height - bottom))
        if i % 2 == 0:
            out.append('<text x="%.1f" y="%d" text-anchor="middle">%.1f</text>' % (x, height - bottom + 17, i / 10))
    out.append('<text x="%.1f" y="%d" text-anchor="middle">MiB read per token</text>' % ((left + width - right) / 2, height - bottom + 38))
    out.append('<text transform="translate(18 %.1f) rotate(-90)" text-anchor="middle">mean KL divergence, nats per token</text>' % ((top + height - bottom) / 2))
    out.append('<path d="M%.1f %dV%d" stroke="black" stroke-dasharray="2 3"/>' % (px(lossless), top, height - bottom))
    out.append('<text transform="translate(%.1f %d) rotate(-90)" font-size="11">lossless: KL 0</text>' % (px(lossless) - 5, top + 95))
    if floor:
        y = py(min(floor))
        out.append('<path d="M%d %.1fH%d" stroke="black" stroke-dasharray="2 3"/>' % (left, y, width - right))
        out.append('<text x="%d" y="%.1f" font-size="11">lossless in another batch width: rounding</text>' % (left + 8, y - 5))
    style = dict(STYLE)
    for i, f in enumerate(sorted({r["file"] for r in rows if r["method"] == "cold"}, reverse=True)):
        label, colour = "cold model " + os.path.splitext(f)[0], COLD_COLOURS[i % len(COLD_COLOURS)]
        style[label], style[label + ", reproducible"] = (colour, "", "diamond"), (colour, "5 3", "diamond")
    shown = 0
    for label, (colour, dash, shape) in style.items():
        points = sorted(((float(r["mib_per_token"]), float(r["kl"]), float(r["kl_se"]), r) for r in rows if series(r) == label),
                        key=lambda p: p[0])
        if not points:
            continue
        if label != "whole model quantised":
            out.append('<path d="M%s" fill="none" stroke="%s" stroke-width="1.5" stroke-dasharray="%s"/>' % (
                "L".join("%.1f %.1f" % (px(x), py(kl)) for x, kl, _, _ in points), colour, dash or "none"))
        for x, kl, se, r in points:
            low = max(kl - se, 10.0 ** y_low)
            out.append('<path d="M%.1f %.1fV%.1f" stroke="%s"/>' % (px(x), py(low), py(kl + se), colour))
            out.append(mark(shape, px(x), py(kl), colour))
            text = {"experts": "K " + r["experts"], "whole": os.path.splitext(r["file"])[0]}.get(r["method"])
            if r["method"] == "cold" and r["reproducible"] == "no" and r["drop"] in ("0.25", "1") or r["method"] == "drop" and r["renorm"] == "off" and r["reproducible"] == "no":
                text = "F " + r["drop"]
            if text:
                below = r["method"] in ("drop", "cold")
                out.append('<text x="%.1f" y="%.1f" font-size="11" fill="%s" text-anchor="%s">%s</text>' % (
                    px(x) + (-7 if below else 7), py(kl) + (13 if below else -5), colour, "end" if below else "start", text))
        legend, side = height - bottom + 62 + 17 * (shown // 2), left + 360 * (shown % 2)
        out.append('<path d="M%d %dh26" stroke="%s" stroke-width="1.5" stroke-dasharray="%s"/>' % (side, legend, colour, dash or "none"))
        out.append(mark(shape, side + 13, legend, colour))
        out.append('<text x="%d" y="%d">%s</text>' % (side + 33, legend + 4, label))
        shown += 1
    out.append("</svg>")
    with open(args.svg, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["run", "tables", "plot", "speed"])
    p.add_argument("--sluice", default="build/bin/sluice")
    p.add_argument("--model", default="models/demo.gguf")
    p.add_argument("--text", default="models/demo-heldout.txt")
    p.add_argument("--top-k", type=int, default=4, help="the model's own experts per token")
    p.add_argument("--cache", type=int, default=3, help="MiB")
    p.add_argument("--other-cache", type=int, default=5, help="MiB")
    p.add_argument("--chunks", type=int, default=0, help="of the text; 0: all")
    p.add_argument("--whole", action="append", default=[], metavar="FILE", help="in DIR: a quantisation to compare as a whole")
    p.add_argument("--cold", action="append", default=[], metavar="FILE", help="in DIR: a quantisation for --cold-model")
    p.add_argument("--work", help="directory for the reference file (88 MB for the demo model) and the quantisations")
    p.add_argument("--csv", required=True)
    p.add_argument("--svg")
    p.add_argument("--jobs", type=int, default=1, help="runs at once")
    p.add_argument("--rounds", type=int, default=5, help="of speed")
    p.add_argument("--threads", type=int, default=1, help="of speed")
    args = p.parse_args()
    {"run": run, "tables": tables, "plot": plot, "speed": speed}[args.what](args)


main()
