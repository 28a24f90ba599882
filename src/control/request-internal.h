/* request-internal.h: what server.c and request.c share of a request. */
#pragma once
#include <microhttpd.h>
#include "control/limits.h"
#include "control/request.h"
#include "control/router.h"
#include "control/server.h"

struct client_list {
	struct client *first, *last;
};

/* One connection. On `waiting` while it owes us a request, on `lingering` after
 * an early answer; both are ordered by time. */
struct client {
	struct server *server;
	struct client *prev, *next;
	struct client_list *list;
	uint64_t until_ms;
	int fd;     /* MHD's */
	bool hup;   /* the peer closed at least its half */
	struct request *request;
};

enum answer_state {
	ANSWER_NONE,
	ANSWER_WHOLE,  /* status, headers and the body in `out` are complete */
	ANSWER_STREAM, /* `out` is refilled until out_end or out_abort */
};

#define REQUEST_HEADERS_MAX 6

struct request {
	struct control *ctl;
	struct client *client;
	struct MHD_Connection *conn;
	struct request *prev, *next; /* server's list */
	struct route_match match;
	const char *method;
	char id[LIMIT_REQUEST_ID_MAX + 1];
	char project[NAME_MAX_LEN + 1];
	uint64_t start_ns;

	/* upload */
	bool has_body, body_done, discard;
	bool expects_continue;
	int64_t content_length; /* -1: chunked */
	struct buf body;        /* JSON text */
	json_t *json;
	uint64_t discarded;

	const struct request_ops *ops;
	void *state;

	/* answer */
	enum answer_state answer;
	int status;
	const char *content_type;
	struct {
		char name[32], value[256];
	} headers[REQUEST_HEADERS_MAX];
	size_t n_headers;
	struct buf out;
	bool out_end, out_abort;
	bool early_sent; /* written past MHD, before the upload was complete */

	bool in_first_call; /* MHD's first call: a whole answer can still go the normal way */
	bool suspended, gone;
};

/* server.c */
void request_resume(struct request *r);
void request_linger(struct request *r); /* early answer is out: bounded discarding from here */
/* request.c */
/* Headers are there. crowded: more connections than the limit. */
void request_start(struct request *r, const char *url, bool crowded);
size_t request_upload(struct request *r, const uint8_t *p, size_t n);
void request_upload_end(struct request *r);
enum MHD_Result request_queue(struct request *r); /* the answer, to MHD */
void request_free(struct request *r);
