/*
 * test_stat.c - counters for `sluice top`: readers never see half of a write, nothing in a file is believed, and
 * a directory that is not the user's alone is not used.
 */
#include "unit.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe/stat_file.h"

static char base[64];                /* a directory of this run */
static char dir_path[STAT_PATH_MAX]; /* where the files are */
static char file_path[STAT_PATH_MAX + 32];

static int setup(void **state) {
    (void)state;
    char *cwd = getcwd(NULL, 0);
    char absolute[4096];
    strcpy(base, "stat-XXXXXX");
    assert_non_null(mkdtemp(base));
    snprintf(absolute, sizeof absolute, "%s/%s", cwd, base);
    free(cwd);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", absolute, 1), 0);
    assert_true(stat_dir(0, dir_path));
    snprintf(file_path, sizeof file_path, "%s/%ld.stat", dir_path, (long)getpid());
    return 0;
}

static int teardown(void **state) {
    (void)state;
    unlink(file_path);
    rmdir(dir_path);
    rmdir(base);
    return 0;
}

static int read_file(struct stat_data *d, struct sluice_error *err) {
    const int fd = open(file_path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    const int rc = stat_read(fd, d, err);
    close(fd);
    return rc;
}

/* A file in the directory, of n bytes. */
static void put_file(const char *name, const void *bytes, size_t n) {
    char path[STAT_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir_path, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static bool has_file(const char *name, bool remove) {
    char path[STAT_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir_path, name);
    const bool there = access(path, F_OK) == 0;
    if (remove) {
        unlink(path);
    }
    return there;
}

/* What killed processes left is removed by the next one that makes a file; nothing else is. */
static void test_sweep(void **state) {
    (void)state;
    static struct stat_layout l;
    struct stat_data *d = (struct stat_data *)l.word;
    struct stat_file *f;
    const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char path[STAT_PATH_MAX + 64], parent[32];
    struct stat_data got;
    struct sluice_error err;
    assert_int_equal(mkdir(dir_path, 0700), 0);
    l.magic = STAT_MAGIC, l.version = STAT_VERSION, l.size = sizeof l;
    d->pid_namespace = stat_pid_namespace();
    d->pid = INT32_MAX, d->start_ticks = 5; /* nobody has that number */
    put_file("2147483647.stat", &l, sizeof l);
    put_file("2147483646.stat", "half", 4); /* perhaps being made, elsewhere */
    put_file("2147483645.stat", "half", 4); /* that was long ago */
    snprintf(path, sizeof path, "%s/2147483645.stat", dir_path);
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    put_file("12x.stat", &l, sizeof l);                                             /* no such name */
    d->pid = (uint64_t)getppid(), d->start_ticks = stat_start_ticks(getppid()) + 1; /* an earlier one of this number */
    snprintf(parent, sizeof parent, "%ld.stat", (long)getppid());
    put_file(parent, &l, sizeof l);
    d->pid_namespace++, d->pid = INT32_MAX - 3; /* of another container */
    put_file("2147483644.stat", &l, sizeof l);
    assert_int_equal(stat_create(&f, &err), SLUICE_OK);
    assert_false(has_file("2147483647.stat", true));
    assert_false(has_file("2147483645.stat", true));
    assert_false(has_file(parent, true));
    assert_true(has_file("2147483646.stat", true));
    assert_true(has_file("12x.stat", true));
    assert_true(has_file("2147483644.stat", true));
    /* Its own and that of a process that is there stay. */
    d->pid_namespace = stat_pid_namespace();
    d->pid = (uint64_t)getppid(), d->start_ticks = stat_start_ticks(getppid());
    put_file(parent, &l, sizeof l);
    const int dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    stat_sweep(dir, NULL, NULL);
    assert_int_equal(stat_look(dir, parent, &got, &err), STAT_THERE);
    assert_int_equal(got.pid, getppid());
    d->pid = INT32_MAX;
    put_file(parent, &l, sizeof l);
    assert_int_equal(stat_look(dir, parent, &got, &err), STAT_DAMAGED);
    close(dir);
    assert_true(has_file(parent, true));
    assert_int_equal(access(file_path, F_OK), 0);
    stat_remove(f);
}

/* One directory alone, where somebody names it. */
static void test_named_directory(void **state) {
    (void)state;
    char path[STAT_PATH_MAX];
    assert_int_equal(setenv("SLUICE_PUBLISH_DIR", "/some/where", 1), 0);
    assert_true(stat_dir(0, path));
    assert_string_equal(path, "/some/where");
    assert_false(stat_dir(1, path));
    assert_int_equal(setenv("SLUICE_PUBLISH_DIR", "where", 1), 0); /* relative to what? */
    assert_false(stat_dir(0, path) || stat_dir(1, path));
    assert_int_equal(unsetenv("SLUICE_PUBLISH_DIR"), 0);
    assert_true(stat_dir(0, path) && stat_dir(1, path));
}

static void test_round_trip(void **state) {
    (void)state;
    struct stat_file *f;
    struct stat_data d = {.stats = {.slots = 9, .resident = 4}, .updated = 5.5, .n_layers = 2, .n_steps = 1}, got;
    struct sluice_error err;
    struct stat st;
    strcpy(d.model, "a model");
    d.layer[1] = (struct stat_layer){.resident = 3, .experts = 8};
    d.step[0] = (struct sluice_step){.phase = SLUICE_PHASE_GENERATION, .tokens = 1, .wall_s = 0.5};
    assert_int_equal(stat_create(&f, &err), SLUICE_OK);
    assert_int_equal(stat(dir_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(file_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(read_file(&got, &err), SLUICE_OK); /* zeros are fine */
    assert_int_equal(got.n_steps, 0);
    stat_write(f, &d);
    assert_int_equal(read_file(&got, &err), SLUICE_OK);
    assert_int_equal(got.pid, getpid());
    assert_int_equal(got.start_ticks, stat_start_ticks(getpid()));
    assert_true(got.start_ticks > 0);
    d.pid = got.pid, d.pid_namespace = got.pid_namespace, d.start_ticks = got.start_ticks;
    assert_memory_equal(&got, &d, sizeof d);
    /* A child that was forked goes without removing its parent's file. */
    const pid_t child = fork();
    if (child == 0) {
        stat_remove(f);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(access(file_path, F_OK), 0);
    stat_remove(f);
    assert_int_not_equal(access(file_path, F_OK), 0);
    stat_remove(NULL);
}

/* What a dead process with this pid left is replaced, not followed. */
static void test_leftovers(void **state) {
    (void)state;
    struct stat_file *f;
    struct stat_data got;
    struct sluice_error err;
    assert_int_equal(mkdir(dir_path, 0700), 0);
    assert_int_equal(symlink("/etc/passwd", file_path), 0);
    assert_int_equal(stat_create(&f, &err), SLUICE_OK);
    assert_int_equal(read_file(&got, &err), SLUICE_OK);
    struct stat st;
    assert_int_equal(lstat(file_path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    stat_remove(f);
}

static void test_directories(void **state) {
    (void)state;
    struct sluice_error err;
    char link[STAT_PATH_MAX + 8];
    assert_int_equal(stat_open_dir(dir_path, &err), -1); /* not there */
    assert_int_equal(err.status, SLUICE_ERR_IO);
    assert_int_equal(mkdir(dir_path, 0700), 0);
    int fd = stat_open_dir(dir_path, &err);
    assert_true(fd >= 0);
    close(fd);
    snprintf(link, sizeof link, "%s.link", dir_path);
    assert_int_equal(symlink(dir_path, link), 0);
    assert_int_equal(stat_open_dir(link, &err), -1);
    unlink(link);
    assert_int_equal(chmod(dir_path, 0750), 0); /* others can look in */
    assert_int_equal(stat_open_dir(dir_path, &err), -1);
    assert_int_equal(err.status, SLUICE_ERR_STATE);
    if (geteuid() == 0) { /* only root can make one of somebody else's */
        assert_int_equal(chmod(dir_path, 0700), 0);
        assert_int_equal(chown(dir_path, 65534, 65534), 0);
        assert_int_equal(stat_open_dir(dir_path, &err), -1);
        assert_int_equal(err.status, SLUICE_ERR_STATE);
    }
}

/* Damage, one kind after the other; each must be refused, and what was there before must be taken. */
static void damage(size_t at, uint64_t value) {
    struct stat_data got;
    struct sluice_error err;
    uint64_t before;
    const int fd = open(file_path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &before, 8, (off_t)at), 8);
    assert_int_equal(pwrite(fd, &value, 8, (off_t)at), 8);
    if (stat_read(fd, &got, &err) == SLUICE_OK) {
        fail_msg("%llx at %zu was taken", (unsigned long long)value, at);
    }
    assert_true(err.message[0]);
    assert_int_equal(pwrite(fd, &before, 8, (off_t)at), 8);
    assert_int_equal(stat_read(fd, &got, &err), SLUICE_OK);
    close(fd);
}

#define WORD(field) (offsetof(struct stat_layout, word) + offsetof(struct stat_data, field))

static uint64_t bits(double x) {
    uint64_t w;
    memcpy(&w, &x, sizeof w);
    return w;
}

static void test_damage(void **state) {
    (void)state;
    struct stat_file *f;
    struct stat_data got, d = {.n_layers = 3, .stats = {.slots = 5, .resident = 5}};
    struct sluice_error err;
    assert_int_equal(stat_create(&f, &err), SLUICE_OK);
    stat_write(f, &d);
    damage(offsetof(struct stat_layout, magic), 0);
    damage(offsetof(struct stat_layout, version), STAT_VERSION + 1);
    damage(offsetof(struct stat_layout, size), sizeof(struct stat_layout) + 8);
    damage(offsetof(struct stat_layout, seq), 7); /* its writer died in the middle */
    damage(WORD(pid), 0);
    damage(WORD(pid), UINT64_MAX);
    damage(WORD(n_layers), STAT_LAYERS_MAX + 1);
    damage(WORD(n_layers), UINT64_MAX);
    damage(WORD(stats.resident), 6);
    damage(WORD(layer[2]), 1); /* more resident than there are */
    damage(WORD(updated), bits(NAN));
    damage(WORD(updated), bits(-5));
    damage(WORD(ended[0].sum.wall_s), bits(INFINITY));
    damage(WORD(ended[1].sum.cpu_s), bits(1e300));
    damage(WORD(step[15].phase), 2);
    damage(WORD(step[3].other_s), bits(-1));
    /* Text without an end. */
    memset(d.mode, 'x', sizeof d.mode);
    stat_write(f, &d);
    assert_int_equal(read_file(&got, &err), SLUICE_ERR_FORMAT);
    d.mode[0] = '\0';
    stat_write(f, &d);
    assert_int_equal(read_file(&got, &err), SLUICE_OK);
    stat_remove(f);
    /* Files of other sizes, and what is no file. */
    const off_t sizes[] = {0, 1, 24, sizeof(struct stat_layout) - 1, sizeof(struct stat_layout) + 1, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int fd = open(file_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, sizes[i]), 0);
        assert_int_equal(stat_read(fd, &got, &err), SLUICE_ERR_FORMAT);
        close(fd);
    }
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(stat_read(pipes[0], &got, &err), SLUICE_ERR_FORMAT);
    close(pipes[0]);
    close(pipes[1]);
}

/* Every number of a write is made from one: a reader that saw two writes at once finds them different. */
enum { WRITES = 30000, READERS = 2 };

static struct {
    struct stat_file *f;
    _Atomic bool done;
    _Atomic uint64_t good; /* reads that were complete */
} race;

static void fill(struct stat_data *d, uint32_t k) {
    d->stats.prompt.blocks = d->stats.prompt.read_bytes = d->stats.prompt.hits = d->n_steps = k;
    d->updated = k;
    d->ended[0].sum.wall_s = d->ended[1].sum.cpu_s = k;
    d->n_layers = STAT_LAYERS_MAX - k % 7;
    for (uint64_t i = 0; i < d->n_layers; i++) {
        d->layer[i] = (struct stat_layer){.resident = k, .experts = k};
    }
}

static void *race_read(void *arg) {
    (void)arg;
    static _Thread_local struct stat_data d, expected;
    const int fd = open(file_path, O_RDONLY | O_CLOEXEC);
    uint64_t last = 0;
    while (fd >= 0 && !atomic_load(&race.done)) {
        struct sluice_error err;
        if (stat_read(fd, &d, &err) != SLUICE_OK) {
            if (err.status != SLUICE_ERR_STATE) {
                return (void *)"a read was refused";
            }
            continue; /* this writer never rests */
        }
        memset(&expected, 0, sizeof expected);
        fill(&expected, (uint32_t)d.stats.prompt.blocks);
        expected.pid = d.pid, expected.pid_namespace = d.pid_namespace, expected.start_ticks = d.start_ticks;
        const size_t used = offsetof(struct stat_data, layer) + (size_t)d.n_layers * sizeof d.layer[0];
        if (d.stats.prompt.blocks < last || memcmp(&d, &expected, used) != 0) {
            return (void *)"two writes in one read";
        }
        last = d.stats.prompt.blocks;
        atomic_fetch_add(&race.good, 1);
    }
    close(fd);
    return NULL;
}

static void test_race(void **state) {
    (void)state;
    static struct stat_data d;
    pthread_t t[READERS];
    struct sluice_error err;
    assert_int_equal(stat_create(&race.f, &err), SLUICE_OK);
    fill(&d, 0);
    stat_write(race.f, &d);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, race_read, NULL), 0);
    }
    /* Not before both have read something, so that the test is one on any machine. */
    for (uint32_t k = 1; k <= WRITES || atomic_load(&race.good) < 100; k++) {
        fill(&d, k);
        stat_write(race.f, &d);
    }
    atomic_store(&race.done, true);
    for (int i = 0; i < READERS; i++) {
        void *why;
        assert_int_equal(pthread_join(t[i], &why), 0);
        if (why) {
            fail_msg("%s", (const char *)why);
        }
    }
    stat_remove(race.f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leftovers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sweep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_named_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_directories, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_race, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
