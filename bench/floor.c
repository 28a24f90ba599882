/* floor.c: the kernel work of create + first output + remove, without the platform.
 *
 *   floor --cycles N --layer LAYER_DIR --digest D [--state DIR]
 *
 * What bench/create compares the edge with: the same namespaces, user namespace,
 * id-mapped overlay on a quota'd upper, cgroups, masks, seccomp and exec, made by the
 * very functions the platform uses (src/kernel, src/layer, spawner_spawn.c), but with
 * no loop, journal, spool, protocol or durable state between them. Three processes on
 * blocking sockets, because that is what the kernel work wants: the mounter's mounts
 * must not be in the namespace that is cloned, and namespaces are pooled beside.
 *   main     asks for an overlay, starts PID 1 (floor_init), reads the output, kills it,
 *            waits until the mounter has removed what is its; the pool recycles beside,
 *            as the edge does (docs/decisions/0107-removal-does-not-wait-for-recycling.md)
 *   mounter  PREPARE and RELEASE
 *   pool     POOL slots: cgroups, user, network and cgroup namespace; recycles
 * Prints one JSON object, as spawn_loop does. Any error ends it with exit 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "backend/container/spawner-internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "kernel/cgroup.h"
#include "kernel/cpuinfo.h"
#include "kernel/namespaces.h"
#include "kernel/process.h"
#include "kernel/seccomp.h"
#include "layer/mounter.h"

#define POOL 8
#define ID_BASE 0x60000000u /* not the platform's */
#define OUTER_ID 0xE0000000u
#define MEMORY_BYTES (64u << 20)
#define DISK_BYTES (64u << 20)

static const char *state, *layer_dir, *digest, *init_path;
static int to_mounter;

static void die(const char *what, int err)
{
	fprintf(stderr, "floor: %s: %s\n", what, strerror(-err));
	exit(1);
}

/* ---- mounter ---- */

static void mounter_loop(int sock)
{
	struct dsec_error e = { 0 };
	struct mounter *m = NULL;
	struct mounter_options o = { .run_dir = state, .state_dir = state, .layer_dir = layer_dir };
	if (mounter_open(&o, &m, &e) < 0) {
		fprintf(stderr, "floor: mounter: %s\n", e.message);
		_exit(1);
	}
	struct mounter_request q;
	int fds[FDIO_FDS_MAX];
	size_t n = FDIO_FDS_MAX;
	while (recv_fds(sock, &q, sizeof(q), fds, &n) == sizeof(q)) {
		struct mounter_reply reply;
		int fd = -1;
		mounter_handle(m, &q, n ? fds[0] : -1, &reply, &fd);
		for (size_t i = 0; i < n; i++)
			base_close(fds[i]);
		if (reply.err < 0)
			fprintf(stderr, "floor: mounter: %s\n", reply.error.message);
		send_fds(sock, &reply, sizeof(reply), &fd, fd >= 0);
		base_close(fd);
		mounter_settle(m);
		n = FDIO_FDS_MAX;
	}
	mounter_close(m);
	_exit(0);
}

/* ---- pool ---- */

static void helper(int proc, uint32_t slot, const struct cgroup_fds *cg, int sock)
{
	char go;
	for (int i = 0; i < CGROUP_V1_MAX; i++)
		if (cg->v1_tasks[i] >= 0 && write(cg->v1_tasks[i], "0", 1) != 1)
			_exit(1);
	if (unshare(CLONE_NEWCGROUP | CLONE_NEWNET) < 0 || netns_loopback_up() < 0 || netns_open_ports(proc) < 0 ||
	    userns_make(OUTER_ID + slot) < 0 || write(sock, "n", 1) != 1 || read(sock, &go, 1) != 1)
		_exit(1);
	_exit(userns_forbid_nested(proc) < 0);
}

static int make_namespaces(int proc, uint32_t slot, const struct cgroup_fds *cg, int ret[3])
{
	static const char *const names[3] = { "user", "net", "cgroup" };
	int pair[2], pidfd = -1, status = 0, r = 0;
	char word;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	struct clone_request req = { .cgroup_fd = cg->sandbox };
	pid_t pid = clone_copied(&req, &pidfd);
	if (!pid) {
		close(pair[0]);
		helper(proc, slot, cg, pair[1]);
	}
	close(pair[1]);
	if (pid < 0 || read(pair[0], &word, 1) != 1)
		r = -EPROTO;
	if (!r)
		r = userns_map(proc, pid, ID_BASE + slot * SPAWNER_ID_COUNT, SPAWNER_ID_COUNT);
	for (int i = 0; !r && i < 3; i++) {
		char path[48];
		snprintf(path, sizeof(path), "%d/ns/%s", (int)pid, names[i]);
		ret[i] = openat(proc, path, O_RDONLY | O_CLOEXEC);
		r = ret[i] < 0 ? -errno : 0;
	}
	if (!r && write(pair[0], "m", 1) != 1)
		r = -errno;
	close(pair[0]);
	waitpid(pid, &status, 0);
	close(pidfd);
	return r ? r : status ? -EPERM : 0;
}

static int make_slot(struct cgroup_tree *t, int proc, uint32_t slot, int sock)
{
	struct cgroup_limits limits = { 1000, MEMORY_BYTES, 256 };
	struct cgroup_fds cg;
	int ns[3] = { -1, -1, -1 };
	int r = cgroup_make(t, slot, OUTER_ID + slot);
	if (!r)
		r = cgroup_open_helper(t, slot, &cg);
	if (!r)
		r = make_namespaces(proc, slot, &cg, ns);
	while (!r && (r = cgroup_enable(t, slot)) == -EBUSY)
		usleep(200);
	if (!r)
		r = cgroup_open_fds(t, slot, &cg);
	if (!r)
		r = cgroup_limit(t, slot, &limits);
	if (r)
		return r;
	int fds[] = { ns[0], ns[1], ns[2], cg.chronus, cg.work, cg.memory_usage, cg.memory_stat,
		      cg.v1_tasks[0], cg.v1_tasks[1], cg.v1_tasks[2] };
	size_t n = cg.v1_tasks[0] >= 0 ? 10 : 7;
	ssize_t sent = send_fds(sock, &slot, sizeof(slot), fds, n);
	for (int i = 0; i < 3; i++)
		close(ns[i]);
	cgroup_close_fds(&cg);
	return sent < 0 ? (int)sent : 0;
}

static void pool_loop(int slots, int back)
{
	struct dsec_error e = { 0 };
	struct cgroup_tree *t = NULL;
	char record[4096];
	snprintf(record, sizeof(record), "%s/cgroups", state);
	if (cgroup_tree_open("f1007f10", record, &t, &e) < 0) {
		fprintf(stderr, "floor: %s\n", e.message);
		_exit(1);
	}
	int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	uint32_t slot;
	for (slot = 0; slot < POOL && !r; slot++)
		r = make_slot(t, proc, slot, slots);
	while (!r && read(back, &slot, sizeof(slot)) == sizeof(slot)) {
		while ((r = cgroup_populated(t, slot) ? -EBUSY : cgroup_recycle(t, slot)) == -EBUSY)
			usleep(100);
		if (!r)
			r = make_slot(t, proc, slot, slots);
	}
	for (slot = 0; slot < POOL; slot++)
		cgroup_remove(t, slot);
	if (r)
		fprintf(stderr, "floor: pool: %s\n", strerror(-r));
	if (cgroup_tree_delete(t) < 0)
		fprintf(stderr, "floor: cgroups are left\n");
	_exit(r != 0);
}

/* ---- main ---- */

static pid_t start(void (*loop)(int, int), int a, int b, int keep_not)
{
	pid_t pid = fork();
	if (pid < 0)
		die("fork", -errno);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		close(keep_not);
		loop(a, b);
	}
	return pid;
}

static void mounter_start(int sock, int back)
{
	close(back); /* the pool ends when main alone has closed it */
	mounter_loop(sock);
}

static int ask_mounter(uint32_t op, const char *id, uint32_t slot, int userns, int *ret_fd)
{
	struct mounter_request q = { .version = MOUNTER_IPC_VERSION, .op = op, .n_layers = 1, .disk_bytes = DISK_BYTES };
	struct mounter_reply reply;
	int fds[FDIO_FDS_MAX];
	size_t n = FDIO_FDS_MAX;
	snprintf(q.id, sizeof(q.id), "%s", id);
	snprintf(q.layers[0], sizeof(q.layers[0]), "%s", digest);
	q.root_uid = q.root_gid = ID_BASE + slot * SPAWNER_ID_COUNT;
	if (send_fds(to_mounter, &q, sizeof(q), &userns, userns >= 0) < 0 ||
	    recv_fds(to_mounter, &reply, sizeof(reply), fds, &n) != sizeof(reply))
		return -EPIPE;
	if (ret_fd)
		*ret_fd = n ? fds[0] : -1;
	return reply.err;
}

static void fill_request(struct spawner_request *q, uint32_t slot, const char *id)
{
	*q = (struct spawner_request){ .version = SPAWNER_IPC_VERSION, .op = SPAWNER_SPAWN, .cpus = 1,
				       .memory_bytes = MEMORY_BYTES, .disk_bytes = DISK_BYTES };
	q->outer_id = OUTER_ID + slot;
	q->id_base = ID_BASE + slot * SPAWNER_ID_COUNT;
	snprintf(q->sandbox_id, sizeof(q->sandbox_id), "%s", id);
	snprintf(q->hostname, sizeof(q->hostname), "floor");
}

static double cycle(struct spawner *s, int slots, int back)
{
	uint64_t t0 = now_mono_ns();
	uint32_t slot;
	char id[SANDBOX_ID_MAX + 1], text[16];
	int fds[FDIO_FDS_MAX], overlay = -1, pidfd = -1, out[2];
	size_t n = FDIO_FDS_MAX;
	id_sandbox("f0", id);
	if (recv_fds(slots, &slot, sizeof(slot), fds, &n) != sizeof(slot))
		die("pool", -EPIPE);
	int r = ask_mounter(MOUNTER_PREPARE, id, slot, fds[0], &overlay);
	if (r < 0 || pipe2(out, O_CLOEXEC) < 0)
		die("overlay", r);
	struct spawner_fds f;
	for (int i = 0; i < SPAWNER_FD_COUNT; i++)
		f.fd[i] = -1;
	f.fd[SPAWNER_FD_OVERLAY] = overlay;
	f.fd[SPAWNER_FD_USERNS] = fds[0];
	f.fd[SPAWNER_FD_NETNS] = fds[1];
	f.fd[SPAWNER_FD_CGROUPNS] = fds[2];
	f.fd[SPAWNER_FD_CG_CHRONUS] = fds[3];
	f.fd[SPAWNER_FD_CG_WORK] = fds[4];
	f.fd[SPAWNER_FD_MEMORY_USAGE] = fds[5];
	f.fd[SPAWNER_FD_MEMORY_STAT] = fds[6];
	for (size_t i = 7; i < n; i++)
		f.fd[SPAWNER_FD_V1_0 + (int)i - 7] = fds[i];
	f.fd[SPAWNER_FD_LISTEN] = out[1];
	struct spawner_request q;
	struct spawner_reply reply = { 0 };
	fill_request(&q, slot, id);
	r = spawner_spawn(s, &q, &f, &reply, &pidfd);
	if (r < 0) {
		fprintf(stderr, "floor: %s\n", reply.message);
		exit(1);
	}
	close(out[1]);
	close(overlay);
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
	if (read_all(out[0], text, sizeof(text)) != 6 || memcmp(text, "hello\n", 6))
		die("payload: wrong output", -EPROTO);
	close(out[0]);
	pidfd_kill(pidfd, SIGKILL);
	if (waitpid(reply.pid, NULL, 0) < 0)
		die("wait", -errno);
	close(pidfd);
	if (write(back, &slot, sizeof(slot)) != sizeof(slot))
		die("pool", -EPIPE);
	r = ask_mounter(MOUNTER_RELEASE, id, slot, -1, NULL);
	if (r < 0)
		die("release", r);
	return (double)(now_mono_ns() - t0) / 1e6;
}

static void setup_spawner(struct spawner *s)
{
	const char *step = "";
	umask(0);
	s->cpus = cpus_online();
	sched_getaffinity(0, sizeof(s->cpus_set), &s->cpus_set);
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	s->chronus_fd = open(init_path, O_RDONLY | O_CLOEXEC);
	if (s->chronus_fd < 0)
		die(init_path, -errno);
	s->stack = mmap(NULL, SPAWNER_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s->result = mmap(NULL, sizeof(*s->result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int r = spawner_root_setup(s, state, &step);
	if (r < 0)
		die(step, r);
	caps_drop_bounding();
	if ((r = seccomp_load_broad()) < 0)
		die("broad seccomp filter", r);
}

static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;
	return d < 0 ? -1 : d > 0;
}

static void measure(struct spawner *s, unsigned cycles, int slots, int back)
{
	double *ms = calloc(cycles, sizeof(*ms));
	for (unsigned i = 0; i < 5; i++)
		cycle(s, slots, back); /* mounts the layer, fills caches */
	uint64_t t0 = now_mono_ns();
	for (unsigned i = 0; i < cycles; i++)
		ms[i] = cycle(s, slots, back);
	double seconds = (double)(now_mono_ns() - t0) / 1e9;
	qsort(ms, cycles, sizeof(*ms), by_value);
	printf("{\"cycles\": %u, \"per_s\": %.1f, \"cycle_p50_ms\": %.3f, \"cycle_p99_ms\": %.3f}\n", cycles, cycles / seconds,
	       ms[cycles / 2], ms[cycles * 99 / 100]);
	fflush(stdout); /* main may end in an exec */
	free(ms);
}

static void parse(int argc, char **argv, unsigned *cycles)
{
	static const struct option options[] = { { "cycles", required_argument, NULL, 'c' }, { "layer", required_argument, NULL, 'l' },
						 { "digest", required_argument, NULL, 'd' }, { "state", required_argument, NULL, 's' },
						 { NULL, 0, NULL, 0 } };
	int o;
	while ((o = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (o == 'c')
			*cycles = (unsigned)strtoul(optarg, NULL, 10);
		else if (o == 'l')
			layer_dir = optarg;
		else if (o == 'd')
			digest = optarg;
		else if (o == 's')
			state = optarg;
		else
			exit(2);
	}
	if (!layer_dir || !digest || !*cycles) {
		fprintf(stderr, "usage: floor --cycles N --layer DIR --digest D [--state DIR]\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static struct spawner s;
	static char init[4096], temporary[] = "/tmp/floor-XXXXXX";
	unsigned cycles = 0;
	parse(argc, argv, &cycles);
	if (!state && !(state = mkdtemp(temporary)))
		die("temporary directory", -errno);
	ssize_t k = readlink("/proc/self/exe", init, sizeof(init) - 8);
	snprintf(init + MAX(k, 0), 8, "_init"); /* floor_init lies beside floor */
	init_path = init;
	int m[2], slots[2], back[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, m) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, slots) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, back) < 0)
		die("socketpair", -errno);
	to_mounter = m[0];
	pid_t pool = start(pool_loop, slots[1], back[1], back[0]);
	close(back[1]);
	pid_t mounter = start(mounter_start, m[1], back[0], m[0]);
	close(m[1]);
	int home = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	setup_spawner(&s);
	measure(&s, cycles, slots[0], back[0]);
	close(m[0]);
	close(back[0]);
	int a = 0, b = 0;
	waitpid(pool, &a, 0);
	waitpid(mounter, &b, 0);
	/* Back to where the temporary directory has a name. */
	if (state == temporary && !fchdir(home) && !chroot(".")) {
		char *rm[] = { (char *)"rm", (char *)"-rf", temporary, NULL };
		execvp("rm", rm);
	}
	return a || b;
}
