/* Lets one system call on files below a directory fail: preloaded, and armed by the test. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct armed {
	long seen, wanted, code;
	char called[64], below[PATH_MAX], also[PATH_MAX];
};
static struct armed own;
/* Where CRITPATH_FAULTS names a file, all processes that have it count together. */
static struct armed *now = &own;

__attribute__((constructor)) static void share(void)
{
	const char *file = getenv("CRITPATH_FAULTS");
	void *found;
	int fd = file ? (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	found = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	syscall(SYS_close, fd);
	if (found != MAP_FAILED)
		now = found;
}

/* Which call is to fail, from 1 on; 0 counts only. */
void fault_arm(const char *directory, long call, int error)
{
	snprintf(now->below, sizeof now->below, "%s", directory);
	now->seen = 0;
	now->wanted = call;
	now->code = error;
	now->called[0] = 0;
}

void fault_disarm(void) { now->below[0] = 0; }
long fault_seen(void) { return now->seen; }
const char *fault_called(void) { return now->called; }

static int is_below(const char *path, const char *directory)
{
	return directory[0] && !strncmp(path, directory, strlen(directory));
}

static int is_due(const char *name, const char *path)
{
	if (!is_below(path, now->below) && !is_below(path, now->also))
		return 0;
	if (__atomic_add_fetch(&now->seen, 1, __ATOMIC_RELAXED) != now->wanted)
		return 0;
	snprintf(now->called, sizeof now->called, "%s", name);
	errno = (int)now->code;
	return 1;
}

static int on_file(const char *name, int descriptor)
{
	char link[64], path[PATH_MAX];
	ssize_t length;
	if (!now->below[0])
		return 0;
	snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
	length = readlink(link, path, sizeof path - 1);
	if (length < 0)
		return 0;
	path[length] = 0;
	return is_due(name, path);
}

static int on_path(const char *name, int at, const char *path)
{
	return path[0] == '/' ? is_due(name, path) : at == AT_FDCWD ? 0 : on_file(name, at);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define FILES(result, name, parameters, arguments)                                                 \
	result name parameters                                                                     \
	{                                                                                          \
		return on_file(#name, fd) ? -1 : REAL(name) arguments;                             \
	}
FILES(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
FILES(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
FILES(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
FILES(ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at))
FILES(int, fsync, (int fd), (fd))
FILES(int, fdatasync, (int fd), (fd))
FILES(int, ftruncate64, (int fd, off64_t size), (fd, size))
FILES(int, flock, (int fd, int how), (fd, how))
FILES(int, fchmod, (int fd, mode_t mode), (fd, mode))
FILES(int, fstat64, (int fd, struct stat64 *status), (fd, status))
FILES(off64_t, lseek64, (int fd, off64_t at, int from), (fd, at, from))

#define PATHS(result, name, parameters, arguments, at, path)                                       \
	result name parameters                                                                     \
	{                                                                                          \
		return on_path(#name, at, path) ? -1 : REAL(name) arguments;                       \
	}
PATHS(int, rename, (const char *from, const char *to), (from, to), AT_FDCWD, from)
PATHS(int, renameat, (int at, const char *from, int other, const char *to), (at, from, other, to), at, from)
PATHS(int, mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
PATHS(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), at, path)
PATHS(int, unlink, (const char *path), (path), AT_FDCWD, path)
PATHS(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), at, path)
PATHS(int, rmdir, (const char *path), (path), AT_FDCWD, path)
PATHS(int, stat64, (const char *path, struct stat64 *status), (path, status), AT_FDCWD, path)
PATHS(int, lstat64, (const char *path, struct stat64 *status), (path, status), AT_FDCWD, path)
PATHS(int, fstatat64, (int at, const char *path, struct stat64 *status, int flags), (at, path, status, flags), at, path)
PATHS(int, chmod, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
PATHS(ssize_t, readlink, (const char *path, char *to, size_t size), (path, to, size), AT_FDCWD, path)

#define OPENS(name, parameters, call, at)                                                          \
	int name parameters                                                                        \
	{                                                                                          \
		va_list more;                                                                      \
		mode_t mode;                                                                       \
		va_start(more, flags);                                                             \
		mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                 \
		va_end(more);                                                                      \
		return on_path(#name, at, path) ? -1 : call;                                       \
	}
OPENS(open64, (const char *path, int flags, ...), REAL(open64)(path, flags, mode), AT_FDCWD)
OPENS(openat64, (int at, const char *path, int flags, ...), REAL(openat64)(at, path, flags, mode), at)
