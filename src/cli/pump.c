/* pump.c: see pump.h. */
#include "cli/pump.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"

#define PIPE_BYTES (1 << 20)
#define QUIET_MS 500 /* without a byte, and the time is shown anew */

static void *work_main(void *user)
{
	struct pump *p = user;
	p->result = p->work(p->worker_fd, p->user);
	p->worker_fd = base_close(p->worker_fd); /* the other side sees the end */
	return NULL;
}

int pump_start(struct pump *p, bool worker_writes)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES); /* fewer switches; refused is no harm */
	p->writes = worker_writes;
	p->joined = false;
	p->result = 0;
	p->fd = ends[worker_writes ? 0 : 1];
	p->worker_fd = ends[worker_writes ? 1 : 0];
	int r = pthread_create(&p->thread, NULL, work_main, p);
	if (r) {
		close(ends[0]);
		close(ends[1]);
		p->fd = p->worker_fd = -1;
	}
	return -r;
}

static void join(struct pump *p)
{
	if (!p->joined)
		pthread_join(p->thread, NULL);
	p->joined = true;
}

ssize_t pump_read(void *buf, size_t n, void *user)
{
	struct pump *p = user;
	struct pollfd quiet = { .fd = p->fd, .events = POLLIN };
	ssize_t k;
	while (p->progress && poll(&quiet, 1, QUIET_MS) == 0)
		progress_add(p->progress, 0);
	do
		k = read(p->fd, buf, n);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return -errno;
	if (!k) {
		join(p); /* its end of stream may be a failure's */
		return p->result < 0 ? p->result : 0;
	}
	if (p->progress)
		progress_add(p->progress, (uint64_t)k);
	return k;
}

int pump_write(const void *data, size_t n, void *user)
{
	struct pump *p = user;
	int r = write_all(p->fd, data, n);
	if (!r && p->progress)
		progress_add(p->progress, n);
	return r;
}

int pump_finish(struct pump *p)
{
	p->fd = base_close(p->fd);
	join(p);
	return p->result;
}
