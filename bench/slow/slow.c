// Preloaded into a Postgres server it stands in for a database in the cloud: a disk that is
// reached over a network, and a client in the next zone. It adds
//
//   SLOW_FSYNC_US  microseconds to every fsync and fdatasync,
//   SLOW_TRIP_US   microseconds to the first reply after each request.
//
// The server waits, not a proxy in between: that would take CPU from what is measured.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

static int asked; // a request was read and not answered yet; a backend has one thread

static void nap(const char *name) {
	const char *us = getenv(name);
	long n = us ? atol(us) : 0;
	struct timespec t = {n / 1000000, n % 1000000 * 1000};
	if (n > 0) nanosleep(&t, 0);
}

int fsync(int fd) {
	int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
	nap("SLOW_FSYNC_US");
	return real(fd);
}

int fdatasync(int fd) {
	int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
	nap("SLOW_FSYNC_US");
	return real(fd);
}

ssize_t recv(int fd, void *buf, size_t n, int flags) {
	ssize_t (*real)(int, void *, size_t, int) = dlsym(RTLD_NEXT, "recv");
	ssize_t got = real(fd, buf, n, flags);
	if (got > 0) asked = 1;
	return got;
}

ssize_t send(int fd, const void *buf, size_t n, int flags) {
	ssize_t (*real)(int, const void *, size_t, int) = dlsym(RTLD_NEXT, "send");
	if (asked) nap("SLOW_TRIP_US");
	asked = 0;
	return real(fd, buf, n, flags);
}
