/* process.h: making processes with clone3, holding them by pidfd, and reading
 * the facts of /proc that tell one process from a later one with its number.
 *
 * Called by the spawner (single-threaded) and by the container backend on the
 * edge's loop. Owns nothing: descriptors returned belong to the caller and are
 * close-on-exec. Negative errno on failure.
 *
 * clone_shared runs `fn` on the caller's memory while the caller sleeps, as
 * vfork does, but on a stack of its own: nothing is copied, so the price does
 * not grow with the caller. `fn` must not allocate, return to the caller's
 * frames or touch its state but for a result. Where the architecture has no
 * trampoline here, the child gets a copy instead and the caller does not sleep:
 * results therefore belong in memory that is mapped shared.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct clone_request {
	uint64_t flags;   /* CLONE_NEW*, CLONE_FILES; the pidfd and cgroup flags are added here */
	int cgroup_fd;    /* >= 0: born in this cgroup2 directory */
	void *stack;      /* lowest byte of the child's stack, clone_shared only */
	size_t stack_size;
};

/* As fork: returns twice. 0 in the child; in the parent the pid, *ret_pidfd. */
pid_t clone_copied(const struct clone_request *req, int *ret_pidfd);
/* As vfork: returns the pid once the child has executed or ended. */
pid_t clone_shared(const struct clone_request *req, int (*fn)(void *), void *arg, int *ret_pidfd);

int pidfd_of(pid_t pid);
int pidfd_kill(int pidfd, int sig); /* -ESRCH when it is gone */

/* Field 22 of PROC/PID/stat: clock ticks since boot at its start. */
int process_start_ticks(int proc_dirfd, pid_t pid, uint64_t *ret_ticks);
/* true when PID lives (not a zombie) and was started at that tick. */
bool process_is(int proc_dirfd, pid_t pid, uint64_t start_ticks);
