/* Faults in the file operations of a process, for tests: loaded by LD_PRELOAD, armed by `faults_arm`.

   Operations on files below one directory are counted. The chosen one fails, writes half, or ends the process.
   With LOSE a dying process takes back everything that it has not synced: bytes without fsync, names whose
   directory was not synced, removals and renames. That is the worst image that a loss of power may leave.

   SEQSTORE_TESTS_SLOW=microseconds:seed:directory makes the disk slow instead: a quarter of the writes, syncs,
   resizes and renames below the directory wait for a random time of at most so many microseconds.

   SEQSTORE_TESTS_FAULT=number:action:error:directory arms the faults from the start; a fork counts on from the
   number of its parent. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FAIL = 1, SHORT = 2, KILL = 3, LOSE = 4 };
enum { UNDO_BYTES = 1, UNDO_NAME = 2, UNDO_REMOVAL = 3, UNDO_RENAME = 4 };

struct undo {
    int kind;
    char path[PATH_MAX], other[PATH_MAX];
    char *bytes;
    long size;
    struct undo *next; /* the one noted before */
};

static char root[PATH_MAX];
static long counted, target;
static int armed, action, code, lasting, fired, trace = -1;
static char kinds[256];
static struct undo *undos;
static pthread_mutex_t guard = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

/* Arms the faults. `operations` names the kinds that may be hit, between commas; empty for all. */
void faults_arm(const char *directory, long number, int what, int error, int stays, const char *operations, int file) {
    snprintf(root, sizeof root, "%s/", directory);
    snprintf(kinds, sizeof kinds, "%s", operations);
    counted = 0, target = number, action = what, code = error, lasting = stays, fired = 0, trace = file;
    armed = 1;
}

long faults_disarm(void) {
    armed = 0;
    return counted;
}

int faults_fired(void) { return fired; }

static int below(const char *path) { return armed && path && !strncmp(path, root, strlen(root)); }

static int path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return below(path);
}

static void absolute(const char *path, char *full) {
    if (path[0] == '/') snprintf(full, PATH_MAX, "%s", path);
    else if (getcwd(full, PATH_MAX / 2)) {
        size_t size = strlen(full);
        snprintf(full + size, PATH_MAX - size, "/%s", path);
    }
}

/* Whether bytes must be synced to last: leases and locks end with their process. */
static int lasts(const char *path) {
    const char *name = path + strlen(root);
    return strncmp(name, "readers/", 8) && strncmp(name, "locks/", 6) && !strstr(name, "lock.mdb");
}

static char *bytes_of(const char *path, long *size) {
    int file = REAL(open)(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    *size = -1;
    if (file < 0 || fstat(file, &status) || !S_ISREG(status.st_mode)) {
        if (file >= 0) REAL(close)(file);
        return NULL;
    }
    char *bytes = malloc(status.st_size + 1);
    *size = REAL(pread)(file, bytes, status.st_size, 0);
    REAL(close)(file);
    return bytes;
}

static void note(int kind, const char *path, const char *other) {
    if (action != LOSE || !lasts(path)) return;
    for (struct undo *each = undos; each && kind == UNDO_BYTES; each = each->next)
        if (each->kind == UNDO_BYTES && !strcmp(each->path, path)) return;
    struct undo *made = calloc(1, sizeof *made);
    made->kind = kind;
    snprintf(made->path, PATH_MAX, "%s", path);
    if (other) snprintf(made->other, PATH_MAX, "%s", other);
    if (kind != UNDO_NAME) made->bytes = bytes_of(kind == UNDO_RENAME ? other : path, &made->size);
    made->next = undos;
    undos = made;
}

static void forget(const char *path, int is_directory) {
    size_t size = strlen(path);
    for (struct undo **each = &undos; *each;) {
        struct undo *one = *each;
        const char *name = one->kind == UNDO_RENAME ? one->other : one->path;
        int inside = is_directory && !strncmp(name, path, size) && name[size] == '/' && !strchr(name + size + 1, '/');
        if (is_directory ? inside && one->kind != UNDO_BYTES : one->kind == UNDO_BYTES && !strcmp(name, path)) {
            *each = one->next;
            free(one->bytes);
            free(one);
        } else each = &one->next;
    }
}

/* The rest runs in a fork of a process with threads, whose locks may be held: system calls only. */
static void put_back(const char *path, const char *bytes, long size) {
    int file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) return;
    for (long done = 0, wrote; done < size && (wrote = syscall(SYS_write, file, bytes + done, size - done)) > 0;)
        done += wrote;
    syscall(SYS_close, file);
}

static void take_back(void) {
    for (struct undo *each = undos; each; each = each->next) switch (each->kind) {
        case UNDO_BYTES:
            if (each->size >= 0 && !syscall(SYS_faccessat, AT_FDCWD, each->path, F_OK))
                put_back(each->path, each->bytes, each->size);
            break;
        case UNDO_NAME:
            if (syscall(SYS_unlinkat, AT_FDCWD, each->path, 0))
                syscall(SYS_unlinkat, AT_FDCWD, each->path, AT_REMOVEDIR);
            break;
        case UNDO_REMOVAL:
            if (each->size >= 0) put_back(each->path, each->bytes, each->size);
            break;
        case UNDO_RENAME:
            syscall(SYS_renameat2, AT_FDCWD, each->other, AT_FDCWD, each->path, 0);
            if (each->size >= 0) put_back(each->other, each->bytes, each->size);
        }
}

/* Leaves a fork that takes back what is not synced, once this process is dead: one of its threads would read a
   file that is half put back, and end the process in the middle. The fork has the pipe of `_forked` open, which
   waits for its end, and lets go of all other files before: with them go their locks. */
static void lose(void) {
    long process = getpid();
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) return;
    while (syscall(SYS_getppid) == process) syscall(SYS_sched_yield);
    take_back();
    struct stat status;
    for (int file = 3; file < 1 << 16; file++)
        if (!fstat(file, &status) && !S_ISFIFO(status.st_mode)) syscall(SYS_close, file);
    syscall(SYS_exit_group, 0);
}

/* Counts an operation; returns an error number, -1 for a short write, 0 to go on. */
static int hit(const char *kind, const char *path) {
    counted++;
    if (trace >= 0) {
        char line[PATH_MAX + 64];
        int size = snprintf(line, sizeof line, "%ld %s %s\n", counted, kind, path + strlen(root));
        if (REAL(write)(trace, line, size) < 0) abort();
    }
    char wanted[64];
    snprintf(wanted, sizeof wanted, ",%s,", kind);
    if (!target || counted < target || (fired && !lasting) || (kinds[0] && !strstr(kinds, wanted))) return 0;
    fired = 1;
    if (action == LOSE) lose();
    if (action >= KILL) {
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
    return action == SHORT ? -1 : code;
}

__attribute__((constructor)) static void read_fault(void) {
    const char *given = getenv("SEQSTORE_TESTS_FAULT");
    char directory[PATH_MAX];
    long number;
    int what, error;
    if (given && sscanf(given, "%ld:%d:%d:%4000s", &number, &what, &error, directory) == 4)
        faults_arm(directory, number, what, error, 0, "", -1);
}

static long slow_us;
static unsigned slow_seed;
static char slow_root[PATH_MAX];

__attribute__((constructor)) static void read_slowness(void) {
    const char *given = getenv("SEQSTORE_TESTS_SLOW");
    if (!given || sscanf(given, "%ld:%u:%4000s", &slow_us, &slow_seed, slow_root) != 3) slow_us = 0;
    slow_seed += getpid();
}

static void wait_for_disk(const char *path) {
    if (strncmp(path, slow_root, strlen(slow_root)) || rand_r(&slow_seed) % 4) return;
    usleep(rand_r(&slow_seed) % slow_us);
}

static void wait_for_file(int file) {
    char link[64], path[PATH_MAX];
    if (!slow_us) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0) return;
    path[size] = 0;
    wait_for_disk(path);
}

#define LOCK pthread_mutex_lock(&guard)
#define UNLOCK pthread_mutex_unlock(&guard)
#define REFUSE(error) do { UNLOCK; errno = (error); return -1; } while (0)

static int opened(int folder, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX] = "";
    int error;
    if (armed && folder == AT_FDCWD) absolute(path, full);
    if (!below(full)) return REAL(openat)(folder, path, flags, mode);
    LOCK;
    int is_new = (flags & O_CREAT) && access(full, F_OK);
    if ((error = hit(is_new ? "create" : "open", full)) > 0) REFUSE(error);
    if (is_new) note(UNDO_NAME, full, NULL);
    else if (flags & O_TRUNC) note(UNDO_BYTES, full, NULL);
    int file = REAL(openat)(folder, path, flags, mode);
    UNLOCK;
    return file;
}

#define MODE_OF(flags, mode) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int open(const char *path, int flags, ...) { MODE_OF(flags, mode) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags, mode) return opened(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE_OF(flags, mode) return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE_OF(flags, mode) return opened(folder, path, flags, mode); }

#define WRITE(name, parameters, full_call, half_call) \
    ssize_t name parameters { \
        char path[PATH_MAX]; \
        int error = 0; \
        wait_for_file(file); \
        if (!armed || !path_of(file, path)) return full_call; \
        LOCK; \
        if ((error = hit("write", path)) > 0) REFUSE(error); \
        note(UNDO_BYTES, path, NULL); \
        ssize_t done = error ? half_call : full_call; \
        UNLOCK; \
        return done; \
    }

static size_t half(size_t size) { return size > 1 ? size / 2 : size; }

WRITE(write, (int file, const void *data, size_t size), REAL(write)(file, data, size), REAL(write)(file, data, half(size)))
WRITE(pwrite, (int file, const void *data, size_t size, off_t at), REAL(pwrite)(file, data, size, at), REAL(pwrite)(file, data, half(size), at))
WRITE(pwrite64, (int file, const void *data, size_t size, off64_t at), REAL(pwrite)(file, data, size, at), REAL(pwrite)(file, data, half(size), at))
WRITE(writev, (int file, const struct iovec *parts, int count), REAL(writev)(file, parts, count), REAL(writev)(file, parts, (count + 1) / 2))

#define READ(name, parameters, call) \
    ssize_t name parameters { \
        char path[PATH_MAX]; \
        int error; \
        if (!armed || !path_of(file, path)) return call; \
        LOCK; \
        if ((error = hit("read", path)) > 0) REFUSE(error); \
        UNLOCK; \
        return call; \
    }

READ(read, (int file, void *data, size_t size), REAL(read)(file, data, size))
READ(pread, (int file, void *data, size_t size, off_t at), REAL(pread)(file, data, size, at))
READ(pread64, (int file, void *data, size_t size, off64_t at), REAL(pread)(file, data, size, at))

#define SYNC(name) \
    int name(int file) { \
        char path[PATH_MAX]; \
        struct stat status; \
        int error; \
        wait_for_file(file); \
        if (!armed || !path_of(file, path)) return REAL(name)(file); \
        LOCK; \
        if ((error = hit("sync", path)) > 0) REFUSE(error); \
        int done = REAL(name)(file); \
        if (!done && !fstat(file, &status)) forget(path, S_ISDIR(status.st_mode)); \
        UNLOCK; \
        return done; \
    }

SYNC(fsync)
SYNC(fdatasync)

#define RESIZE(name, kind, parameters, call, failed) \
    int name parameters { \
        char path[PATH_MAX]; \
        int error; \
        wait_for_file(file); \
        if (!armed || !path_of(file, path)) return call; \
        LOCK; \
        if ((error = hit(kind, path)) > 0) { UNLOCK; errno = error; return failed; } \
        note(UNDO_BYTES, path, NULL); \
        int done = call; \
        UNLOCK; \
        return done; \
    }

RESIZE(ftruncate, "resize", (int file, off_t size), REAL(ftruncate)(file, size), -1)
RESIZE(ftruncate64, "resize", (int file, off64_t size), REAL(ftruncate)(file, size), -1)
RESIZE(posix_fallocate, "resize", (int file, off_t at, off_t size), REAL(posix_fallocate)(file, at, size), error)
RESIZE(posix_fallocate64, "resize", (int file, off64_t at, off64_t size), REAL(posix_fallocate)(file, at, size), error)

#define REMOVE(name) \
    int name(const char *path) { \
        char full[PATH_MAX] = ""; \
        int error; \
        if (armed) absolute(path, full); \
        if (!below(full)) return REAL(name)(path); \
        LOCK; \
        if ((error = hit("remove", full)) > 0) REFUSE(error); \
        note(UNDO_REMOVAL, full, NULL); \
        int done = REAL(name)(path); \
        UNLOCK; \
        return done; \
    }

REMOVE(unlink)
REMOVE(rmdir)

int mkdir(const char *path, mode_t mode) {
    char full[PATH_MAX] = "";
    int error;
    if (armed) absolute(path, full);
    if (!below(full)) return REAL(mkdir)(path, mode);
    LOCK;
    if ((error = hit("create", full)) > 0) REFUSE(error);
    int done = REAL(mkdir)(path, mode);
    if (!done) note(UNDO_NAME, full, NULL);
    UNLOCK;
    return done;
}

#define TWO(name, kind, undo) \
    int name(const char *from, const char *to) { \
        char one[PATH_MAX] = "", two[PATH_MAX] = ""; \
        int error; \
        if (slow_us) absolute(to, two), wait_for_disk(two), two[0] = 0; \
        if (armed) absolute(from, one), absolute(to, two); \
        if (!below(two)) return REAL(name)(from, to); \
        LOCK; \
        if ((error = hit(kind, two)) > 0) REFUSE(error); \
        if (undo == UNDO_NAME) note(UNDO_NAME, two, NULL); \
        else note(UNDO_RENAME, one, two); \
        int done = REAL(name)(from, to); \
        UNLOCK; \
        return done; \
    }

TWO(rename, "rename", UNDO_RENAME)
TWO(link, "create", UNDO_NAME)
