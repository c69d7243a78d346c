/* A preloaded library that counts the calls of a process and its children below some folders, and lets one fail.

   What it does is in a file (the variable FAILING_CALLS names it) that all processes map: see `Control` in sweep.py. It
   stands between programs and the C library, so that writers in Python, Rust and C++ are seen alike. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CHANGES = 1, READS = 2, ALLOCATIONS = 4 };            /* kinds of calls, a set of bits */
enum { COUNT, FAIL, FILL, KILL, SIGNAL };                     /* what happens at the call */
enum { LARGE = 1 << 16 };                                     /* bytes of a counted allocation */

static volatile struct control {
  long armed, kinds, action, at, number /* of an error or signal */, process, count, hits;
  char roots[4][512], log[512];
} *control;
static __thread int inside;                                   /* the C library's own calls are not counted */

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FAILING_CALLS");
  int file = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *map = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  syscall(SYS_close, file);
  if (map != MAP_FAILED) control = map;
}

static int counted(int kind) { return control && control->armed && control->kinds & kind && !inside; }

/* Count a call; returns 1 if it has to fail, 2 if only half of it may be written. */
static int turn(int kind, const char *call, const char *path, int grows) {
  int kept = errno, result = 0;
  long n = __sync_add_and_fetch(&control->count, 1);
  char line[PATH_MAX + 128];
  int length = snprintf(line, sizeof line, "%ld\t%s\t%d\t%s\n", n, call, grows, path);
  int file = syscall(SYS_openat, AT_FDCWD, control->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file >= 0) { syscall(SYS_write, file, line, length); syscall(SYS_close, file); }
  if (control->action == FILL ? n >= control->at && grows : control->action != COUNT && n == control->at) {
    __sync_add_and_fetch(&control->hits, 1);
    if (control->action == KILL) { syscall(SYS_kill, (int)control->process, SIGKILL); syscall(SYS_kill, getpid(), SIGKILL); }
    else if (control->action == SIGNAL) syscall(SYS_kill, (int)control->process, (int)control->number);
    else if (control->action == FILL && n == control->at && !strcmp(call, "write")) result = 2;
    else { errno = control->action == FILL ? ENOSPC : (int)control->number; return 1; }
  }
  errno = kept;
  return result;
}

static int below(const char *path) {
  for (int i = 0; i < 4 && control->roots[i][0]; i++) {
    size_t n = strlen((const char *)control->roots[i]);
    if (!strncmp(path, (const char *)control->roots[i], n) && (!path[n] || path[n] == '/')) return 1;
  }
  return 0;
}

static int path_of_file(int file, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  long n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
  path[n > 0 ? n : 0] = 0;
  return n > 0 && path[0] == '/';
}

static int absolute(int folder, const char *name, char *path) {
  char base[PATH_MAX] = "";
  if (!name) return 0;
  if (name[0] == '/') return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX;
  if (folder == AT_FDCWD ? syscall(SYS_getcwd, base, sizeof base) < 0 : !path_of_file(folder, base)) return 0;
  return snprintf(path, PATH_MAX, "%s/%s", base, name) < PATH_MAX;
}

static int turn_of_name(int kind, const char *call, int folder, const char *name, int grows) {
  char path[PATH_MAX];
  return counted(kind) && absolute(folder, name, path) && below(path) ? turn(kind, call, path, grows) : 0;
}

static int turn_of_file(int kind, const char *call, int file, int grows) {
  char path[PATH_MAX];
  return counted(kind) && path_of_file(file, path) && below(path) ? turn(kind, call, path, grows) : 0;
}

/* Opening: a change if the file may be written. */

static int opened(int folder, const char *name, int flags, mode_t mode) {
  int changes = flags & (O_WRONLY | O_RDWR | O_CREAT);
  struct stat there;
  int grows = flags & O_CREAT && syscall(SYS_newfstatat, folder, name, &there, 0);
  if (turn_of_name(changes ? CHANGES : READS, changes ? "create" : "open", folder, name, grows) == 1) return -1;
  return syscall(SYS_openat, folder, name, flags, mode);
}
#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE return opened(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE return opened(folder, name, flags, mode); }

#define NEXT(type, name, ...) static type (*next)(__VA_ARGS__); if (!next) next = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)
static FILE *stream(FILE *(*next)(const char *, const char *), const char *name, const char *mode) {
  int changes = strpbrk(mode, "wa+") != 0;
  if (turn_of_name(changes ? CHANGES : READS, changes ? "create" : "open", AT_FDCWD, name, changes) == 1) return 0;
  return next(name, mode);
}
FILE *fopen(const char *name, const char *mode) { NEXT(FILE *, fopen, const char *, const char *); return stream(next, name, mode); }
FILE *fopen64(const char *name, const char *mode) { NEXT(FILE *, fopen64, const char *, const char *); return stream(next, name, mode); }

/* Calls with an open file. */

ssize_t write(int file, const void *data, size_t size) {
  int turn = turn_of_file(CHANGES, "write", file, 1);
  return turn == 1 ? -1 : syscall(SYS_write, file, data, turn == 2 && size > 1 ? size / 2 : size);
}
ssize_t read(int file, void *data, size_t size) { return turn_of_file(READS, "read", file, 0) ? -1 : syscall(SYS_read, file, data, size); }
ssize_t pread(int file, void *data, size_t size, off_t at) { return turn_of_file(READS, "read", file, 0) ? -1 : syscall(SYS_pread64, file, data, size, at); }
ssize_t pread64(int file, void *data, size_t size, off64_t at) { return turn_of_file(READS, "read", file, 0) ? -1 : syscall(SYS_pread64, file, data, size, at); }
ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return turn_of_file(CHANGES, "pwrite", file, 1) == 1 ? -1 : syscall(SYS_pwrite64, file, data, size, at); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { return turn_of_file(CHANGES, "pwrite", file, 1) == 1 ? -1 : syscall(SYS_pwrite64, file, data, size, at); }
ssize_t writev(int file, const struct iovec *parts, int count) { return turn_of_file(CHANGES, "writev", file, 1) == 1 ? -1 : syscall(SYS_writev, file, parts, count); }
ssize_t sendfile(int to, int from, off_t *at, size_t size) { return turn_of_file(CHANGES, "sendfile", to, 1) == 1 ? -1 : syscall(SYS_sendfile, to, from, at, size); }
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) { return turn_of_file(CHANGES, "sendfile", to, 1) == 1 ? -1 : syscall(SYS_sendfile, to, from, at, size); }
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *to_at, size_t size, unsigned flags) {
  return turn_of_file(CHANGES, "copy_file_range", to, 1) == 1 ? -1 : syscall(SYS_copy_file_range, from, at, to, to_at, size, flags);
}
int ftruncate(int file, off_t size) { return turn_of_file(CHANGES, "truncate", file, 0) ? -1 : syscall(SYS_ftruncate, file, size); }
int ftruncate64(int file, off64_t size) { return turn_of_file(CHANGES, "truncate", file, 0) ? -1 : syscall(SYS_ftruncate, file, size); }
int fsync(int file) { return turn_of_file(CHANGES, "sync", file, 0) ? -1 : syscall(SYS_fsync, file); }
int fdatasync(int file) { return turn_of_file(CHANGES, "sync", file, 0) ? -1 : syscall(SYS_fdatasync, file); }
int fchmod(int file, mode_t mode) { return turn_of_file(CHANGES, "chmod", file, 0) ? -1 : syscall(SYS_fchmod, file, mode); }
int flock(int file, int operation) {
  int frees = operation & 8; /* LOCK_UN */
  return !frees && turn_of_file(CHANGES, "lock", file, 0) ? -1 : syscall(SYS_flock, file, operation);
}
int close(int file) { /* of a file that was written; it is closed in any case, as by Linux */
  int written = counted(CHANGES) && (fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY;
  int fails = written && turn_of_file(CHANGES, "close", file, 0), kept = errno;
  int result = syscall(SYS_close, file);
  if (fails) errno = kept;
  return fails ? -1 : result;
}

/* Calls with names. */

int rename(const char *from, const char *to) { return turn_of_name(CHANGES, "rename", AT_FDCWD, to, 0) ? -1 : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int folder, const char *from, int other, const char *to) { return turn_of_name(CHANGES, "rename", other, to, 0) ? -1 : syscall(SYS_renameat2, folder, from, other, to, 0); }
int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) { return turn_of_name(CHANGES, "rename", other, to, 0) ? -1 : syscall(SYS_renameat2, folder, from, other, to, flags); }
int mkdirat(int folder, const char *name, mode_t mode) {
  struct stat there;
  int exists = !syscall(SYS_newfstatat, folder, name, &there, AT_SYMLINK_NOFOLLOW);
  return !exists && turn_of_name(CHANGES, "mkdir", folder, name, 1) == 1 ? -1 : syscall(SYS_mkdirat, folder, name, mode);
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
int unlinkat(int folder, const char *name, int flags) { return turn_of_name(CHANGES, flags & AT_REMOVEDIR ? "rmdir" : "unlink", folder, name, 0) ? -1 : syscall(SYS_unlinkat, folder, name, flags); }
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int chmod(const char *name, mode_t mode) { return turn_of_name(CHANGES, "chmod", AT_FDCWD, name, 0) ? -1 : syscall(SYS_fchmodat, AT_FDCWD, name, mode); }
int fchmodat(int folder, const char *name, mode_t mode, int flags) { return turn_of_name(CHANGES, "chmod", folder, name, 0) ? -1 : syscall(SYS_fchmodat, folder, name, mode); }
int link(const char *from, const char *to) { return turn_of_name(CHANGES, "link", AT_FDCWD, to, 1) == 1 ? -1 : syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0); }
int symlink(const char *from, const char *to) { return turn_of_name(CHANGES, "link", AT_FDCWD, to, 1) == 1 ? -1 : syscall(SYS_symlinkat, from, AT_FDCWD, to); }
int truncate(const char *name, off_t size) { return turn_of_name(CHANGES, "truncate", AT_FDCWD, name, 0) ? -1 : syscall(SYS_truncate, name, size); }
int truncate64(const char *name, off64_t size) { return turn_of_name(CHANGES, "truncate", AT_FDCWD, name, 0) ? -1 : syscall(SYS_truncate, name, size); }

/* Large allocations. */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static int no_memory(const char *call, size_t size) {
  if (size < LARGE || !counted(ALLOCATIONS)) return 0;
  inside = 1;
  int fails = turn(ALLOCATIONS, call, "memory", 1) == 1;
  inside = 0;
  if (fails) errno = ENOMEM;
  return fails;
}
void *malloc(size_t size) { return no_memory("malloc", size) ? 0 : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return no_memory("calloc", count * size) ? 0 : __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return no_memory("realloc", size) ? 0 : __libc_realloc(block, size); }
void *aligned_alloc(size_t alignment, size_t size) { return no_memory("aligned_alloc", size) ? 0 : __libc_memalign(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
  if (no_memory("posix_memalign", size)) return ENOMEM;
  *block = __libc_memalign(alignment, size);
  return *block ? 0 : ENOMEM;
}
