/* admission.h: whether the node can take one more sandbox.
 *
 * Asked by the create call before anything is journaled; loop thread. A refusal
 * is platform trouble that a retry, or another node, may get over, and says when.
 */
#pragma once
#include "edge/node.h"

/* 0, or a negative errno with *e and *ret_retry_ms filled. */
int admission_check(struct node *n, uint64_t memory_bytes, struct dsec_error *e, uint32_t *ret_retry_ms);
/* Reads MemTotal and MemAvailable, at most every ADMISSION_SAMPLE_MS. */
void admission_sample(struct node *n);
