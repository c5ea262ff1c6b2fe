# prometheus.awk - is this a page as Prometheus reads it (text format 0.0.4), by its conventions? Strict: every family has
# HELP, then TYPE, then at least one sample, all in one place; no family and no series twice; counters end in _total,
# nothing else does. Prints what is wrong and exits 1; else the number of series.
function bad(why) { print "line " NR ": " why ": " $0; failed = 1; exit 1 }
/^# HELP / {
    if (family != "" && !samples) bad("no samples of " family)
    family = $3
    if (family !~ /^[a-zA-Z_:][a-zA-Z0-9_:]*$/ || NF < 4) bad("no help")
    if (family in families) bad("a family twice")
    families[family] = 1
    type = ""
    samples = 0
    next
}
/^# TYPE / {
    if ($3 != family || NF != 4 || type != "") bad("a type out of place")
    type = $4
    if (type != "counter" && type != "gauge") bad("an unknown type")
    if ((family ~ /_total$/) != (type == "counter")) bad("counters end in _total, and only they")
    next
}
{
    if (type == "") bad("a sample without a type")
    if ($0 !~ /^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-zA-Z_][a-zA-Z0-9_]*="([^"\\]|\\["\\n])*"(,[a-zA-Z_][a-zA-Z0-9_]*="([^"\\]|\\["\\n])*")*\})? [0-9]+(\.[0-9]+)?$/)
        bad("not a sample")
    series = $0
    sub(/ [0-9.]+$/, "", series)
    name = series
    sub(/\{.*/, "", name)
    if (name != family) bad("not of this family")
    if (series in seen) bad("a series twice")
    seen[series] = 1
    samples++
    n++
}
END {
    if (failed) exit 1
    if (!n || !samples) { print "no samples"; exit 1 }
    print n
}
