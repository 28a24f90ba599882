/* sweep.h: the last resort: removes from the kernel what a platform left there.
 *
 * Called by the supervisor after its programs have ended, after a reboot, and by
 * `dsecd cleanup`; never while an edge of this state directory runs, since it
 * kills every sandbox. Works from what is written down (the cgroup record below
 * S/edge) and from names that contain S (mounts, loop devices). What is not there
 * is success; each thing that resists is logged. Blocks up to SWEEP_WAIT_MS for
 * killed processes to leave their cgroups.
 */
#pragma once
#include "dsecd/state.h"

#define SWEEP_WAIT_MS 8000

/* How many things were removed. */
int sweep(const struct state *s);
