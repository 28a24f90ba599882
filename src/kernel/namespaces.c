/* namespaces.c: see namespaces.h. */
#include "kernel/namespaces.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"

int netns_loopback_up(void)
{
	_cleanup_close_ int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -errno;
	struct ifreq ifr = { .ifr_flags = IFF_UP | IFF_RUNNING };
	memcpy(ifr.ifr_name, "lo", sizeof("lo"));
	return ioctl(s, SIOCSIFFLAGS, &ifr) < 0 ? -errno : 0;
}

int netns_open_ports(int proc_dirfd)
{
	int r = write_file_at(proc_dirfd, "sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (r < 0)
		return r;
	/* The largest group id the kernel takes here is 2^31 - 1. */
	return write_file_at(proc_dirfd, "sys/net/ipv4/ping_group_range", "0 2147483647");
}

int userns_make(uid_t owner)
{
	/* The owner of a namespace is the effective id of its maker. Without this
	 * bit, leaving uid 0 would drop the capability that unshare needs. */
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
		return -errno;
	if (syscall(SYS_setresgid, -1, owner, -1) < 0 || syscall(SYS_setresuid, -1, owner, -1) < 0)
		return -errno;
	return unshare(CLONE_NEWUSER) < 0 ? -errno : 0;
}

int userns_map(int proc_dirfd, pid_t pid, uint32_t base, uint32_t count)
{
	char path[48], map[48];
	snprintf(map, sizeof(map), "0 %u %u\n", base, count);
	snprintf(path, sizeof(path), "%d/gid_map", (int)pid);
	int r = write_file_at(proc_dirfd, path, map);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%d/uid_map", (int)pid);
	return write_file_at(proc_dirfd, path, map);
}

int userns_forbid_nested(int proc_dirfd)
{
	static const char *const kinds[] = { "user", "pid", "uts", "ipc", "net", "mnt", "cgroup", "time" };
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		char path[64];
		snprintf(path, sizeof(path), "sys/user/max_%s_namespaces", kinds[i]);
		int r = write_file_at(proc_dirfd, path, "0");
		if (r < 0 && r != -ENOENT) /* a kernel built without that kind */
			return r;
	}
	return 0;
}

int caps_drop_bounding(void)
{
	for (unsigned cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return -errno;
	return 0;
}

int credentials_become(uint32_t id)
{
	if (syscall(SYS_setgroups, 0, NULL) < 0)
		return -errno;
	if (syscall(SYS_setresgid, id, id, id) < 0 || syscall(SYS_setresuid, id, id, id) < 0)
		return -errno;
	/* After the change, so that the keyring counts against `id`. */
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0, 0) < 0 && errno != ENOSYS)
		return -errno;
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}
