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
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "memory/cgroup.h"

/*
 * The text after `word`, ':' and blanks in the first line of a file that begins with that word; "" is any line. "" when
 * there is none.
 */
static void read_text(const char *root, const char *path, const char *word, char *out, size_t cap) {
    char line[4096];
    const size_t n = strlen(word);
    bool found = false;
    snprintf(line, sizeof line, "%s%s", root, path);
    FILE *f = fopen(line, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        found = strncmp(line, word, n) == 0 && (n == 0 || strchr(" \t:", line[n]));
    }
    if (f) {
        fclose(f);
    }
    const char *text = found ? line + n + strspn(line + n, " \t:") : "";
    size_t length = strcspn(text, "\n");
    while (length > 0 && text[length - 1] == ' ') {
        length--;
    }
    snprintf(out, cap, "%.*s", (int)length, text);
}

/* The number there; `none` when there is none, or none that can be reckoned with. */
static double read_number(const char *root, const char *path, const char *word, double none) {
    char text[64], *end;
    read_text(root, path, word, text, sizeof text);
    const double x = strtod(text, &end);
    return end != text && x >= 0 && x < 1e15 ? x : none;
}

/* Name and model of a block device; of a partition, those of its disk. */
static void read_disk(struct bench_machine *m, const char *device, const char *root) {
    char path[512], target[512], model[96] = "";
    snprintf(path, sizeof path, "%.300s/sys/dev/block/%s", root, device);
    const ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0) { /* network file systems, overlays */
        snprintf(m->disk, sizeof m->disk, "device %s", device);
        return;
    }
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    for (int up = 0; up < 2 && !model[0]; up++) {
        snprintf(path, sizeof path, "/sys/dev/block/%s/%sdevice/model", device, up ? "../" : "");
        read_text(root, path, "", model, sizeof model);
    }
    snprintf(m->disk, sizeof m->disk, "%.32s%s%.80s%s", slash ? slash + 1 : target, model[0] ? " (" : "", model,
             model[0] ? ")" : "");
}

void bench_machine_read(struct bench_machine *m, const char *path, const char *root) {
    struct utsname u = {.sysname = ""};
    struct stat st;
    struct plan_mount mount;
    char device[32];
    memset(m, 0, sizeof *m);
    uname(&u); /* cannot fail with a buffer */
    snprintf(m->kernel, sizeof m->kernel, "%.32s %.90s", u.sysname, u.release);
    read_text(root, "/proc/cpuinfo", "model name", m->processor, sizeof m->processor);
    if (!m->processor[0]) {
        snprintf(m->processor, sizeof m->processor, "%.100s", u.machine); /* ARM has no such line */
    }
    m->memory = 1024 * (uint64_t)read_number(root, "/proc/meminfo", "MemTotal", 0);
    if (stat(path, &st) == 0) {
        snprintf(device, sizeof device, "%u:%u", major(st.st_dev), minor(st.st_dev));
        read_disk(m, device, root);
        if (plan_mount_find(root, device, NULL, NULL, &mount)) {
            memcpy(m->file_system, mount.type, sizeof m->file_system);
        }
    }
}

/* The mean clock: what the driver says now, else what /proc/cpuinfo says (on virtual machines a constant). */
static double read_mhz(const char *root) {
    char path[128];
    double sum = 0;
    for (int i = 0;; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", i);
        const double khz = read_number(root, path, "", -1);
        if (khz < 0) {
            return i ? sum / i : read_number(root, "/proc/cpuinfo", "cpu MHz", 0);
        }
        sum += khz / 1000;
    }
}

void bench_state_read(struct bench_state *s, const char *root) {
    char text[512];
    uint64_t steal;
    s->load = read_number(root, "/proc/loadavg", "", -1);
    read_text(root, "/proc/stat", "cpu", text, sizeof text); /* user nice system idle iowait irq softirq steal */
    const bool known = sscanf(text, "%*u %*u %*u %*u %*u %*u %*u %" SCNu64, &steal) == 1;
    s->steal_s = known ? (double)steal / (double)sysconf(_SC_CLK_TCK) : -1;
    s->mhz = read_mhz(root);
    s->available = 1024 * (uint64_t)read_number(root, "/proc/meminfo", "MemAvailable", 0);
}
