/* chronus.c: main and the loop of PID 1 (see README.md and chronus-internal.h).
 *
 * Start: read the boot block, take the descriptors, arm SIGCHLD and the listening
 * socket, loop for ever. There is no way out: when something here is beyond
 * repair chronus exits, and the kernel ends the sandbox with it.
 *
 * Trust. chronus runs under an outer id that the sandbox cannot name: nothing
 * inside may signal, trace or read it. It opens no path of the sandbox; whatever
 * touches the sandbox's files is a child that has entered the user namespace. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "chronus/chronus-internal.h"

#define BATCH 64 /* epoll events a round */

int source_watch(struct chronus *c, struct source *s, uint32_t events)
{
	if (s->fd < 0 || (s->added && s->events == events && !(events & EPOLLONESHOT)))
		return 0;
	struct epoll_event ev = { .events = events, .data.ptr = s };
	int op = !events ? EPOLL_CTL_DEL : s->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	if (!events && !s->added)
		return 0;
	if (epoll_ctl(c->epfd, op, s->fd, &ev) < 0)
		return -errno;
	s->added = events != 0;
	s->events = events;
	return 0;
}

void source_close(struct chronus *c, struct source *s)
{
	source_watch(c, s, 0);
	s->fd = base_close(s->fd);
	s->added = false;
}

/* ---- Boot ---- */

static int cloexec(int fd)
{
	return fd < 0 ? 0 : fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static int read_boot(struct chronus_boot *b)
{
	ssize_t n = read_all(CHRONUS_BOOT_FD, b, sizeof(*b));
	if (n != sizeof(*b) || b->size != sizeof(*b) || b->version != CHRONUS_BOOT_VERSION)
		return -EPROTO;
	b->sandbox_id[SANDBOX_ID_MAX] = 0;
	/* Pipes of ours must not land on 0 to 2, which children replace. The boot
	 * pipe is at its end: as good as /dev/null for whoever reads it. */
	for (int i = 0; i <= 2; i++)
		if (fcntl(i, F_GETFD) < 0 && dup2(CHRONUS_BOOT_FD, i) < 0)
			return -errno;
	close(CHRONUS_BOOT_FD);
	int *fds[] = { &b->listen_fd, &b->userns_fd, &b->work_fd, &b->devpts_fd, &b->meminfo_fd,
		       &b->memory_usage_fd, &b->memory_stat_fd };
	int bad = 0;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		bad |= cloexec(*fds[i]);
	for (int i = 0; i < CHRONUS_V1_MAX; i++)
		bad |= cloexec(b->v1_tasks_fd[i]);
	if (bad || b->listen_fd < 0 || b->userns_fd < 0 || b->work_fd < 0)
		return -EBADF;
	return 0;
}

/* Children get the limit that we came with; PID 1 takes all it may. */
static void raise_nofile(struct chronus *c)
{
	if (getrlimit(RLIMIT_NOFILE, &c->nofile) < 0)
		return;
	struct rlimit all = { .rlim_cur = c->nofile.rlim_max, .rlim_max = c->nofile.rlim_max };
	setrlimit(RLIMIT_NOFILE, &all);
}

/* ---- Children ---- */

static void on_sigchld(struct source *s, uint32_t events)
{
	struct chronus *c = container_of(s, struct chronus, sigchld);
	struct signalfd_siginfo si;
	while (read(s->fd, &si, sizeof(si)) > 0)
		; /* one signal may stand for many children */
	struct rusage ru;
	int status;
	pid_t pid;
	while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
		if (exec_child_exited(c, pid, status, &ru) || file_child_exited(c, pid, status) ||
		    statfs_child_exited(c, pid))
			continue;
		/* else an orphan of the sandbox: reaping it is all there is to do */
	}
}

static int watch_children(struct chronus *c)
{
	sigset_t set;
	for (int i = 1; i < 65; i++) /* whatever came with exec; children need not do it again */
		signal(i, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	c->sigchld.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (c->sigchld.fd < 0)
		return -errno;
	c->sigchld.ready = on_sigchld;
	return source_watch(c, &c->sigchld, EPOLLIN);
}

/* ---- Loop ---- */

static int time_left(struct chronus *c)
{
	uint64_t at = MIN(MIN(exec_deadline(c), file_deadline(c)), MIN(statfs_deadline(c), c->collect_at));
	if (exec_running(c))
		at = MIN(at, c->meminfo_next);
	if (at == CHRONUS_NONE)
		return -1;
	uint64_t now = now_mono_ms();
	return at <= now ? 0 : (int)MIN(at - now, (uint64_t)60000);
}

static void run(struct chronus *c)
{
	struct epoll_event ev[BATCH];
	for (;;) {
		int n = epoll_wait(c->epfd, ev, BATCH, time_left(c));
		for (int i = 0; i < n; i++) {
			struct source *s = ev[i].data.ptr;
			if (s->fd >= 0 && s->added) /* closed earlier in this batch? */
				s->ready(s, ev[i].events);
		}
		uint64_t now = now_mono_ms();
		exec_tick(c, now);
		file_tick(c, now);
		statfs_tick(c, now);
		if (exec_running(c) && now >= c->meminfo_next) {
			meminfo_refresh(c, now);
			exec_tidy(c);
		}
		conn_flush(c);
		c->collect_at = CHRONUS_NONE;
		exec_collect(c);
		file_collect(c);
	}
}

int main(void)
{
	static struct chronus c = { .collect_at = CHRONUS_NONE };
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NAME, "chronus"); /* not that of the file we came from */
	umask(022);
	c.conn.s.fd = c.sigchld.fd = -1;
	if (read_boot(&c.boot) < 0)
		return 70;
	raise_nofile(&c);
	c.epfd = epoll_create1(EPOLL_CLOEXEC);
	c.listener.fd = c.boot.listen_fd;
	if (c.epfd < 0 || watch_children(&c) < 0)
		return 71;
	meminfo_refresh(&c, now_mono_ms());
	conn_listen(&c);
	run(&c);
}
