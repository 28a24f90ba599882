/* ending.h: ending programs in order, within bounded time.
 *
 * Used by the supervisor when it stops, when it takes over from a dead one, and
 * by `dsecd cleanup`. Works on pidfds, so it serves own children and programs of
 * an earlier supervisor alike. Blocks up to the stated times.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "dsecd/program.h"
#include "dsecd/state.h"

#define ENDING_KILL_WAIT_MS 5000 /* how long a killed process may take to be gone */

/* How long SIGTERM is given. The edge stops every sandbox in this time. */
unsigned ending_grace_ms(enum program_phase phase);

/* Sends sig to all, waits until all have ended or grace_ms is over or signal_fd
 * (-1: none) becomes readable, then kills the rest. Returns how many had to be
 * killed, or -ETIMEDOUT when one is there even then. */
int ending_of(const int *pidfds, size_t n, int sig, unsigned grace_ms, int signal_fd);

/* Ends every program that has a pid file in the state's run directory but the
 * supervisor itself, apiserver first. gently: SIGTERM first, so the edge stops its
 * sandboxes; otherwise SIGKILL, which leaves them to the next edge. Returns how
 * many there were. */
int ending_of_earlier(const struct state *s, bool gently, int signal_fd);
