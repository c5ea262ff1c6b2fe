/*
 * early.c - Ctrl-C at the worst moment: preloaded into `sluice chat`, it raises SIGINT after the first prompt is
 * on the terminal and before the program can wait for a line.
 *
 * From outside that moment can only be hit by chance. Nobody types anything, so a test sees what a Ctrl-C does
 * only if there was one. The compiler may turn fputs of a constant into fwrite, hence both.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_flag raised = ATOMIC_FLAG_INIT; /* once */

/* The function that this library hides. */
static void *hidden(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

static void after(const char *text, size_t n, FILE *to) {
    if (to == stderr && n == 2 && memcmp(text, "> ", 2) == 0 && !atomic_flag_test_and_set(&raised)) {
        raise(SIGINT);
    }
}

EXPORT size_t fwrite(const void *text, size_t size, size_t n, FILE *to) {
    size_t (*real)(const void *, size_t, size_t, FILE *) = NULL;
    *(void **)&real = hidden("fwrite");
    const size_t written = real ? real(text, size, n, to) : 0;
    after(text, size * written, to);
    return written;
}

EXPORT int fputs(const char *text, FILE *to) {
    int (*real)(const char *, FILE *) = NULL;
    *(void **)&real = hidden("fputs");
    const int rc = real ? real(text, to) : EOF;
    after(text, strlen(text), to);
    return rc;
}
