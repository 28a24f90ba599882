/* detach.h: `dsecd up --detach`: two processes, one that waits and one that stays. */
#pragma once

/* Forks. In the caller's side: waits until the other is ready or has ended, prints
 * the address or the end of its log, returns the exit status (0 or more). In the
 * side that stays: returns -1; it has a session of its own, S/log/up.log as
 * output, and *ret_ready_fd, to which it writes the address when it is ready. */
int detach(const char *state_dir, int *ret_ready_fd);
