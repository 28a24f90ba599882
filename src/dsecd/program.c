/* program.c: see program.h. */
#include "dsecd/program.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "dsecd/readiness.h"
#include "kernel/process.h"

int program_init(struct program *p, const struct state *s, enum program_phase phase, const char *name)
{
	*p = (struct program){ .phase = phase, .pidfd = -1 };
	int n = snprintf(p->name, sizeof(p->name), "%s", name);
	if (n < 0 || (size_t)n >= sizeof(p->name))
		return -ENAMETOOLONG;
	if (asprintf(&p->log_path, "%s/%s.log", s->log_dir, name) < 0) {
		p->log_path = NULL;
		return -ENOMEM;
	}
	return 0;
}

int program_add_word(struct program *p, const char *fmt, ...)
{
	if (p->n_words == PROGRAM_WORDS_MAX)
		return -E2BIG;
	va_list ap;
	va_start(ap, fmt);
	char *word;
	int n = vasprintf(&word, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -ENOMEM;
	p->words[p->n_words++] = word;
	return 0;
}

void program_done(struct program *p)
{
	for (unsigned i = 0; i < p->n_words; i++)
		free(p->words[i]);
	free(p->socket);
	free(p->log_path);
	base_close(p->pidfd);
	*p = (struct program){ .pidfd = -1 };
}

/* In the child; everything else is close-on-exec. */
static void become(struct program *p, int log_fd)
{
	sigset_t none;
	sigemptyset(&none);
	setsid();
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
	    dup2(log_fd, STDERR_FILENO) < 0)
		_exit(126);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(p->words[0], p->words);
	dprintf(STDERR_FILENO, "cannot execute %s: %s\n", p->words[0], strerror(errno));
	_exit(127);
}

static void back_off(struct program *p)
{
	uint64_t now = now_mono_ms();
	p->backoff_ms = p->backoff_ms ? MIN(p->backoff_ms * 2, PROGRAM_BACKOFF_MAX_MS)
				      : PROGRAM_BACKOFF_MIN_MS;
	p->state = PROGRAM_BACKOFF;
	p->since_ms = now;
	p->retry_at_ms = now + p->backoff_ms;
}

static int spawn(struct program *p, const struct state *s)
{
	_cleanup_close_ int log_fd = open(p->log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (log_fd < 0)
		return -errno;
	p->log_start = MAX(0, lseek(log_fd, 0, SEEK_END));
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		become(p, log_fd);
	int pidfd = pidfd_of(pid); /* ours and not reaped yet: the number is still its own */
	if (pidfd < 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return pidfd;
	}
	p->pid = pid;
	p->pidfd = pidfd;
	return pidfile_write(s->run_dir, p->name, pid);
}

int program_start(struct program *p, const struct state *s)
{
	if (p->socket)
		unlink(p->socket); /* nobody of ours listens on it: a stale one only misleads */
	int r = spawn(p, s);
	if (r < 0 && p->pidfd >= 0) {
		pidfd_kill(p->pidfd, SIGKILL);
		waitpid(p->pid, NULL, 0);
		p->pidfd = base_close(p->pidfd);
	}
	if (r < 0) {
		p->deaths_before_ready++;
		back_off(p);
		return r;
	}
	p->state = PROGRAM_STARTING;
	p->since_ms = now_mono_ms();
	return 0;
}

void program_reap(struct program *p, const struct state *s, char *ret_how, size_t n)
{
	int status = 0;
	pid_t r;
	do
		r = waitpid(p->pid, &status, 0);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		snprintf(ret_how, n, "is gone");
	else if (WIFSIGNALED(status))
		snprintf(ret_how, n, "was killed by signal %d", WTERMSIG(status));
	else
		snprintf(ret_how, n, "ended with status %d", WEXITSTATUS(status));
	if (p->state == PROGRAM_READY && now_mono_ms() - p->since_ms > PROGRAM_STEADY_MS)
		p->backoff_ms = 0;
	if (p->state == PROGRAM_STARTING)
		p->deaths_before_ready++;
	p->pidfd = base_close(p->pidfd);
	pidfile_remove(s->run_dir, p->name);
	back_off(p);
}

bool program_check_ready(struct program *p)
{
	if (p->state != PROGRAM_STARTING)
		return false;
	if (!(p->socket ? readiness_socket(p->socket) : readiness_http(p->listen)))
		return false;
	p->state = PROGRAM_READY;
	p->since_ms = now_mono_ms();
	p->deaths_before_ready = 0;
	return true;
}

/* The writers hold the file open with O_APPEND and know nothing of us, so the
 * content is copied away and the file cut: a line written between the two steps
 * is lost, which is the price of programs that outlive their supervisor. */
void log_rotate(const char *path, uint64_t max_bytes)
{
	struct stat st;
	char old[PATH_MAX];
	_cleanup_close_ int from = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (from < 0 || fstat(from, &st) < 0 || (uint64_t)st.st_size <= max_bytes)
		return;
	if (snprintf(old, sizeof(old), "%s.1", path) >= (int)sizeof(old))
		return;
	/* What is far beyond the bound (no supervisor was there to look) keeps its end. */
	off_t at = (uint64_t)st.st_size > 2 * max_bytes ? st.st_size - (off_t)max_bytes : 0;
	_cleanup_close_ int to = open(old, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	while (to >= 0 && sendfile(to, from, &at, max_bytes) > 0)
		;
	if (ftruncate(from, 0) < 0)
		return;
}
