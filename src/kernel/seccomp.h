/* seccomp.h: the broad filter that our own long-lived processes inherit.
 *
 * dsec-spawner loads it once, before it serves anybody, so that every PID 1 and,
 * under their strict filter (chronus/seccomp.c), every command has it too at no
 * cost a sandbox. It refuses with EPERM what none of them ever needs and what has
 * been a way into kernels: modules, kexec, bpf, perf, io_uring, userfaultfd, time,
 * swap, reboot, handles of files, and every x32 call; i386 calls answer ENOSYS, as
 * on a kernel without them. Mounting stays: the spawner's child does it.
 * Needs CAP_SYS_ADMIN (or no_new_privs); only the calling thread gets it.
 */
#pragma once

int seccomp_load_broad(void); /* 0 or negative errno */
