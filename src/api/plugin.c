/*
 * plugin.c - the entry point of libggml-sluice.so.
 *
 * Programs built on llama.cpp load it by GGML_BACKEND_PATH, or `sluice exec` loads it for them.
 * Settings come from the environment. A value that does not parse must not end in quietly running
 * without streaming (a user would measure the wrong thing) nor in ending the host program from
 * inside a library: the device registers, and every model load fails with the message. The same holds for a setting
 * that cannot be had here, such as a cold model that is not there.
 *
 * SLUICE_CSV=FILE gets a row per step that the backend sees (observe/step.c), SLUICE_ROUTE_TRACE=FILE one per routed
 * expert and SLUICE_ROUTE_PROBS=FILE the routers' probabilities (observe/route_trace.c). A file that cannot be opened
 * is treated like a bad setting. SLUICE_STATS=FILE writes the counters as one JSON object when the process ends, for
 * tests and scripts that watch a stock program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "memory/settings.h"
#include "cache/error.h"
#include "observe/counters.h"

SLUICE_API ggml_backend_reg_t ggml_backend_init(void);

/* atexit: the counters, to the file that SLUICE_STATS names. */
static void plugin_write_stats(void) {
    const char *path = getenv("SLUICE_STATS");
    struct sluice_stats s;
    FILE *f = path ? fopen(path, "we") : NULL;
    if (!f) {
        fprintf(stderr, "sluice: cannot write SLUICE_STATS=%s\n", path ? path : "");
        return;
    }
    device_last_stats(&api_device, &s);
    pthread_mutex_lock(&api_device.lock);
    const struct sluice_plan plan = api_device.plan; /* the last one, though its models may be gone */
    pthread_mutex_unlock(&api_device.lock);
    struct sluice_phase_stats both = s.prompt;
    counters_add(&both, &s.generation);
    json_t *o = json_object();
    bool ok = counters_json(o, COUNTERS_FILE, &(struct counters_at){.live = &both, .stats = &s, .plan = &plan}) &&
              counters_json(o, COUNTERS_FILE, &(struct counters_at){.live = &s.prompt, .prefix = "prompt_"}) &&
              counters_json(o, COUNTERS_FILE, &(struct counters_at){.live = &s.generation, .prefix = "generation_"});
    ok = ok && json_dumpf(o, f, JSON_COMPACT) == 0 && fputc('\n', f) != EOF;
    json_decref(o);
    if (fclose(f) || !ok) {
        fprintf(stderr, "sluice: cannot write SLUICE_STATS=%s\n", path);
    }
}

/* atexit: what is still to be written of SLUICE_CSV. */
static void plugin_end_csv(void) {
    struct sluice_error err;
    if (step_csv_close(&api_device.steps, &err)) {
        fprintf(stderr, "sluice: %s\n", err.message);
    }
}

/* atexit: the same of the route trace. */
static void plugin_end_trace(void) {
    struct sluice_error err;
    if (sluice_route_trace_close(&err)) {
        fprintf(stderr, "sluice: %s\n", err.message);
    }
}

ggml_backend_reg_t ggml_backend_init(void) {
    struct sluice_settings s;
    struct sluice_error bad, err;
    if (atomic_load(&api_device.ready)) {
        return &api_device.reg; /* loaded twice: ggml keeps one of the same registration */
    }
    sluice_settings_default(&s);
    if (sluice_settings_from_env(&s, &bad) == SLUICE_OK && settings_check(&s, &bad)) {
        s.drop_cold_experts = 0;
    }
    if (api_setup(&s, true, &err)) {
        bad = bad.status ? bad : err;
        sluice_settings_default(&s); /* with which there is a device that can say so */
        if (api_setup(&s, true, &err)) {
            fprintf(stderr, "sluice: %s\n", err.message);
            return NULL;
        }
    }
    api_device.bad_settings = bad;
    const char *csv = getenv("SLUICE_CSV");
    if (csv && step_csv_open(&api_device.steps, csv, &err)) {
        api_device.bad_settings = api_device.bad_settings.status ? api_device.bad_settings : err;
    } else if (csv) {
        api_device.csv_wanted = true;
        atexit(plugin_end_csv);
    }
    const char *trace = getenv("SLUICE_ROUTE_TRACE"), *probs = getenv("SLUICE_ROUTE_PROBS");
    if ((trace || probs) && sluice_route_trace_open(trace, probs, &err)) {
        api_device.bad_settings = api_device.bad_settings.status ? api_device.bad_settings : err;
    } else if (trace || probs) {
        atexit(plugin_end_trace);
    }
    if (getenv("SLUICE_STATS")) {
        atexit(plugin_write_stats);
    }
    return &api_device.reg;
}
