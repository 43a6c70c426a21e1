// Preloaded into a Postgres server it stands between it and its disk and its clients. What it does stands in a small file that
// PGTEST_DISK names and every process of the server maps, so that a test or a benchmark changes it while the server runs:
//
//   a slow disk    each fsync and fdatasync takes some time more, as one that is reached over a network does,
//   a full disk    no file of tables (base/), or of the log (pg_wal/), may grow: ENOSPC, as a file system without a free block says.
//                  What is there can be written anew, as on a real one,
//   a far client   the first reply after each request takes some time more. The server waits, not a proxy in
//                  between: that would take CPU from what is measured.
//
// Postgres 15 grows files of tables by pwrite, later ones by pwritev and posix_fallocate too; it makes files of the log
// with open, and fills them by pwritev or one pwrite at their end; copies of files are made by write.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FULL_TABLES = 1, FULL_LOG = 2 };

// The words of the file, as pgtest.Disk writes and reads them.
struct words {
	int64_t loaded;  // set by this library
	int64_t sync_us; // to each fsync and fdatasync
	int64_t trip_us; // to the first reply after each request
	int64_t unsynced; // 1: nothing is really synced
	int64_t full;    // FULL_…
	int64_t synced;  // fsyncs and fdatasyncs so far
	int64_t refused; // writes that met a full disk so far
};

static struct words none;
static volatile struct words *disk = &none;

__attribute__((constructor)) static void map(void) {
	const char *path = getenv("PGTEST_DISK");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0) return; // the test sees that it is not loaded
	void *at = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at == MAP_FAILED) return;
	disk = at;
	disk->loaded = 1;
}

#define REAL(name) \
	static __typeof__(name) *real; \
	if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

// nap waits as long as a word says, and no longer once it says less.
static void nap(volatile int64_t *word) {
	for (int64_t left, over = 0; (left = *word - over) > 0 && getppid() != 1;) { // who lost its server ends
		int64_t us = left < 10000 ? left : 10000;
		struct timespec t = {0, us * 1000};
		nanosleep(&t, NULL);
		over += us;
	}
}

// named puts the path of an open file into path; 0: it has none.
static int named(int fd, char *path, size_t size) {
	char link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, size - 1);
	if (n < 0) return 0;
	path[n] = 0;
	return 1;
}

// begins_sync waits, and says whether the real call is to be made. The first process of the server, which syncs nothing
// but its lock file, must not wait: it stops the others.
static int begins_sync(int fd) {
	char path[4096];
	__atomic_add_fetch(&disk->synced, 1, __ATOMIC_RELAXED);
	if (disk->sync_us && !(named(fd, path, sizeof path) && strstr(path, "/postmaster.pid"))) nap(&disk->sync_us);
	return !disk->unsynced;
}

int fsync(int fd) {
	REAL(fsync);
	return begins_sync(fd) ? real(fd) : 0;
}

int fdatasync(int fd) {
	REAL(fdatasync);
	return begins_sync(fd) ? real(fd) : 0;
}

// room reports whether n bytes may be written to fd at off; -1: where it stands.
static int room(int fd, off_t off, size_t n) {
	struct stat s;
	char path[4096];
	int64_t full = disk->full;
	if (!full || fstat(fd, &s) || !S_ISREG(s.st_mode)) return 1;
	if (off < 0) off = fcntl(fd, F_GETFL) & O_APPEND ? s.st_size : lseek(fd, 0, SEEK_CUR);
	if (off + (off_t)n <= s.st_size) return 1;
	if (!named(fd, path, sizeof path)) return 1;
	if (!(full & FULL_TABLES && strstr(path, "/data/base/")) && !(full & FULL_LOG && strstr(path, "/data/pg_wal/"))) return 1;
	__atomic_add_fetch(&disk->refused, 1, __ATOMIC_RELAXED);
	errno = ENOSPC;
	return 0;
}

static size_t length(const struct iovec *v, int n) {
	size_t all = 0;
	for (int i = 0; i < n; i++) all += v[i].iov_len;
	return all;
}

ssize_t write(int fd, const void *buf, size_t n) {
	REAL(write);
	return room(fd, -1, n) ? real(fd, buf, n) : -1;
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t off) {
	REAL(pwrite);
	return room(fd, off, n) ? real(fd, buf, n, off) : -1;
}

ssize_t pwritev(int fd, const struct iovec *v, int n, off_t off) {
	REAL(pwritev);
	return room(fd, off, length(v, n)) ? real(fd, v, n, off) : -1;
}

int posix_fallocate(int fd, off_t off, off_t n) { // it returns its error
	REAL(posix_fallocate);
	return room(fd, off, n) ? real(fd, off, n) : ENOSPC;
}

// A server may be built to call these, which are the same where off_t has 64 bits.
_Static_assert(sizeof(off_t) == 8, "off_t has 64 bits");
ssize_t pwrite64(int, const void *, size_t, off_t) __attribute__((alias("pwrite")));
ssize_t pwritev64(int, const struct iovec *, int, off_t) __attribute__((alias("pwritev")));
int posix_fallocate64(int, off_t, off_t) __attribute__((alias("posix_fallocate")));

static int asked; // a request was read and not answered yet; a backend has one thread

ssize_t recv(int fd, void *buf, size_t n, int flags) {
	REAL(recv);
	ssize_t got = real(fd, buf, n, flags);
	if (got > 0) asked = 1;
	return got;
}

ssize_t send(int fd, const void *buf, size_t n, int flags) {
	REAL(send);
	if (asked) nap(&disk->trip_us);
	asked = 0;
	return real(fd, buf, n, flags);
}
