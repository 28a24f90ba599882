/* seccomp.c: see seccomp.h. One compare a call, in a row: it is loaded once a
 * spawner, and the kernel caches which calls a filter always allows. */
#include "kernel/seccomp.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"

#if !defined(__x86_64__)
#error "the filter is written for x86-64; add the audit architecture of this one"
#endif
#define X32_BIT 0x40000000u

static const uint32_t denied[] = {
	SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,    SYS_kexec_file_load, SYS_bpf,
	SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
	SYS_reboot,      SYS_swapon,       SYS_swapoff,       SYS_settimeofday,  SYS_clock_settime,   SYS_clock_adjtime,
	SYS_adjtimex,    SYS_acct,         SYS_quotactl,      SYS_open_by_handle_at, SYS_name_to_handle_at,
	SYS_iopl,        SYS_ioperm,       SYS_syslog,        SYS_add_key,       SYS_request_key,     SYS_lookup_dcookie,
	SYS_uselib,      SYS_ustat,        SYS_sysfs,         SYS_vhangup,       SYS_fanotify_init,
};

#define STMT(code, k) ((struct sock_filter)BPF_STMT(code, k))
#define JUMP(code, k, t, f) ((struct sock_filter)BPF_JUMP(code, k, t, f))

int seccomp_load_broad(void)
{
	struct sock_filter p[ARRAY_SIZE(denied) + 8];
	uint8_t n = 0, total = ARRAY_SIZE(denied);
	p[n++] = STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	p[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	p[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
	p[n++] = STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	p[n++] = JUMP(BPF_JMP | BPF_JSET | BPF_K, X32_BIT, (uint8_t)(total + 1), 0);
	for (uint8_t i = 0; i < total; i++) /* to the refusal, which is last */
		p[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i], (uint8_t)(total - i), 0);
	p[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	p[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	struct sock_fprog prog = { .len = n, .filter = p };
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}
