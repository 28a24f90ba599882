/* spawner_slot.c: SLOT, the namespaces that wait for a sandbox. See spawner-internal.h.
 *
 * A helper process is born in the sandbox's cgroup2 directory and makes the three
 * namespaces from inside; the spawner maps the ids and takes descriptors of them.
 * Conversation on a socket pair, both sides nonblocking for the spawner:
 *   helper: in the cgroups, new cgroup and network namespace, then new user
 *           namespace as the outer id                       -> 'n'
 *   spawner: uid_map, gid_map, opens /proc/PID/ns/...       -> 'm'
 *   helper: forbids nested namespaces                       -> 'd', and ends
 * The answer is sent when the helper has ended, so that its cgroup is empty again:
 * cgroup2 hands out no controllers while somebody is in it.
 */
#include "backend/container/spawner-internal.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "kernel/namespaces.h"
#include "kernel/process.h"

/* What the helper says: 'n' and 'd' as above, 'e' with the step that failed. */
struct helper_word {
	char what;
	int err;
	char step[48];
};

struct slot_job {
	bool used;
	int client; /* -1: gone, nobody wants the answer */
	int sock, pidfd;
	pid_t pid;
	struct spawner_request q;
	int ns[3]; /* user, net, cgroup */
	int err;
	const char *step;        /* a literal, or in `word` */
	struct helper_word word; /* the last one */
	bool mapped;             /* 'm' was sent */
};

static struct slot_job jobs[SPAWNER_SLOTS_MAX];

static int helper_namespaces(struct spawner *s, const struct spawner_request *q, const struct spawner_fds *f,
			     const char **step)
{
	*step = "join the v1 cgroups";
	for (int i = 0; i < SPAWNER_V1_COUNT; i++) {
		int fd = f->fd[SPAWNER_FD_V1_0 + i];
		if (fd >= 0 && write(fd, "0", 1) < 0)
			return -errno;
	}
	*step = "make the cgroup and network namespaces";
	if (unshare(CLONE_NEWCGROUP | CLONE_NEWNET) < 0)
		return -errno;
	*step = "bring up lo";
	int r = netns_loopback_up();
	if (r < 0)
		return r;
	*step = "open the ports";
	if ((r = netns_open_ports(s->proc_fd)) < 0)
		return r;
	*step = "make the user namespace";
	return userns_make(q->outer_id);
}

static void helper_speak(int sock, char what, int err, const char *step)
{
	struct helper_word w = { .what = what, .err = err };
	snprintf(w.step, sizeof(w.step), "%s", step);
	if (send(sock, &w, sizeof(w), MSG_NOSIGNAL) != sizeof(w))
		_exit(1);
}

__attribute__((noreturn)) static void helper_main(struct spawner *s, const struct spawner_request *q,
						  const struct spawner_fds *f, int sock)
{
	const char *step = "";
	char go = 0;
	int r = helper_namespaces(s, q, f, &step);
	helper_speak(sock, r < 0 ? 'e' : 'n', r, step);
	if (r < 0 || read(sock, &go, 1) != 1)
		_exit(1);
	r = userns_forbid_nested(s->proc_fd);
	helper_speak(sock, r < 0 ? 'e' : 'd', r, "forbid nested namespaces");
	_exit(0);
}

static int watch(struct spawner *s, int fd, uint64_t data)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = data };
	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

bool spawner_slot_full(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
		if (!jobs[i].used)
			return false;
	return true;
}

int spawner_slot_begin(struct spawner *s, int client, const struct spawner_request *q, const struct spawner_fds *f)
{
	uint32_t index = 0;
	while (index < SPAWNER_SLOTS_MAX && jobs[index].used)
		index++;
	if (index == SPAWNER_SLOTS_MAX)
		return -EAGAIN;
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	_cleanup_close_ int ours = pair[0];
	_cleanup_close_ int theirs = pair[1];
	struct clone_request req = { .cgroup_fd = f->fd[SPAWNER_FD_CG_SANDBOX] };
	_cleanup_close_ int pidfd = -1;
	pid_t pid = clone_copied(&req, &pidfd);
	if (pid < 0)
		return pid;
	if (!pid) {
		close(ours);
		helper_main(s, q, f, theirs);
	}
	struct slot_job *j = &jobs[index];
	*j = (struct slot_job){ .used = true, .client = client, .sock = -1, .pidfd = -1, .pid = pid, .q = *q,
				.ns = { -1, -1, -1 }, .step = "talk to the helper" };
	int r = watch(s, ours, EV(EV_HELPER_SAYS, index));
	if (!r)
		r = watch(s, pidfd, EV(EV_HELPER_ENDS, index));
	if (r < 0) {
		pidfd_kill(pidfd, SIGKILL);
		epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, ours, NULL);
		j->used = false;
		return r;
	}
	j->sock = TAKE_FD(ours);
	j->pidfd = TAKE_FD(pidfd);
	return 0;
}

static int take_namespaces(struct spawner *s, struct slot_job *j)
{
	static const char *const names[3] = { "user", "net", "cgroup" };
	for (int i = 0; i < 3; i++) {
		char path[48];
		snprintf(path, sizeof(path), "%d/ns/%s", (int)j->pid, names[i]);
		j->ns[i] = openat(s->proc_fd, path, O_RDONLY | O_CLOEXEC);
		if (j->ns[i] < 0)
			return -errno;
	}
	return 0;
}

/* Reads one word; true when it is the one that was waited for. */
static bool expect(struct slot_job *j, char what)
{
	ssize_t n = recv(j->sock, &j->word, sizeof(j->word), MSG_DONTWAIT);
	if (n == sizeof(j->word) && j->word.what == what)
		return true;
	bool said = n == sizeof(j->word) && j->word.what == 'e';
	j->err = said && j->word.err < 0 ? j->word.err : -EPROTO;
	j->step = said ? j->word.step : "talk to the helper";
	return false;
}

static void helper_says(struct spawner *s, struct slot_job *j)
{
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, j->sock, NULL);
	if (expect(j, 'n')) {
		j->step = "map the ids";
		j->err = userns_map(s->proc_fd, j->pid, j->q.id_base, SPAWNER_ID_COUNT);
		if (!j->err) {
			j->step = "take the namespaces";
			j->err = take_namespaces(s, j);
		}
		if (!j->err && send(j->sock, "m", 1, MSG_NOSIGNAL) != 1)
			j->err = -errno;
	}
	j->mapped = !j->err;
	if (j->err) /* the helper reads EOF and ends */
		j->sock = base_close(j->sock);
}

static void helper_ended(struct spawner *s, struct slot_job *j)
{
	if (!j->err && !j->mapped) /* it ended before we read its first word */
		helper_says(s, j);
	if (!j->err)
		expect(j, 'd');
	struct spawner_reply reply = { .version = SPAWNER_IPC_VERSION, .token = j->q.token, .err = j->err };
	if (j->err < 0) {
		reply.code = DSEC_E_INTERNAL;
		snprintf(reply.message, sizeof(reply.message), "making a slot: %s: %s", j->step, strerror(-j->err));
	}
	if (j->client >= 0)
		spawner_reply_to(s, j->client, &reply, j->ns, j->err < 0 ? 0 : 3);
	for (int i = 0; i < 3; i++)
		base_closep(&j->ns[i]);
	base_closep(&j->sock);
	/* A helper that was cloned meanwhile holds copies of our descriptors until it
	 * ends: closing alone would leave the registration, and its next event would
	 * hit the job that has this number by then. */
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, j->pidfd, NULL);
	base_closep(&j->pidfd);
	j->used = false;
}

void spawner_slot_event(struct spawner *s, uint32_t index, bool ended)
{
	struct slot_job *j = &jobs[index];
	if (!j->used)
		return;
	if (ended)
		helper_ended(s, j);
	else if (!j->mapped && !j->err)
		helper_says(s, j);
}

void spawner_slot_client_gone(int client)
{
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
		if (jobs[i].used && jobs[i].client == client)
			jobs[i].client = -1;
}
