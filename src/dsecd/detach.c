/* detach.c: see detach.h. */
#include "dsecd/detach.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "base/log.h"

void ready_print(const struct state *s, const char *url, bool json)
{
	int n = (int)strcspn(url, "\n");
	if (!json) {
		printf("dsec is ready at %.*s\n", n, url);
		return;
	}
	json_t *o = json_pack("{s:s%,s:s,s:s}", "url", url, (size_t)n, "state_dir", s->dir, "api_key_file", s->key_file);
	if (o && !json_dumpf(o, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER))
		putchar('\n');
	json_decref(o);
}

static int wait_for(pid_t pid, int fd, const struct state *s, bool json, const char *log_path, off_t log_start)
{
	char url[512], text[4096];
	ssize_t n = read_all(fd, url, sizeof(url) - 1); /* to the end: it closes when ready or dead */
	if (n > 0) {
		url[n] = 0;
		ready_print(s, url, json);
		return 0;
	}
	int status = 0;
	waitpid(pid, &status, 0);
	_cleanup_close_ int log = open(log_path, O_RDONLY | O_CLOEXEC);
	ssize_t k = log < 0 ? 0 : pread(log, text, sizeof(text), log_start);
	fprintf(stderr, "dsecd up: the platform did not start (log: %s)\n", log_path);
	if (k > 0)
		fwrite(text, 1, (size_t)k, stderr);
	return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1;
}

int detach(const char *state_dir, bool json, int *ret_ready_fd)
{
	_cleanup_state_ struct state s = STATE_INIT;
	_cleanup_free_ char *log_path = NULL;
	int r = state_open(state_dir, true, &s), ends[2];
	if (r < 0) {
		log_error("cannot use the state directory %s: %s", state_dir,
			  r == -EPERM ? "it is open to other users and holds other things" : strerror(-r));
		return 1;
	}
	if (asprintf(&log_path, "%s/up.log", s.log_dir) < 0) {
		log_path = NULL;
		return 1;
	}
	_cleanup_close_ int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	_cleanup_close_ int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (log < 0 || null < 0 || pipe2(ends, O_CLOEXEC) < 0) {
		log_error("cannot write %s: %s", log_path, strerror(errno));
		return 1;
	}
	off_t log_start = lseek(log, 0, SEEK_END);
	fflush(stdout);
	pid_t pid = fork();
	if (pid < 0) {
		log_error("cannot fork: %s", strerror(errno));
		close(ends[0]);
		close(ends[1]);
		return 1;
	}
	if (pid) {
		close(ends[1]);
		r = wait_for(pid, ends[0], &s, json, log_path, log_start);
		close(ends[0]);
		return r;
	}
	close(ends[0]);
	setsid();
	if (dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
		_exit(1);
	*ret_ready_fd = ends[1];
	return -1;
}
