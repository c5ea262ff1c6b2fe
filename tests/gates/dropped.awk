# dropped.awk - does a route trace with dropped rows obey the rules? -v share=F, the threshold; separator ",".
# For every token of a layer: its strongest expert is not dropped, nothing of F / k or more is, nothing in memory is, and
# (in generation) whatever else was missing is. With -v kind=2 the rows are not left out (1) but computed from a cold model's
# copy, and some of the copies were read. Exit 1 at the first row that does not, and, without -v maybe=1, when no row was dropped.
function judge(i, top, limit, miss) {
    if (n == 0) return
    limit = share / n
    top = 0
    for (i = 1; i < n; i++) if (w[i] > w[top]) top = i
    for (i = 0; i < n; i++) {
        if (w[i] == limit || (w[i] - limit < 2e-8 && limit - w[i] < 2e-8)) continue # rounded in the trace
        miss = r[i] == 0
        if (d[i] && i == top) bad("the strongest expert was dropped", i)
        if (d[i] && w[i] >= limit) bad("dropped with a weight of " w[i], i)
        if (d[i] && !miss) bad("dropped although in memory", i)
        if (!d[i] && miss && i != top && w[i] < limit && phase == 1) bad("read with a weight of " w[i], i)
        if (d[i] && d[i] != kind) bad("marked " d[i] ", not " kind, i)
        if (d[i] == 1 && b[i]) bad("dropped and read", i)
        dropped += d[i] != 0
        copied += d[i] == 2 ? b[i] : 0
    }
    n = 0
}
function bad(what, i) {
    print "rule broken before line " NR ", rank " i ": " what
    failed = 1
    exit 1
}
BEGIN { n = 0; kind = kind ? kind : 1 }
/^#/ || /^turn/ { next }
{
    if ($5 == 0) judge()
    phase = $2
    w[n] = $7 + 0; r[n] = $8; b[n] = $9; d[n] = $10
    n++
}
END {
    if (!failed) judge()
    if (!maybe && !failed && !dropped) { print "no row is marked dropped"; failed = 1 }
    if (!maybe && !failed && kind == 2 && !copied) { print "no copy was read"; failed = 1 }
    exit failed
}
