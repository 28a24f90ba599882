/* spawner.c: dsec-spawner, the small process whose children are PID 1 of sandboxes.
 *
 * One a core, started by the supervisor, asked by the edge's container backend
 * (spawner_ipc.h). It is single-threaded, statically linked, allocates only at its
 * start, and its mount namespace holds next to nothing (spawner_root.c), because
 * all of that is what a clone pays for. It keeps no state of any sandbox: the edge
 * holds every descriptor, and a killed spawner is replaced by a new one while its
 * former children live on. Its own death therefore loses only requests in flight.
 *
 *   dsec-spawner --run-dir R --index N --chronus PATH
 *
 * A SPAWN keeps it asleep until the child has executed (about half a millisecond);
 * SLOT requests overlap with everything. Bad packets close the connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "backend/container/spawner-internal.h"
#include "base/cleanup.h"
#include "base/fdio.h"
#include "base/log.h"
#include "kernel/cpuinfo.h"
#include "kernel/namespaces.h"
#include "kernel/seccomp.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#define EVENTS_MAX 32

static int clients[SPAWNER_CLIENTS_MAX];

static int add_event(struct spawner *s, int fd, uint64_t data)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = data };
	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static void client_close(struct spawner *s, int fd)
{
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
		if (clients[i] == fd) {
			clients[i] = -1;
			spawner_slot_client_gone(fd);
			epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* see helper_ended */
			base_close(fd);
		}
}

static void client_accept(struct spawner *s)
{
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
		if (clients[i] < 0 && add_event(s, fd, EV(EV_CLIENT, fd)) == 0) {
			clients[i] = fd;
			return;
		}
	base_close(fd); /* more clients than an edge and its tests ever are */
}

void spawner_reply_to(struct spawner *s, int client, const struct spawner_reply *reply, const int *fds, size_t n)
{
	/* Full: the client stopped reading. It finds the connection closed and
	 * treats what was outstanding as lost, as after our death. */
	if (send_fds(client, reply, sizeof(*reply), fds, n) < 0)
		client_close(s, client);
}

/* Sorts the packet's descriptors by their bits. false: counts do not agree. */
static bool sort_fds(const struct spawner_request *q, const int *in, size_t n, struct spawner_fds *ret)
{
	size_t k = 0;
	for (int i = 0; i < SPAWNER_FD_COUNT; i++) {
		ret->fd[i] = -1;
		if (!(q->fds & (1u << i)))
			continue;
		if (k == n)
			return false;
		ret->fd[i] = in[k++];
	}
	return k == n;
}

static bool request_valid(const struct spawner_request *q, const struct spawner_fds *f)
{
	if (q->version != SPAWNER_IPC_VERSION || !q->outer_id || !q->id_base ||
	    q->id_base + (uint64_t)SPAWNER_ID_COUNT > UINT32_MAX || q->outer_id == UINT32_MAX)
		return false;
	if (q->op == SPAWNER_SLOT)
		return f->fd[SPAWNER_FD_CG_SANDBOX] >= 0;
	static const int needed[] = { SPAWNER_FD_OVERLAY,    SPAWNER_FD_USERNS,     SPAWNER_FD_NETNS,
				      SPAWNER_FD_CGROUPNS,   SPAWNER_FD_CG_CHRONUS, SPAWNER_FD_CG_WORK,
				      SPAWNER_FD_MEMORY_USAGE, SPAWNER_FD_MEMORY_STAT, SPAWNER_FD_LISTEN };
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (f->fd[needed[i]] < 0)
			return false;
	return q->op == SPAWNER_SPAWN && q->cpus <= CPUS_MAX && memchr(q->sandbox_id, 0, sizeof(q->sandbox_id)) &&
	       memchr(q->hostname, 0, sizeof(q->hostname));
}

static void serve(struct spawner *s, int client, const struct spawner_request *q, const struct spawner_fds *f)
{
	struct spawner_reply reply = { .version = SPAWNER_IPC_VERSION, .token = q->token };
	int pidfd = -1;
	int r = q->op == SPAWNER_SLOT ? spawner_slot_begin(s, client, q, f) : spawner_spawn(s, q, f, &reply, &pidfd);
	if (q->op == SPAWNER_SLOT && r < 0) {
		reply.err = r;
		reply.code = r == -EAGAIN ? DSEC_E_OVERLOADED : DSEC_E_INTERNAL;
		snprintf(reply.message, sizeof(reply.message), "making a slot: start the helper: %s", strerror(-r));
	}
	if (q->op != SPAWNER_SLOT || r < 0)
		spawner_reply_to(s, client, &reply, &pidfd, pidfd >= 0);
	base_close(pidfd);
}

static void client_read(struct spawner *s, int client)
{
	struct spawner_request q;
	int in[FDIO_FDS_MAX];
	size_t n = FDIO_FDS_MAX;
	ssize_t got = recv_fds(client, &q, sizeof(q), in, &n);
	if (got == -EAGAIN)
		return;
	struct spawner_fds f;
	bool ok = got == sizeof(q) && sort_fds(&q, in, n, &f) && request_valid(&q, &f);
	if (ok)
		serve(s, client, &q, &f);
	for (size_t i = 0; got >= 0 && i < n; i++)
		base_close(in[i]);
	if (!ok) {
		if (got)
			log_warn("a packet that is no request of this build: connection closed");
		client_close(s, client);
	}
}

/* Children of SPAWN need no attention: the edge holds their pidfds. */
static bool signals_read(struct spawner *s)
{
	struct signalfd_siginfo si;
	bool end = false;
	while (read(s->signal_fd, &si, sizeof(si)) == sizeof(si))
		end |= si.ssi_signo != SIGCHLD;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return end;
}

static int run(struct spawner *s)
{
	for (;;) {
		struct epoll_event ev[EVENTS_MAX];
		int n = epoll_wait(s->epoll_fd, ev, EVENTS_MAX, -1);
		if (n < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < n; i++) {
			uint32_t low = (uint32_t)ev[i].data.u64;
			switch (ev[i].data.u64 >> 32) {
			case EV_LISTEN:
				client_accept(s);
				break;
			case EV_SIGNAL:
				if (signals_read(s))
					return 0;
				break;
			case EV_CLIENT:
				client_read(s, (int)low);
				break;
			case EV_HELPER_SAYS:
			case EV_HELPER_ENDS:
				spawner_slot_event(s, low, ev[i].data.u64 >> 32 == EV_HELPER_ENDS);
				break;
			}
		}
	}
}

static int open_signals(struct spawner *s)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? -errno : 0;
}

static void pin(struct spawner *s, uint32_t index)
{
	s->cpus = cpus_online();
	if (sched_getaffinity(0, sizeof(s->cpus_set), &s->cpus_set) < 0)
		return;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(index % s->cpus, &one);
	/* Only a matter of speed: the core may be absent from our own set. */
	(void)sched_setaffinity(0, sizeof(one), &one);
}

/* A sealed copy in memory. A starting command is still chronus: through
 * /proc/self/exe a sandbox can run it and get hold of its file, which must be
 * neither the host's nor tell where that lies. */
static int open_chronus(const char *path)
{
	uint8_t chunk[65536];
	char self[40];
	ssize_t n;
	_cleanup_close_ int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return -errno;
	_cleanup_close_ int copy = memfd_create("chronus", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (copy < 0 && errno == EINVAL) /* before 6.3 all are executable */
		copy = memfd_create("chronus", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (copy < 0)
		return -errno;
	while ((n = read_all(file, chunk, sizeof(chunk))) > 0) {
		int r = write_all(copy, chunk, (size_t)n);
		if (r < 0)
			return r;
	}
	if (n < 0)
		return (int)n;
	if (fchmod(copy, 0555) < 0 ||
	    fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return -errno;
	/* What is open for writing cannot be executed. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", copy);
	int fd = open(self, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int setup(struct spawner *s, const char *run_dir, uint32_t index, const char *chronus, const char **step)
{
	char path[4096];
	umask(0); /* the templates' modes are meant as written */
	pin(s, index);
	*step = "open chronus";
	s->chronus_fd = open_chronus(chronus);
	if (s->chronus_fd < 0)
		return s->chronus_fd;
	*step = "map memory";
	s->stack = mmap(NULL, SPAWNER_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	s->result = mmap(NULL, sizeof(*s->result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->stack == MAP_FAILED || s->result == MAP_FAILED)
		return -ENOMEM;
	*step = "bind the socket";
	snprintf(path, sizeof(path), "%s/spawner-%u.sock", run_dir, index);
	s->listen_fd = unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, SPAWNER_CLIENTS_MAX);
	if (s->listen_fd < 0)
		return s->listen_fd;
	int r = spawner_root_setup(s, run_dir, step);
	if (r < 0)
		return r;
	*step = "drop the bounding set";
	if ((r = caps_drop_bounding()) < 0)
		return r;
	*step = "load the seccomp filter";
	if ((r = seccomp_load_broad()) < 0)
		return r;
	*step = "watch the descriptors";
	if ((r = open_signals(s)) < 0)
		return r;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll_fd < 0)
		return -errno;
	if ((r = add_event(s, s->listen_fd, EV(EV_LISTEN, 0))) < 0)
		return r;
	return add_event(s, s->signal_fd, EV(EV_SIGNAL, 0));
}

static int usage(void)
{
	fprintf(stderr, "usage: dsec-spawner --run-dir DIR --index N --chronus PATH\n"
			"Started by dsecd up, one a core. Makes containers for the edge.\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "run-dir", required_argument, NULL, 'r' },
						 { "index", required_argument, NULL, 'i' },
						 { "chronus", required_argument, NULL, 'c' },
						 { NULL, 0, NULL, 0 } };
	static struct spawner s;
	const char *run_dir = NULL, *chronus = NULL, *step = "";
	uint32_t index = 0;
	int o;
	while ((o = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (o == 'r')
			run_dir = optarg;
		else if (o == 'i')
			index = (uint32_t)strtoul(optarg, NULL, 10);
		else if (o == 'c')
			chronus = optarg;
		else
			return usage();
	}
	if (!run_dir || !chronus || optind != argc)
		return usage();
	log_init("dsec-spawner");
	memset(clients, -1, sizeof(clients));
	int r = setup(&s, run_dir, index, chronus, &step);
	if (r < 0) {
		log_error("cannot %s: %s", step, strerror(-r));
		return 1;
	}
	log_info("spawner %u ready", index);
	r = run(&s);
	if (r < 0)
		log_error("loop: %s", strerror(-r));
	return r < 0;
}
