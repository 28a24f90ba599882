/* namespaces.h: what is done inside a fresh user, network or cgroup namespace
 * before a sandbox gets it, and the credentials a sandbox's PID 1 is left with.
 *
 * Called by the spawner's children; changes the calling process only, except
 * for userns_map, which its parent calls. Nothing allocates. Negative errno.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>

/* Network namespace of the caller: lo up, every port free to bind, ping for all. */
int netns_loopback_up(void);
int netns_open_ports(int proc_dirfd);

/* Leaves the caller in a new user namespace owned by the unprivileged id `owner`,
 * with every capability in it and no ids mapped yet. */
int userns_make(uid_t owner);
/* Maps 0..count-1 inside to base.. outside, for the process that made it. */
int userns_map(int proc_dirfd, pid_t pid, uint32_t base, uint32_t count);
/* From inside, before anyone else is: no namespace of any kind may be made in it. */
int userns_forbid_nested(int proc_dirfd);

/* Empties the bounding set, so that no later execve gains a capability. */
int caps_drop_bounding(void);
/* Becomes `id`, user and group, with no other group, no capability and a keyring
 * shared with nobody. */
int credentials_become(uint32_t id);
