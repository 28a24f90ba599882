/* spawn_loop.c: runs one command again and again and times it as a caller would.
 *
 * For the peers of bench/create: spawn_loop CYCLES WORKERS -- COMMAND..., where
 * each "%d" in an argument becomes the number of the cycle. A cycle is posix_spawn
 * of the command with its output on a pipe, the first byte of output, EOF and the
 * exit. WORKERS processes share the cycles. Prints one JSON object; a command that
 * fails ends it with exit 1 and the command's own words on stderr.
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"

#define ARGS_MAX 64

extern char **environ;

struct sample {
	double output_ms, cycle_ms;
};

static int run_once(char **command, unsigned number, struct sample *ret)
{
	char words[ARGS_MAX][256], *argv[ARGS_MAX + 1] = { 0 };
	for (int i = 0; command[i] && i < ARGS_MAX; i++) {
		char *at = strstr(command[i], "%d");
		if (at)
			snprintf(words[i], sizeof(words[i]), "%.*s%u%s", (int)(at - command[i]), command[i], number,
				 at + 2);
		argv[i] = at ? words[i] : command[i];
	}
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	uint64_t t0 = now_mono_ns(), t_output = 0;
	pid_t pid;
	int r = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	if (r) {
		close(fds[0]);
		fprintf(stderr, "spawn_loop: %s: %s\n", argv[0], strerror(r));
		return -1;
	}
	char buf[4096];
	while (read(fds[0], buf, sizeof(buf)) > 0)
		if (!t_output)
			t_output = now_mono_ns();
	close(fds[0]);
	int status;
	waitpid(pid, &status, 0);
	uint64_t t1 = now_mono_ns();
	if (status || !t_output) {
		fprintf(stderr, "spawn_loop: %s: status %#x%s\n", argv[0], status, t_output ? "" : ", no output");
		return -1;
	}
	*ret = (struct sample){ (double)(t_output - t0) / 1e6, (double)(t1 - t0) / 1e6 };
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	if (argc < 5 || strcmp(argv[3], "--")) {
		fprintf(stderr, "usage: spawn_loop CYCLES WORKERS -- COMMAND...\n");
		return 2;
	}
	unsigned cycles = (unsigned)atoi(argv[1]), workers = (unsigned)atoi(argv[2]);
	if (!cycles || !workers)
		return 2;
	struct sample *s = mmap(NULL, cycles * sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double *v = calloc(cycles, sizeof(*v));
	if (s == MAP_FAILED || !v)
		return 1;
	uint64_t t0 = now_mono_ns();
	for (unsigned w = 0; w < workers; w++) {
		if (fork())
			continue;
		for (unsigned i = w; i < cycles; i += workers)
			if (run_once(argv + 4, i, &s[i]) < 0)
				_exit(1);
		_exit(0);
	}
	int status, bad = 0;
	while (wait(&status) > 0)
		bad |= status;
	if (bad)
		return 1;
	double seconds = (double)(now_mono_ns() - t0) / 1e9;
	for (unsigned i = 0; i < cycles; i++)
		v[i] = s[i].output_ms;
	qsort(v, cycles, sizeof(*v), by_value);
	printf("{\"output_p50_ms\": %.3f, \"output_p99_ms\": %.3f, ", v[cycles / 2], v[(size_t)cycles * 99 / 100]);
	for (unsigned i = 0; i < cycles; i++)
		v[i] = s[i].cycle_ms;
	qsort(v, cycles, sizeof(*v), by_value);
	printf("\"cycle_p50_ms\": %.3f, \"cycle_p99_ms\": %.3f, \"per_s\": %.1f, \"workers\": %u, \"cycles\": %u}\n",
	       v[cycles / 2], v[(size_t)cycles * 99 / 100], cycles / seconds, workers, cycles);
	return 0;
}
