# dropped.awk - does a route trace with dropped rows obey the rules? -v share=F, the threshold; separator ",".
# For every token of a layer: its strongest expert is not dropped, nothing of F / k or more is, nothing in memory is, and
# (in generation) whatever else was missing is. With -v kind=2 the rows are not left out (1) but computed from a cold model's
# copy, and some of the copies were read. With -v tokens=N blocks have N tokens, and what one of them needs is read for all:
# its strongest, and what weighs F / k or more. Exit 1 at the first row that does not, and, without -v maybe=1, when no row was dropped.
function strongest(i, top) {
    top = 0
    for (i = 1; i < n; i++) if (w[i] > w[top]) top = i
    return top
}
function judge(i, top, limit, miss) {
    if (n == 0) return
    limit = share / n
    top = strongest()
    for (i = 0; i < n; i++) {
        if (w[i] == limit || (w[i] - limit < 2e-8 && limit - w[i] < 2e-8)) continue # rounded in the trace
        miss = r[i] == 0
        if (d[i] && i == top) bad("the strongest expert was dropped", i)
        if (d[i] && w[i] >= limit) bad("dropped with a weight of " w[i], i)
        if (d[i] && !miss) bad("dropped although in memory", i)
        if (!d[i] && miss && i != top && w[i] < limit && phase == 1 && !(e[i] in need)) bad("read with a weight of " w[i], i)
        if (d[i] && d[i] != kind) bad("marked " d[i] ", not " kind, i)
        if (d[i] == 1 && b[i]) bad("dropped and read", i)
        dropped += d[i] != 0
        copied += d[i] == 2 ? b[i] : 0
    }
    n = 0
}
# A block of several tokens: what any of them needs, then each of them.
function judge_block(t, i) {
    delete need
    for (t = 0; tokens > 1 && t < held; t++) {
        load(t)
        for (i = 0; i < n; i++) if (i == strongest() || w[i] >= share / n) need[e[i]]
    }
    for (t = 0; t < held; t++) {
        load(t)
        judge()
    }
    held = 0
}
function load(t, i, f) {
    n = split(block[t], row, ";") - 1
    for (i = 0; i < n; i++) {
        split(row[i + 1], f, ",")
        phase = f[2]
        e[i] = f[6]; w[i] = f[7] + 0; r[i] = f[8]; b[i] = f[9]; d[i] = f[10]
    }
}
function bad(what, i) {
    print "rule broken before line " NR ", rank " i ": " what
    failed = 1
    exit 1
}
BEGIN { kind = kind ? kind : 1; tokens = tokens ? tokens : 1; held = 0 }
/^#/ || /^turn/ { next }
{
    if ($5 == 0 && (held == tokens || (held && $2 "," $4 != at))) judge_block()
    if ($5 == 0) block[held++] = ""
    at = $2 "," $4
    block[held - 1] = block[held - 1] $0 ";"
}
END {
    if (!failed) judge_block()
    if (!maybe && !failed && !dropped) { print "no row is marked dropped"; failed = 1 }
    if (!maybe && !failed && kind == 2 && !copied) { print "no copy was read"; failed = 1 }
    exit failed
}
