/* Lets one system call on files below a directory fail: preloaded, and armed by the test. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

struct armed {
	long seen, wanted, code;
	char called[64], below[PATH_MAX], also[PATH_MAX];
	/* Only calls of this site ("write trace/stream_#"), or of this name ("write"), are counted,
	   if it is given; and a file that takes the sites of all calls, one a line. */
	char site[PATH_MAX], log[PATH_MAX];
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

/* What is the same in every run: the call, and the path without numbers and sessions' names. */
static void name_site(char *site, size_t size, const char *name, const char *path)
{
	size_t at = (size_t)snprintf(site, size, "%s ", name);
	while (*path && at + 2 < size) {
		if (!strncmp(path, "critpath-", 9) && isdigit((unsigned char)path[9])) {
			for (path += 9; isxdigit((unsigned char)*path) || *path == '-';)
				path++;
			site[at++] = '@';
		} else if (isdigit((unsigned char)*path)) {
			while (isdigit((unsigned char)*path))
				path++;
			site[at++] = '#';
		} else {
			site[at++] = *path++;
		}
	}
	site[at] = 0;
}

static void note(const char *site)
{
	char line[PATH_MAX + 1];
	int length = snprintf(line, sizeof line, "%s\n", site), fd;
	/* One that is open already: what is confined opens none. */
	if (sscanf(now->log, "/dev/fd/%d", &fd) == 1) {
		syscall(SYS_write, fd, line, length);
		return;
	}
	fd = (int)syscall(SYS_openat, AT_FDCWD, now->log,
			  O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	syscall(SYS_write, fd, line, length);
	syscall(SYS_close, fd);
}

static int is_due(const char *name, const char *path)
{
	char site[PATH_MAX];
	if (!is_below(path, now->below) && !is_below(path, now->also))
		return 0;
	if (now->site[0] || now->log[0])
		name_site(site, sizeof site, name, path);
	if (now->log[0])
		note(site);
	if (now->site[0] && strcmp(strchr(now->site, ' ') ? site : name, now->site))
		return 0;
	if (__atomic_add_fetch(&now->seen, 1, __ATOMIC_RELAXED) != now->wanted)
		return 0;
	snprintf(now->called, sizeof now->called, "%s", name);
	errno = (int)now->code;
	return 1;
}

/* A descriptor's path, and what is below it; not by readlink(), which is one of those below. */
static int is_due_at(const char *name, const char *link, const char *rest)
{
	char path[PATH_MAX];
	ssize_t length = syscall(SYS_readlink, link, path, sizeof path - 1);
	if (length < 0)
		return 0;
	snprintf(path + length, sizeof path - (size_t)length, "%s%s", *rest ? "/" : "", rest);
	return is_due(name, path);
}

static int on_file(const char *name, int descriptor)
{
	char link[64];
	int before = errno, due;
	if (!now->below[0] || descriptor < 0)
		return 0;
	snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
	due = is_due_at(name, link, "");
	if (!due)
		errno = before;
	return due;
}

static int on_path(const char *name, int at, const char *path)
{
	char link[64];
	int before = errno, end = 0, due;
	if (!now->below[0] || !path)
		return 0;
	if (path[0] != '/' && at == AT_FDCWD)
		return 0;
	if (path[0] != '/') {
		snprintf(link, sizeof link, "/proc/self/fd/%d", at);
		due = is_due_at(name, link, path);
	} else if ((sscanf(path, "/proc/self/fd/%*u%n", &end) || 1) &&
		   (end || (sscanf(path, "/proc/%*u/fd/%*u%n", &end) || 1)) && end && end < 64) {
		snprintf(link, sizeof link, "%.*s", end, path);
		due = is_due_at(name, link, path[end] == '/' ? path + end + 1 : "");
	} else {
		due = is_due(name, path);
	}
	if (!due)
		errno = before;
	return due;
}

/* In place of an error: a write writes half of what it is given. */
enum { SHORT = -1 };

static int is_short(int due, size_t size)
{
	return due && now->code == SHORT && size > 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define FILES(result, name, parameters, arguments)                                                 \
	result name parameters                                                                     \
	{                                                                                          \
		return on_file(#name, fd) ? -1 : REAL(name) arguments;                             \
	}

#define WRITES(name, parameters, arguments)                                                        \
	ssize_t name parameters                                                                    \
	{                                                                                          \
		int due = on_file(#name, fd), code = errno;                                        \
		if (is_short(due, size))                                                           \
			size /= 2;                                                                 \
		else if (due && code != SHORT)                                                     \
			return -1;                                                                 \
		return REAL(name) arguments;                                                       \
	}
WRITES(write, (int fd, const void *data, size_t size), (fd, data, size))
WRITES(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
WRITES(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
FILES(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
FILES(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
FILES(ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at))
FILES(ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
FILES(int, fsync, (int fd), (fd))
FILES(int, fdatasync, (int fd), (fd))
FILES(int, ftruncate64, (int fd, off64_t size), (fd, size))
FILES(int, ftruncate, (int fd, off_t size), (fd, size))
FILES(int, flock, (int fd, int how), (fd, how))
FILES(int, fchmod, (int fd, mode_t mode), (fd, mode))
FILES(int, fstat64, (int fd, struct stat64 *status), (fd, status))
FILES(int, fstat, (int fd, struct stat *status), (fd, status))
FILES(int, fstatvfs64, (int fd, struct statvfs64 *status), (fd, status))
FILES(int, fchown, (int fd, uid_t user, gid_t group), (fd, user, group))
FILES(off_t, lseek, (int fd, off_t at, int from), (fd, at, from))
FILES(off64_t, lseek64, (int fd, off64_t at, int from), (fd, at, from))

/* Into a file. */
WRITES(sendfile64, (int fd, int from, off64_t *at, size_t size), (fd, from, at, size))
ssize_t copy_file_range(int from, off64_t *at, int fd, off64_t *there, size_t size, unsigned flags);
WRITES(copy_file_range, (int from, off64_t *at, int fd, off64_t *there, size_t size, unsigned flags), (from, at, fd, there, size, flags))

ssize_t splice(int fd, off64_t *at, int to, off64_t *there, size_t size, unsigned flags)
{
	if (on_file("splice from", fd) || on_file("splice to", to))
		return -1;
	return REAL(splice)(fd, at, to, there, size, flags);
}

/* What fails has closed it all the same. */
int close(int fd)
{
	int due = on_file("close", fd), code = errno, result = REAL(close)(fd);
	if (due)
		errno = code;
	return due ? -1 : result;
}

int posix_fallocate64(int fd, off64_t at, off64_t size)
{
	return on_file("posix_fallocate64", fd) ? errno : REAL(posix_fallocate64)(fd, at, size);
}

#define MAPS(name, offset)                                                                         \
	void *name(void *where, size_t size, int protection, int flags, int fd, offset at)         \
	{                                                                                          \
		if (!(flags & MAP_ANONYMOUS) && on_file("mmap", fd))                               \
			return MAP_FAILED;                                                         \
		return REAL(name)(where, size, protection, flags, fd, at);                         \
	}
MAPS(mmap, off_t)
MAPS(mmap64, off64_t)

DIR *opendir(const char *path)
{
	return on_path("opendir", AT_FDCWD, path) ? NULL : REAL(opendir)(path);
}

DIR *fdopendir(int fd) { return on_file("fdopendir", fd) ? NULL : REAL(fdopendir)(fd); }

struct dirent64 *readdir64(DIR *directory)
{
	return on_file("readdir", dirfd(directory)) ? NULL : REAL(readdir64)(directory);
}

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
PATHS(int, access, (const char *path, int mode), (path, mode), AT_FDCWD, path)
PATHS(int, faccessat, (int at, const char *path, int mode, int flags), (at, path, mode, flags), at, path)
PATHS(int, statvfs64, (const char *path, struct statvfs64 *status), (path, status), AT_FDCWD, path)
PATHS(int, link, (const char *path, const char *to), (path, to), AT_FDCWD, to)
PATHS(int, linkat, (int at, const char *path, int there, const char *to, int flags), (at, path, there, to, flags), there, to)
PATHS(int, symlink, (const char *path, const char *to), (path, to), AT_FDCWD, to)
PATHS(int, inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, path, mask), AT_FDCWD, path)
PATHS(int, fanotify_mark, (int fd, unsigned flags, uint64_t mask, int at, const char *path), (fd, flags, mask, at, path), at, path)
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
OPENS(open, (const char *path, int flags, ...), REAL(open)(path, flags, mode), AT_FDCWD)
OPENS(openat, (int at, const char *path, int flags, ...), REAL(openat)(at, path, flags, mode), at)
OPENS(open64, (const char *path, int flags, ...), REAL(open64)(path, flags, mode), AT_FDCWD)
OPENS(openat64, (int at, const char *path, int flags, ...), REAL(openat64)(at, path, flags, mode), at)
