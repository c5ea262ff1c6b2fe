/*
 * machine.c - see machine.h.
 *
 * All of it goes into the report, because a figure without the machine and its state is a rumour: the
 * same run on a shared machine has been seen 2 to 10 times slower minutes later, and the load average
 * and the stolen time are what tells such a run from a slow program. What cannot be read is
 * left out; nothing here is worth failing a measurement for.
 */
#include "bench/machine.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { MACHINE_PROCESSORS_MAX = 4096 }; /* that are asked for their clock */

static FILE *open_under(const char *root, const char *path) {
    char full[4096];
    const int n = snprintf(full, sizeof full, "%s%s", root, path);
    return n > 0 && n < (int)sizeof full ? fopen(full, "re") : NULL;
}

/* The first line of a file without its newline and blanks at the end. "" when it cannot be read. */
static void first_line(const char *root, const char *path, char *out, size_t cap) {
    FILE *f = open_under(root, path);
    out[0] = '\0';
    if (f && !fgets(out, (int)cap, f)) {
        out[0] = '\0';
    }
    if (f) {
        fclose(f);
    }
    size_t n = strcspn(out, "\n");
    while (n > 0 && out[n - 1] == ' ') {
        n--;
    }
    out[n] = '\0';
}

/* The text after "KEY <blanks>:" in a file of such lines. False when there is none. */
static bool field_of(const char *root, const char *path, const char *key, char *out, size_t cap) {
    char line[1024];
    bool found = false;
    FILE *f = open_under(root, path);
    while (f && !found && fgets(line, sizeof line, f)) {
        const size_t n = strlen(key);
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, n) == 0 && colon && strspn(line + n, " \t") == (size_t)(colon - line) - n) {
            colon++;
            colon += strspn(colon, " \t");
            snprintf(out, cap, "%.*s", (int)strcspn(colon, "\n"), colon);
            found = true;
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

/* A number of a text of the kernel's; 0 when it is none, or none that can be reckoned with. */
static double real_of(const char *text) {
    const double x = strtod(text, NULL);
    return fabs(x) < 1e15 ? x : 0; /* of nan this is false */
}

/* A field in kB, as bytes. */
static uint64_t memory_field(const char *root, const char *key) {
    char text[64];
    return field_of(root, "/proc/meminfo", key, text, sizeof text) ? strtoull(text, NULL, 10) * 1024 : 0;
}

/* Name and model of a block device; of a partition, those of its disk. */
static void read_disk(struct bench_machine *m, dev_t dev, const char *root) {
    char path[512], target[512], model[96] = "";
    snprintf(path, sizeof path, "%s/sys/dev/block/%u:%u", root, major(dev), minor(dev));
    const ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0) { /* network file systems, overlays */
        snprintf(m->disk, sizeof m->disk, "device %u:%u", major(dev), minor(dev));
        return;
    }
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    const char *const places[] = {"device/model", "../device/model"};
    for (size_t i = 0; i < 2 && !model[0]; i++) {
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s", major(dev), minor(dev), places[i]);
        first_line(root, path, model, sizeof model);
    }
    snprintf(m->disk, sizeof m->disk, "%.32s%s%.80s%s", slash ? slash + 1 : target, model[0] ? " (" : "", model,
             model[0] ? ")" : "");
}

/* Lines of mountinfo: "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw". */
static void read_file_system(struct bench_machine *m, dev_t dev, const char *root) {
    char line[4096];
    FILE *f = open_under(root, "/proc/self/mountinfo");
    while (f && !m->file_system[0] && fgets(line, sizeof line, f)) {
        unsigned major_n, minor_n;
        const char *type = strstr(line, " - ");
        if (type && sscanf(line, "%*u %*u %u:%u", &major_n, &minor_n) == 2 && makedev(major_n, minor_n) == dev) {
            type += 3;
            snprintf(m->file_system, sizeof m->file_system, "%.*s", (int)strcspn(type, " \n"), type);
        }
    }
    if (f) {
        fclose(f);
    }
}

void bench_machine_read(struct bench_machine *m, const char *path, const char *root) {
    struct utsname u;
    struct stat st;
    memset(m, 0, sizeof *m);
    if (uname(&u) == 0) {
        snprintf(m->kernel, sizeof m->kernel, "%.32s %.90s", u.sysname, u.release);
    }
    if (!field_of(root, "/proc/cpuinfo", "model name", m->processor, sizeof m->processor) && uname(&u) == 0) {
        snprintf(m->processor, sizeof m->processor, "%.100s", u.machine); /* ARM has no such line */
    }
    m->memory = memory_field(root, "MemTotal");
    if (stat(path, &st) == 0) {
        read_disk(m, st.st_dev, root);
        read_file_system(m, st.st_dev, root);
    }
}

/* The mean clock: what the driver says now, else what /proc/cpuinfo says (on virtual machines a constant). */
static double read_mhz(const char *root) {
    char path[128], text[64];
    double sum = 0;
    int n = 0;
    for (int i = 0; i < MACHINE_PROCESSORS_MAX; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", i);
        first_line(root, path, text, sizeof text);
        if (!text[0]) {
            break;
        }
        sum += real_of(text) / 1000; /* kHz */
        n++;
    }
    if (n) {
        return sum / n;
    }
    return field_of(root, "/proc/cpuinfo", "cpu MHz", text, sizeof text) ? real_of(text) : 0;
}

void bench_state_read(struct bench_state *s, const char *root) {
    char text[512];
    uint64_t steal;
    *s = (struct bench_state){.load = -1, .steal_s = -1};
    first_line(root, "/proc/loadavg", text, sizeof text);
    if (text[0]) {
        s->load = real_of(text);
    }
    first_line(root, "/proc/stat", text, sizeof text); /* cpu user nice system idle iowait irq softirq steal */
    if (sscanf(text, "cpu %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &steal) == 1) {
        s->steal_s = (double)steal / (double)sysconf(_SC_CLK_TCK);
    }
    s->mhz = read_mhz(root);
    s->available = memory_field(root, "MemAvailable");
}
