/* ipc_client.h: one connection to a helper process (mounter, spawner) on a loop.
 *
 * Sends fixed-size requests with descriptors over SOCK_SEQPACKET and hands each
 * reply to its caller by token. Connects by itself, again after the helper was
 * restarted; requests made meanwhile wait, at most IPC_QUEUE_MAX of them. When the
 * connection breaks, every request already sent fails with -ECONNRESET, because
 * nobody knows whether it was done; one not yet sent stays queued. A request that
 * got no answer in IPC_DEADLINE_MS fails with -ETIMEDOUT.
 *
 * Loop thread only. Descriptors of a request are borrowed: copies are kept while
 * it waits. Those of a reply belong to the callback, which closes them.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define IPC_QUEUE_MAX 4096
#define IPC_DEADLINE_MS 30000

struct ipc_client;

/* err < 0: no reply, reply is NULL. */
typedef void (*ipc_reply_cb)(int err, const void *reply, const int *fds, size_t n_fds, void *user);

/* The token is the second 64-bit word of request and reply (both protocols). */
int ipc_client_new(uv_loop_t *loop, const char *path, size_t request_size, size_t reply_size, struct ipc_client **ret);
/* Outstanding requests fail with -ECANCELED before it returns; frees later. */
void ipc_client_free(struct ipc_client *c);
/* 0, or -ENOBUFS when too many wait: then cb is not called. `request` gets its token. */
int ipc_client_call(struct ipc_client *c, void *request, const int *fds, size_t n_fds, ipc_reply_cb cb, void *user);
size_t ipc_client_pending(const struct ipc_client *c);
int ipc_client_connected(const struct ipc_client *c);
