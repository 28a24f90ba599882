/* file_worker.h: the process behind one file operation, and its packets.
 *
 * PID 1 (files.c) forks it; it enters the sandbox as the asked user, does one
 * operation, and ends. Packets on the SOCK_SEQPACKET pair begin with a byte of
 * kind. Everything here blocks: it is a process of its own. Memory is constant
 * but for the names of one directory (list) and the modes of made directories
 * (tar in), both bounded, and charged to the sandbox.
 */
#pragma once
#include "chronus/chronus-internal.h"

#define FILE_CHUNK (32 * 1024)
#define FILE_PACKET_MAX (AETHER_PAYLOAD_MAX + 1)
#define FILE_PATH_MAX 4096

enum file_packet {
	FILE_PACKET_DATA = 'D',   /* either way */
	FILE_PACKET_MESSAGE = 'M', /* worker: an encoded FileReport */
	FILE_PACKET_FINAL = 'F',  /* worker: the last one */
	FILE_PACKET_TICK = 'T',   /* worker: still busy */
	FILE_PACKET_COMMIT = 'C', /* PID 1: uint64_t bytes */
	FILE_PACKET_END = 'E',    /* PID 1: the upload is complete */
};

struct file_plan {
	const struct chronus *c;
	const struct wire_file *w;
	int sock;
	char path[FILE_PATH_MAX], to[FILE_PATH_MAX], user[160];
};
_Noreturn void file_worker(const struct file_plan *p);

/* ---- Inside the worker ---- */
struct worker {
	const struct wire_file *w;
	int sock, root; /* root: O_PATH of / */
	char path[2 * FILE_PATH_MAX], to[2 * FILE_PATH_MAX]; /* absolute */
	uint64_t bytes, entries, ticked;
	/* upload: the packet being read */
	uint8_t *in;
	size_t in_at, in_n;
	bool in_ended, committed;
	uint64_t commit_bytes;
};

/* Negative errno with *e filled: a code from err and a sentence with the path. */
int file_error(struct dsec_error *e, int err, const char *what, const char *path);
int file_open(const struct worker *k, const char *path, int flags); /* below root, no magic links */
/* The directory that holds the last component, and that component (borrowed from
 * path, which is cut). -EISDIR for "/"; -EINVAL for "." and "..". */
int file_parent(const struct worker *k, char *path, const char **ret_name);
int file_make_dirs(const struct worker *k, const char *path, mode_t mode);

int worker_send(struct worker *k, enum file_packet kind, const void *p, size_t n);
int worker_data(struct worker *k, const void *p, size_t n); /* any n: cut in packets, counted */
int worker_tick(struct worker *k); /* at most one packet a second's worth of entries */
/* Uploaded bytes: up to n; 0 at the end or at a commit. -EPIPE: the edge went away. */
ssize_t worker_read(struct worker *k, void *p, size_t n);

int file_remove(struct worker *k, struct dsec_error *e);
int file_tar_out(struct worker *k, struct dsec_error *e);
int file_tar_in(struct worker *k, struct dsec_error *e);
