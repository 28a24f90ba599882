/* sweep_cgroup.h: the part of sweep.h that ends processes: the cgroups that the
 * record files below S/edge name, in every hierarchy. Kills what is in them,
 * waits, removes the directories. Returns how many processes and base directories
 * were removed. Only directories on a cgroup file system whose own name is
 * "dsec-" and eight hex digits are ever touched. */
#pragma once
#include "dsecd/state.h"

int sweep_cgroups(const struct state *s);
