/* chronus-internal.h: the parts of chronus and how they hang together.
 *
 * One process, one thread, one epoll loop (chronus.c). A `source` is a
 * descriptor with a callback; objects embed theirs and find themselves by
 * container_of. Objects are freed between batches of epoll events only (*_collect),
 * so a stale event meets fd == -1 and not freed memory. Deadlines are fields of the objects;
 * the loop asks each part for its nearest one and calls its *_tick.
 *
 * Children (commands and file workers) are plain forks. Between fork and exec
 * they may allocate: they are copies, single-threaded, and share no memory.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include "aether/aether.h"
#include "base/buf.h"
#include "base/chronus_boot.h"
#include "base/error.h"
#include "base/id.h"
#include "chronus/wire.h"

/* ---- Limits ---- */
#define CHRONUS_EXECS_MAX 768             /* not yet forgotten, or with processes left: all fit one HelloReply */
#define CHRONUS_FILE_OPS_MAX 64           /* under way at once */
#define CHRONUS_OUTPUT_RING (256 * 1024)  /* unacknowledged bytes a stream of one exec */
#define CHRONUS_WINDOW (128 * 1024)       /* what the edge may send ahead on a stream */
#define CHRONUS_START_DEADLINE_MS 5000    /* fork to exec; then exec_blocked */
#define CHRONUS_DRAIN_DEFAULT_MS 100
#define CHRONUS_REAP_MS 500                /* from a kill to the death; then its tracers are killed, again and again */
#define CHRONUS_DISCARD_MS 100            /* pause between reads of output nobody wants */
#define CHRONUS_COLLECT_MS 10             /* until a busy leaf is removed again */
#define CHRONUS_FILE_IDLE_MS 120000       /* a file worker that moves nothing is stopped */
#define CHRONUS_NONE UINT64_MAX           /* no deadline */

struct chronus;

struct source {
	int fd; /* -1: not there */
	uint32_t events;
	bool added;
	void (*ready)(struct source *s, uint32_t events);
};
/* events = 0 removes it from the epoll set altogether: EPOLLHUP cannot be masked. */
int source_watch(struct chronus *c, struct source *s, uint32_t events);
void source_close(struct chronus *c, struct source *s);

/* ---- A cgroup2 leaf of one command (leaf.c) ---- */
struct leaf {
	int dirfd; /* -1: none or removed */
	char name[24];
};
int leaf_make(int work_fd, const char *name, struct leaf *ret);
void leaf_kill(const struct leaf *l);             /* SIGKILL to all, forks included */
void leaf_signal(const struct leaf *l, int sig);  /* to each process that is in it */
bool leaf_populated(const struct leaf *l);
uint64_t leaf_cpu_usec(const struct leaf *l);
int leaf_remove(int work_fd, struct leaf *l);     /* -EBUSY while populated */
/* Forks into the leaf. 0 in the child. -EAGAIN: the pids limit. */
pid_t leaf_fork(const struct leaf *l);

/* ---- The edge connection (conn.c) ---- */
struct conn {
	struct source s;
	struct aether *a;       /* NULL: no edge */
	uint32_t hello_stream;  /* 0: none */
	struct large_start *large; /* starts whose pieces are still coming */
};
void conn_listen(struct chronus *c);
void conn_flush(struct chronus *c);
void conn_drop(struct chronus *c);

/* What a stream of the edge belongs to: the first member of exec and file_op. */
enum owner_kind { OWNER_EXEC = 1, OWNER_FILE, OWNER_LARGE };
struct owner {
	enum owner_kind kind;
	uint32_t stream; /* 0: nobody is attached */
};

/* ---- Commands (exec.c, exec_start.c, exec_io.c, exec_child.c) ---- */
enum exec_state {
	/* STARTING -> RUNNING -> DRAINING -> ENDED
	 *     \-> FAILED (also after the start deadline) */
	EXEC_STARTING, /* forked; waits for exec or for the child's error */
	EXEC_RUNNING,
	EXEC_DRAINING, /* main process gone; streams still open, at most drain_at */
	EXEC_ENDED,    /* result complete; kept until forgotten */
	EXEC_FAILED,   /* could not be started; kept until told */
};
struct out_stream {
	struct source s;
	struct ring ring; /* [acknowledged, end) */
	uint64_t sent;    /* next byte for the edge that is attached */
	bool eof;
	bool discard;     /* the end event is out: read and forget, slowly */
	bool cutting;     /* at the drain limit: only cut_left bytes more count */
	size_t cut_left;
	uint64_t rearm_at;
};
struct exec {
	struct owner owner;
	struct exec *next;
	struct chronus *c;
	char id[EXEC_ID_MAX + 1];
	enum exec_state state;
	pid_t pid;
	bool main_gone, forgotten, tree_killed;
	struct leaf leaf;
	struct source start_sock;  /* the child's word before exec */
	struct source notify;      /* seccomp listener; statfs.c */
	bool notify_waiting;       /* until the one before is answered */
	struct source populated;   /* cgroup.events, once only background processes are left */
	struct source in;          /* write end of stdin, or the PTY master */
	struct out_stream out[2];
	bool pty, stdin_open, stdin_eof_asked, stdin_closed, pty_line_open;
	struct ring in_ring;       /* taken from the edge, not yet given to the program */
	uint64_t start_deadline, timeout_at, kill_at, reap_at, drain_at, settle_at;
	pid_t tracer;              /* where the last search for tracers ended; 0: at none */
	uint32_t kill_grace_ms, drain_ms;
	uint64_t started_mono_ms, started_real_ms;
	bool owe_started, owe_exited, owe_stdin_state;
	uint64_t stdin_told;
	struct dsec_error failure;
	struct wire_exited result;
};
void exec_start(struct chronus *c, uint32_t stream, const struct wire_exec_start *w);
void exec_attach(struct chronus *c, uint32_t stream, const struct wire_exec_attach *w);
void exec_command(struct exec *x, const void *p, size_t n);
void exec_stdin_data(struct exec *x, const uint8_t *p, size_t n);
void exec_detach(struct exec *x);     /* its stream is gone */
void exec_pump(struct exec *x);       /* send what is owed and what fits */
bool exec_child_exited(struct chronus *c, pid_t pid, int status, const struct rusage *ru);
void exec_tick(struct chronus *c, uint64_t now);
void exec_tidy(struct chronus *c); /* once a second while commands run */
uint64_t exec_deadline(struct chronus *c);
void exec_collect(struct chronus *c); /* between batches: remove leaves, free the dead */
unsigned exec_running(const struct chronus *c);
/* exec_io.c */
void exec_io_start(struct exec *x, int in_fd, int out_fd, int err_fd);
void exec_io_ack(struct exec *x, const uint64_t offset[2]);
void exec_io_resume(struct exec *x);
void exec_io_stdin_eof(struct exec *x);
void exec_io_stdin_close(struct exec *x);
void exec_io_stdin_forget(struct exec *x); /* drop what the program has not been given */
void exec_io_discard(struct exec *x);
bool exec_io_cut(struct exec *x);
void exec_io_forget(struct exec *x);
void exec_io_tidy(struct exec *x);
void exec_io_tick(struct exec *x, uint64_t now);
uint64_t exec_io_deadline(const struct exec *x);
void exec_io_done(struct exec *x);
/* exec.c, for exec_io.c and exec_start.c */
void exec_check_end(struct exec *x);
struct exec *exec_find(struct chronus *c, struct slice id);
void exec_attach_stream(struct exec *x, uint32_t stream, const uint64_t offset[2]);
void exec_fail(struct exec *x, enum dsec_code code, const char *message); /* NULL: x->failure says it */
void exec_refuse(struct chronus *c, uint32_t stream, enum dsec_code code, const char *message);
void exec_on_start_sock(struct source *s, uint32_t events); /* the child's word */

/* tracers.c: kills who holds up the end of pid, and who holds up theirs. Begins at
 * `from` if that is not 0. Returns where to go on, 0: from the start. */
pid_t tracers_kill(pid_t pid, pid_t from);

/* ---- What a forked child does before exec (exec_child.c, enter.c) ---- */
struct exec_plan {
	const struct chronus *c;
	char **argv, **env;
	const char *cwd, *user;
	bool pty, no_new_privs;
	uint32_t rows, cols;
	int start_sock, in_fd, out_fd, err_fd; /* in_fd -1: /dev/null; all -1 with a PTY */
};
_Noreturn void exec_child(const struct exec_plan *p);

/* The child's messages on start_sock. */
struct start_message {
	uint32_t kind;
	struct dsec_error error;
};
enum { START_FAILED = 1, START_FDS = 2 /* first the PTY master if asked, then the listener if any */ };

struct sandbox_user {
	uid_t uid;
	gid_t gid;
	char name[64], home[256], shell[256];
	gid_t groups[64];
	size_t n_groups;
};
#define SANDBOX_ID_LAST 65535 /* highest uid or gid that is mapped inside */
int user_resolve(const char *spec, struct sandbox_user *ret, struct dsec_error *e); /* opens /etc/passwd, /etc/group */
/* The same on given text; passwd and group may be empty. For tests and the fuzzer. */
int user_parse(const char *spec, const char *passwd, const char *group, struct sandbox_user *ret,
	       struct dsec_error *e);

/* Cgroups, affinity, and what enter_userns does: session, user namespace; closes
 * every descriptor but 0-2 and `keep`. */
int enter_userns(const struct chronus *c, const int *keep, size_t n_keep, struct dsec_error *e);
int enter_sandbox(const struct chronus *c, const int *keep, size_t n_keep, struct dsec_error *e);
/* Ids, groups; capabilities stay until enter_lock_down. */
int enter_become(const struct sandbox_user *u, struct dsec_error *e);
/* Bounding set, seccomp, then what is left of the capabilities. ret_listener: of
 * statfs, -1 where there is none; NULL: not wanted. */
int enter_lock_down(const struct chronus *c, const struct sandbox_user *u, bool no_new_privs, int *ret_listener,
		    struct dsec_error *e);

/* ---- seccomp.c ---- */
struct sock_filter;
#define SECCOMP_PROGRAM_MAX 400
/* The strict filter; notify: statfs and fstatfs go to the listener. Instructions, or -E2BIG. */
int seccomp_build(struct sock_filter *p, size_t cap, bool notify);
int seccomp_load(const struct sock_filter *p, size_t n, bool listener); /* 0 or the listener */

/* ---- statfs.c: `df` shows the limit ---- */
void statfs_watch(struct exec *x, int listener_take);
void statfs_forget(struct exec *x); /* before it is freed */
void statfs_usage_reply(struct chronus *c, const struct wire_disk_usage *u);
bool statfs_child_exited(struct chronus *c, pid_t pid);
void statfs_tick(struct chronus *c, uint64_t now);
uint64_t statfs_deadline(struct chronus *c);

/* ---- meminfo.c ---- */
void meminfo_refresh(struct chronus *c, uint64_t now);
struct meminfo_view {
	uint64_t limit, usage, cache, active_file, inactive_file, anon, shmem, mapped, dirty, slab_reclaimable, slab;
};
void meminfo_parse_stat(char *text, struct meminfo_view *m);
size_t meminfo_format(const struct meminfo_view *m, char *p, size_t cap); /* constant length */

/* ---- Files (files.c; the worker is file_worker.c) ---- */
struct file_op;
void file_start(struct chronus *c, uint32_t stream, const struct wire_file *w);
void file_upload(struct file_op *f, const uint8_t *p, size_t n);
void file_upload_end(struct file_op *f);
void file_command(struct file_op *f, const void *p, size_t n);
void file_pump(struct file_op *f);
void file_detach(struct file_op *f); /* its stream is gone: the worker ends */
void file_detach_all(struct chronus *c);
bool file_child_exited(struct chronus *c, pid_t pid, int status);
void file_tick(struct chronus *c, uint64_t now);
uint64_t file_deadline(struct chronus *c);
void file_collect(struct chronus *c);

/* ---- The whole ---- */
struct chronus {
	struct chronus_boot boot;
	int epfd;
	struct source listener, sigchld;
	struct conn conn;
	struct exec *execs;
	unsigned n_execs;
	struct file_op *files;
	unsigned n_files;
	struct statfs_state *statfs; /* NULL until a command has a listener */
	uint64_t leaf_counter;
	uint64_t collect_at; /* something waits for *_collect */
	uint64_t meminfo_at, meminfo_next, meminfo_step_ms;
	uint64_t meminfo_usage;
	struct rlimit nofile; /* as inherited: what commands get */
	int meminfo_len;
};
