/* exec_child.c: from fork to execve of a command, in the child.
 *
 * Everything that can go wrong before exec is told to PID 1 on start_sock as a
 * typed error; success is its close-on-exec. The child is a copy of PID 1, so it
 * may allocate; it is in the hands of the sandbox's root as soon as it has
 * entered the user namespace (who may stop or kill it, no more), so PID 1 waits
 * for it with a deadline only. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "chronus/chronus-internal.h"

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define PATH_BYTES 4096
#define ENV_DEDUP_MAX 512 /* more variables than this keep their duplicates */

extern char **environ;

static _Noreturn void give_up(int sock, const struct dsec_error *e)
{
	struct start_message m = { .kind = START_FAILED, .error = *e };
	send_fds(sock, &m, sizeof(m), NULL, 0);
	_exit(127);
}

static void default_signals(void)
{
	sigset_t none;
	signal(SIGPIPE, SIG_DFL); /* the only one that PID 1 ignores */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ---- Standard streams ---- */

/* /dev/null if it is what it says; otherwise a pipe without a writer, which
 * reads as empty too. */
static int open_null(void)
{
	struct stat st;
	int fd = open("/dev/null", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)) {
		fcntl(fd, F_SETFL, 0);
		return fd;
	}
	base_close(fd);
	int p[2];
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	close(p[1]);
	return p[0];
}

/* The PTY is opened here, as the user, so that the terminal belongs to him. */
static int open_pty(const struct exec_plan *p, int *ret_slave, struct dsec_error *e)
{
	struct winsize ws = { .ws_row = (unsigned short)(p->rows ? p->rows : 24),
			      .ws_col = (unsigned short)(p->cols ? p->cols : 80) };
	int unlock = 0;
	int master = openat(p->c->boot.devpts_fd, "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCSWINSZ, &ws) < 0)
		return dsec_error_errno(e, -errno, "cannot open a terminal");
	*ret_slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*ret_slave < 0 || ioctl(*ret_slave, TIOCSCTTY, 0) < 0)
		return dsec_error_errno(e, -errno, "cannot take the terminal");
	return master;
}

static int set_streams(const struct exec_plan *p, int slave, struct dsec_error *e)
{
	int in = p->pty ? slave : p->in_fd >= 0 ? p->in_fd : open_null();
	int out = p->pty ? slave : p->out_fd, err = p->pty ? slave : p->err_fd;
	if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
		return dsec_error_errno(e, in < 0 ? in : -errno, "cannot set the standard streams");
	return 0;
}

/* ---- Environment ---- */

static size_t name_length(const char *var)
{
	return (size_t)(strchrnul(var, '=') - var) + 1; /* with the '=' */
}

static bool has_name(char **env, const char *var)
{
	size_t n = name_length(var);
	for (; *env; env++)
		if (!strncmp(*env, var, n))
			return true;
	return false;
}

static char **make_env(const struct exec_plan *p, const struct sandbox_user *u)
{
	size_t given = 0, n = 0;
	while (p->env[given])
		given++;
	char **env = calloc(given + 9, sizeof(char *));
	char *own[8] = { "PATH=" DEFAULT_PATH, "LANG=C.UTF-8", p->pty ? "TERM=xterm-256color" : NULL };
	if (!env || asprintf(&own[3], "HOME=%s", u->home) < 0 || asprintf(&own[4], "USER=%s", u->name) < 0 ||
	    asprintf(&own[5], "LOGNAME=%s", u->name) < 0 || asprintf(&own[6], "SHELL=%s", u->shell) < 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (own[i] && !has_name(p->env, own[i]))
			env[n++] = own[i];
	for (size_t i = 0; i < given; i++) /* of equal names the last one counts */
		if (given > ENV_DEDUP_MAX || !has_name(p->env + i + 1, p->env[i]))
			env[n++] = p->env[i];
	return env;
}

static const char *env_value(char **env, const char *name)
{
	size_t n = strlen(name);
	for (; *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

/* ---- Exec ---- */

static int enter_cwd(const struct exec_plan *p, const struct sandbox_user *u, struct dsec_error *e)
{
	if (!*p->cwd) {
		if (chdir(u->home) < 0 && chdir("/") < 0)
			return dsec_error_set(e, -errno, DSEC_E_BAD_CWD, "cannot enter /: %s", strerror(errno));
		return 0;
	}
	if (*p->cwd != '/' && chdir(u->home) < 0) /* relative: to the home */
		chdir("/");
	if (chdir(p->cwd) < 0)
		return dsec_error_set(e, -errno, DSEC_E_BAD_CWD, "cannot enter %.200s: %s", p->cwd, strerror(errno));
	return 0;
}

static void exec_error(const char *name, int err, struct dsec_error *e)
{
	enum dsec_code code = DSEC_E_INTERNAL;
	switch (err) {
	case ENOENT:
	case ENOTDIR:
	case ENAMETOOLONG:
	case ELOOP:
		code = DSEC_E_EXEC_NO_ENTRY;
		break;
	case ENOEXEC:
	case EINVAL:
	case ELIBBAD:
		code = DSEC_E_EXEC_FORMAT;
		break;
	case EACCES:
	case EPERM:
	case EISDIR:
	case ETXTBSY:
		code = DSEC_E_EXEC_PERMISSION;
		break;
	case E2BIG:
		code = DSEC_E_BAD_ARGV;
		break;
	case EAGAIN:
		code = DSEC_E_PIDS_LIMIT;
		break;
	}
	bool there = err == ENOENT && strchr(name, '/') && access(name, F_OK) == 0;
	dsec_error_set(e, -err, code, "cannot run %.200s: %s", name,
		       there		   ? "its interpreter is not there" :
		       code == DSEC_E_EXEC_FORMAT ? "not a program of this machine, and no #! line" :
						    strerror(err));
}

static void run(const struct exec_plan *p, char **env, struct dsec_error *e)
{
	const char *name = p->argv[0], *path = env_value(env, "PATH");
	int worst = ENOENT;
	char full[PATH_BYTES];
	if (!*name) {
		dsec_error_set(e, -ENOENT, DSEC_E_EXEC_NO_ENTRY, "the command's name is empty");
		return;
	}
	if (strchr(name, '/')) {
		execve(name, p->argv, env);
		exec_error(name, errno, e);
		return;
	}
	for (const char *at = path ? path : DEFAULT_PATH;; at++) {
		size_t n = (size_t)(strchrnul(at, ':') - at);
		if (snprintf(full, sizeof(full), "%.*s%s%s", (int)MIN(n, sizeof(full)), at, n ? "/" : "./", name) <
		    (int)sizeof(full)) {
			execve(full, p->argv, env);
			if (errno == EACCES) /* a better one may follow */
				worst = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENAMETOOLONG) {
				worst = errno;
				break;
			} else if (errno == ENOENT && access(full, F_OK) == 0) {
				exec_error(full, ENOENT, e);
				return;
			}
		}
		at += n;
		if (!*at)
			break;
	}
	exec_error(name, worst, e);
}

static int prepare(const struct exec_plan *p, struct sandbox_user *u, struct dsec_error *e)
{
	const int keep[] = { p->start_sock, p->in_fd, p->out_fd, p->err_fd, p->pty ? p->c->boot.devpts_fd : -1 };
	int slave = -1, fds[2], r;
	size_t n = 0;
	if (p->pty && p->c->boot.devpts_fd < 0)
		return dsec_error_set(e, -ENOTSUP, DSEC_E_UNSUPPORTED, "this sandbox has no terminals (pty)");
	if ((r = enter_sandbox(p->c, keep, ARRAY_SIZE(keep), e)) < 0 || (r = user_resolve(p->user, u, e)) < 0 ||
	    (r = enter_become(u, e)) < 0)
		return r;
	if (p->pty && (fds[n++] = open_pty(p, &slave, e)) < 0)
		return fds[0];
	bool listen = p->c->boot.disk_bytes != 0;
	r = enter_lock_down(p->c, u, p->no_new_privs, listen ? &fds[n] : NULL, e);
	if (r < 0)
		return r;
	n += listen && fds[n] >= 0;
	struct start_message m = { .kind = START_FDS };
	if (n && (r = (int)send_fds(p->start_sock, &m, sizeof(m), fds, n)) < 0)
		return dsec_error_errno(e, r, "cannot hand descriptors to PID 1");
	if ((r = set_streams(p, slave, e)) < 0)
		return r;
	return enter_cwd(p, u, e);
}

_Noreturn void exec_child(const struct exec_plan *p)
{
	struct sandbox_user u;
	struct dsec_error e = { .code = DSEC_E_INTERNAL, .message = "out of memory" };
	default_signals();
	if (prepare(p, &u, &e) == 0) {
		setrlimit(RLIMIT_NOFILE, &p->c->nofile);
		char **env = make_env(p, &u);
		if (env)
			run(p, env, &e);
	}
	give_up(p->start_sock, &e);
}
