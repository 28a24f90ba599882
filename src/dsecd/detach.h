/* detach.h: `dsecd up --detach`: two processes, one that waits and one that stays;
 * and what `up` says to its caller when the platform is ready. */
#pragma once
#include <stdbool.h>
#include "dsecd/state.h"

/* Forks. In the caller's side: waits until the other is ready or has ended, prints
 * the address or the end of its log, returns the exit status (0 or more). In the
 * side that stays: returns -1; it has a session of its own, S/log/up.log as
 * output, and *ret_ready_fd, to which it writes the address when it is ready. */
int detach(const char *state_dir, bool json, int *ret_ready_fd);

/* On standard output: a sentence with the address, or an object with address,
 * state directory and key file. url may end with a newline. */
void ready_print(const struct state *s, const char *url, bool json);
