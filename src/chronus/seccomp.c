/* seccomp.c: the strict filter of everything that runs in the sandbox.
 *
 * A table of system call numbers and what happens to them; all else up to the
 * newest call we know is allowed, what is newer answers ENOSYS so that programs
 * fall back. The table becomes a binary tree of ranges: a call meets about seven
 * comparisons, and the kernel's cache of always-allowed calls skips even those.
 * Refusals are belt and braces where a capability or namespace limit refuses
 * already: what matters is that the kernel code behind them is out of reach.
 *
 * x32 and i386 calls answer ENOSYS. clone3 does too: its flags are in memory that
 * a filter cannot read, and every C library then falls back to clone, whose
 * namespace flags are refused. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "chronus/chronus-internal.h"

#ifndef SECCOMP_RET_USER_NOTIF
#define SECCOMP_RET_USER_NOTIF 0x7fc00000U
#endif
#ifndef SECCOMP_FILTER_FLAG_NEW_LISTENER
#define SECCOMP_FILTER_FLAG_NEW_LISTENER (1UL << 3)
#endif
#define CALL_NEWEST 466 /* removexattrat (6.13); later numbers are unknown to us */
/* NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME is a clone
 * flag for unshare only (for clone its bit is part of the exit signal). */
#define NAMESPACE_FLAGS 0x7e020000
#define UNSHARE_FLAGS (NAMESPACE_FLAGS | 0x80)
#define TIOCSTI_ 0x5412
#define TIOCLINUX_ 0x541c
#define TIOCSETD_ 0x5423 /* a line discipline may be a module of the host's */
#define XFS_IOC_SWAPEXT_ 0xc0c0586d
#define IPPROTO_UDPLITE_ 136
#define IPPROTO_MPTCP_ 262

enum action { ALLOW, DENY, ABSENT, NOTIFY, CHECK_CLONE, CHECK_UNSHARE, CHECK_IOCTL, CHECK_SOCKET, CHECK_SOCKOPT };
struct rule {
	uint16_t nr;
	uint8_t action;
};

/* Ascending numbers; x86-64. Numbers where a C library's headers may be older. */
static const struct rule rules[] = {
	{ SYS_ioctl, CHECK_IOCTL },		/* 16 */
	{ SYS_socket, CHECK_SOCKET },		/* 41 */
	{ SYS_socketpair, CHECK_SOCKET },	/* 53 */
	{ SYS_setsockopt, CHECK_SOCKOPT },	/* 54 */
	{ SYS_clone, CHECK_CLONE },		/* 56 */
	{ SYS_syslog, DENY },			/* 103 */
	{ 134, DENY },				/* uselib */
	{ 137, NOTIFY },			/* statfs */
	{ 138, NOTIFY },			/* fstatfs */
	{ 139, DENY },				/* sysfs */
	{ SYS_vhangup, DENY },			/* 153 */
	{ SYS_pivot_root, DENY },		/* 155 */
	{ 156, ABSENT },			/* _sysctl */
	{ SYS_acct, DENY },			/* 163 */
	{ SYS_settimeofday, DENY },		/* 164 */
	{ SYS_mount, DENY },			/* 165 */
	{ SYS_umount2, DENY },			/* 166 */
	{ SYS_swapon, DENY },			/* 167 */
	{ SYS_swapoff, DENY },			/* 168 */
	{ SYS_reboot, DENY },			/* 169 */
	{ SYS_iopl, DENY },			/* 172 */
	{ SYS_ioperm, DENY },			/* 173 */
	{ 174, DENY },				/* create_module */
	{ SYS_init_module, DENY },		/* 175 */
	{ SYS_delete_module, DENY },		/* 176 */
	{ 177, DENY },				/* get_kernel_syms */
	{ 178, DENY },				/* query_module */
	{ SYS_quotactl, DENY },			/* 179 */
	{ 180, DENY },				/* nfsservctl */
	{ 212, DENY },				/* lookup_dcookie */
	{ SYS_clock_settime, DENY },		/* 227 */
	{ SYS_kexec_load, DENY },		/* 246 */
	{ SYS_add_key, DENY },			/* 248 */
	{ SYS_request_key, DENY },		/* 249 */
	{ SYS_keyctl, DENY },			/* 250 */
	{ SYS_unshare, CHECK_UNSHARE },		/* 272 */
	{ SYS_perf_event_open, DENY },		/* 298 */
	{ SYS_open_by_handle_at, DENY },	/* 304 */
	{ SYS_setns, DENY },			/* 308 */
	{ SYS_finit_module, DENY },		/* 313 */
	{ 320, DENY },				/* kexec_file_load */
	{ 321, DENY },				/* bpf */
	{ 323, DENY },				/* userfaultfd */
	{ 425, DENY },				/* io_uring_setup */
	{ 426, DENY },				/* io_uring_enter */
	{ 427, DENY },				/* io_uring_register */
	{ 428, DENY },				/* open_tree */
	{ 429, DENY },				/* move_mount */
	{ 430, DENY },				/* fsopen */
	{ 431, DENY },				/* fsconfig */
	{ 432, DENY },				/* fsmount */
	{ 433, DENY },				/* fspick */
	{ 435, ABSENT },			/* clone3 */
	{ 442, DENY },				/* mount_setattr */
	{ 443, DENY },				/* quotactl_fd */
};

/* [start of this, start of the next) all do the same. */
struct range {
	uint32_t start;
	enum action action;
};
#define RANGES_MAX (2 * ARRAY_SIZE(rules) + 4)

struct program {
	struct sock_filter *p;
	size_t n, cap;
	bool full;
};

static void op(struct program *o, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	if (o->n >= o->cap) {
		o->full = true;
		return;
	}
	o->p[o->n++] = (struct sock_filter){ code, jt, jf, k };
}

static void ret(struct program *o, uint32_t k)
{
	op(o, BPF_RET | BPF_K, k, 0, 0);
}

static void load(struct program *o, size_t offset)
{
	op(o, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* Low half of an argument: the kernel looks at no more of these. */
#define ARG(i) (offsetof(struct seccomp_data, args) + 8 * (i))

static void deny_if_equal(struct program *o, size_t arg, const uint32_t *values, size_t n, uint32_t errno_value)
{
	load(o, arg);
	for (size_t i = 0; i < n; i++) /* each jumps to the refusal, which follows the "allow" */
		op(o, BPF_JMP | BPF_JEQ | BPF_K, values[i], (uint8_t)(n - i), 0);
	ret(o, SECCOMP_RET_ALLOW);
	ret(o, SECCOMP_RET_ERRNO | errno_value);
}

static void allow_if_equal(struct program *o, size_t arg, const uint32_t *values, size_t n, uint32_t errno_value)
{
	load(o, arg);
	for (size_t i = 0; i < n; i++) /* each jumps to the "allow", which follows the refusal */
		op(o, BPF_JMP | BPF_JEQ | BPF_K, values[i], (uint8_t)(n - i), 0);
	ret(o, SECCOMP_RET_ERRNO | errno_value);
	ret(o, SECCOMP_RET_ALLOW);
}
#define IF_EQUAL_LENGTH(n) ((uint8_t)((n) + 3))

/* What programs use on one machine. Other families and protocols load modules of
 * the host's, or reach code that no network namespace confines (vsock, qrtr);
 * uevents tell of the host's devices. */
static void check_socket(struct program *o)
{
	static const uint32_t netlink[] = { NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_AUDIT, NETLINK_GENERIC };
	static const uint32_t inet[] = { 0, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6,
					 IPPROTO_UDPLITE_, IPPROTO_RAW, IPPROTO_MPTCP_ };
	static const uint32_t others[] = { AF_UNIX, AF_PACKET };
	load(o, ARG(0));
	op(o, BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, IF_EQUAL_LENGTH(ARRAY_SIZE(netlink)));
	allow_if_equal(o, ARG(2), netlink, ARRAY_SIZE(netlink), EPROTONOSUPPORT);
	op(o, BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0);
	op(o, BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, IF_EQUAL_LENGTH(ARRAY_SIZE(inet)));
	allow_if_equal(o, ARG(2), inet, ARRAY_SIZE(inet), EPROTONOSUPPORT);
	allow_if_equal(o, ARG(0), others, ARRAY_SIZE(others), EAFNOSUPPORT);
}

/* The code of programs on sockets comes out of one budget of the node
 * (net.core.bpf_jit_limit). Once it is used up, kernels without an interpreter load
 * no filter any more, ours neither: no command would start in any sandbox. */
static void check_sockopt(struct program *o)
{
	static const uint32_t programs[] = { SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF,
					     SO_ATTACH_REUSEPORT_EBPF };
	load(o, ARG(1));
	op(o, BPF_JMP | BPF_JEQ | BPF_K, SOL_SOCKET, 1, 0);
	ret(o, SECCOMP_RET_ALLOW);
	deny_if_equal(o, ARG(2), programs, ARRAY_SIZE(programs), EPERM);
}

static void deny_if_bits(struct program *o, size_t arg, uint32_t bits)
{
	load(o, arg);
	op(o, BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
	ret(o, SECCOMP_RET_ERRNO | EPERM);
	ret(o, SECCOMP_RET_ALLOW);
}

static void leaf(struct program *o, enum action a)
{
	static const uint32_t ioctls[] = { TIOCSTI_, TIOCLINUX_, TIOCSETD_, XFS_IOC_SWAPEXT_ };
	switch (a) {
	case ALLOW:
		ret(o, SECCOMP_RET_ALLOW);
		break;
	case DENY:
		ret(o, SECCOMP_RET_ERRNO | EPERM);
		break;
	case ABSENT:
		ret(o, SECCOMP_RET_ERRNO | ENOSYS);
		break;
	case NOTIFY:
		ret(o, SECCOMP_RET_USER_NOTIF);
		break;
	case CHECK_CLONE:
		deny_if_bits(o, ARG(0), NAMESPACE_FLAGS);
		break;
	case CHECK_UNSHARE:
		deny_if_bits(o, ARG(0), UNSHARE_FLAGS);
		break;
	case CHECK_IOCTL:
		deny_if_equal(o, ARG(1), ioctls, ARRAY_SIZE(ioctls), EPERM);
		break;
	case CHECK_SOCKET:
		check_socket(o);
		break;
	case CHECK_SOCKOPT:
		check_sockopt(o);
		break;
	}
}

/* Jumps reach 255 instructions; a half that is longer gets a long jump around it. */
static void tree(struct program *o, const struct range *r, size_t n)
{
	if (n == 1) {
		leaf(o, r->action);
		return;
	}
	size_t half = n / 2, at = o->n;
	op(o, BPF_JMP | BPF_JGE | BPF_K, r[half].start, 0, 1);
	op(o, BPF_JMP | BPF_JA, 0, 0, 0); /* taken at or above: to the upper half */
	tree(o, r, half);
	if (o->full)
		return;
	o->p[at + 1].k = (uint32_t)(o->n - at - 2);
	if (o->p[at + 1].k < 255) { /* the common case: one instruction does */
		o->p[at].jt = (uint8_t)o->p[at + 1].k;
		o->p[at].jf = 0;
		for (size_t i = at + 1; i + 1 < o->n; i++)
			o->p[i] = o->p[i + 1];
		o->n--;
	}
	tree(o, r + half, n - half);
}

static size_t add(struct range *r, size_t n, uint32_t start, enum action a)
{
	if (n && r[n - 1].start == start)
		n--; /* the former range is empty */
	if (n && r[n - 1].action == a)
		return n;
	r[n] = (struct range){ start, a };
	return n + 1;
}

int seccomp_build(struct sock_filter *p, size_t cap, bool notify)
{
	struct range r[RANGES_MAX];
	struct program o = { .p = p, .cap = cap };
	size_t n = add(r, 0, 0, ALLOW);
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		enum action a = rules[i].action == NOTIFY && !notify ? ALLOW : rules[i].action;
		n = add(r, n, rules[i].nr, a);
		n = add(r, n, rules[i].nr + 1u, ALLOW);
	}
	n = add(r, n, CALL_NEWEST + 1, ABSENT);
	load(&o, offsetof(struct seccomp_data, arch));
	op(&o, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	ret(&o, SECCOMP_RET_ERRNO | ENOSYS);
	load(&o, offsetof(struct seccomp_data, nr)); /* x32 numbers are above CALL_NEWEST */
	tree(&o, r, n);
	return o.full ? -E2BIG : (int)o.n;
}

int seccomp_load(const struct sock_filter *p, size_t n, bool listener)
{
	struct sock_fprog prog = { .len = (unsigned short)n, .filter = (struct sock_filter *)p };
	int r = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, listener ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0,
			     &prog);
	return r < 0 ? -errno : r;
}
