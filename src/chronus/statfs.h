/* statfs.h: what PID 1 (statfs.c) and its helper (statfs_helper.c) say to each
 * other on a SOCK_SEQPACKET pair: a question and an answer in turn. */
#pragma once
#include "chronus/chronus-internal.h"

enum statfs_ask {
	STATFS_LOOK = 1, /* what does this call mean? answers CONTINUE or IS_ROOT */
	STATFS_FILL,     /* after IS_ROOT: write the answer into the caller; answers DONE or CONTINUE */
};
enum statfs_answer { STATFS_CONTINUE = 1, STATFS_IS_ROOT, STATFS_DONE };

struct statfs_question {
	uint32_t ask;
	int32_t tid, nr; /* the calling thread; 137 statfs or 138 fstatfs */
	uint64_t args[2];
	uint64_t limit_bytes, used_bytes; /* FILL */
};
_Noreturn void statfs_helper(const struct chronus *c, int sock);
