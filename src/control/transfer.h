/* transfer.h: bytes streamed between a client's body and an edge call, both ways,
 * in constant memory.
 *
 * Loop thread. Upload: the socket is read only as fast as the aether stream takes
 * (no copy is kept: MHD's own buffer waits). Download: credit goes back to the
 * edge only when at most TRANSFER_LOW bytes are unsent. Each takes the request
 * over. An upload cut by the client resets the call: the edge must not commit.
 */
#pragma once
#include "control/calls.h"

#define TRANSFER_LOW (64 * 1024)

/* render gives the answer once the edge has one. */
void transfer_upload(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq, int status,
		     unary_render render);
/* The same with path's text put into the answer as "path". */
void transfer_upload_path(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq,
			  unary_render render, const char *path);
/* A stat among the answers becomes headers. The body is cut when the edge fails. */
void transfer_download(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq, const char *type);
