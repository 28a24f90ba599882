/* files.c: files and archives of a sandbox. Paths are bytes as the client sent
 * them; who may touch what is decided inside the sandbox, by the kernel. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/calls.h"
#include "control/checks.h"
#include "control/limits.h"
#include "control/render.h"
#include "control/resources.h"
#include "control/transfer.h"

#define OP(name) DSEC__EDGE__FILE_CALL__OP__##name

static void set_bytes(ProtobufCBinaryData *to, const char *text)
{
	to->data = (uint8_t *)text;
	to->len = text ? strlen(text) : 0;
}

static bool path_good(struct request *r, const char *name, const char *path)
{
	if (!path || !*path) {
		request_failf(r, DSEC_E_BAD_FIELD, "%s is missing", name);
		return false;
	}
	if (strlen(path) > LIMIT_PATH_BYTES_MAX) {
		request_failf(r, DSEC_E_NAME_TOO_LONG, "%s is %zu bytes long; at most %d", name, strlen(path),
			      LIMIT_PATH_BYTES_MAX);
		return false;
	}
	return true;
}

static bool user_good(struct request *r, const char *user)
{
	if (user && strlen(user) > LIMIT_USER_LENGTH_MAX) {
		request_failf(r, DSEC_E_NAME_TOO_LONG, "user is %zu bytes long; at most %d", strlen(user),
			      LIMIT_USER_LENGTH_MAX);
		return false;
	}
	return true;
}

/* Fills what every call has. ret_edge -1: answered. */
static int prepare(struct request *r, Dsec__Edge__EdgeRequest *rq, Dsec__Edge__FileCall *f,
		   Dsec__Edge__FileCall__Op op)
{
	edge_request_init(rq, r);
	dsec__edge__file_call__init(f);
	rq->what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_FILE;
	rq->file = f;
	f->op = op;
	f->sandbox_id = (char *)request_var(r, 0);
	if (!user_good(r, request_query(r, "user")))
		return -1;
	set_bytes(&f->user, request_query(r, "user"));
	return edge_of_sandbox(r, f->sandbox_id);
}

static int prepare_path(struct request *r, Dsec__Edge__EdgeRequest *rq, Dsec__Edge__FileCall *f,
			Dsec__Edge__FileCall__Op op)
{
	const char *path = request_query(r, "path");
	int edge = path_good(r, "path", path) ? prepare(r, rq, f, op) : -1;
	set_bytes(&f->path, path);
	return edge;
}

/* ---- answers ---- */

static json_t *render_stat(const Dsec__Edge__EdgeReply *reply)
{
	return reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_STAT ? render_file(reply->stat) : NULL;
}

static json_t *render_written(const Dsec__Edge__EdgeReply *reply)
{
	char hex[65] = "";
	if (reply->what_case != DSEC__EDGE__EDGE_REPLY__WHAT_FILE_DONE)
		return NULL;
	const Dsec__Edge__FileDone *d = reply->file_done;
	for (size_t i = 0; i < d->sha256.len && i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", d->sha256.data[i]);
	return json_pack("{s:s, s:I, s:s}", "path", "", "size", (json_int_t)d->bytes, "sha256", hex);
}

static json_t *render_unpacked(const Dsec__Edge__EdgeReply *reply)
{
	if (reply->what_case != DSEC__EDGE__EDGE_REPLY__WHAT_FILE_DONE)
		return NULL;
	return json_pack("{s:I, s:I}", "entries", (json_int_t)reply->file_done->entries, "bytes",
			 (json_int_t)reply->file_done->bytes);
}

/* ---- one question, one answer ---- */

void handle_file_stat(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__FileCall f;
	bool follow = false;
	if (!request_query_bool(r, "follow", &follow) || prepare_path(r, &rq, &f, OP(STAT)) < 0)
		return;
	f.follow = follow;
	unary_call(r, f.sandbox_id, &rq, &policy_read, 200, render_stat);
}

void handle_file_remove(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__FileCall f;
	bool recursive = false;
	if (!request_query_bool(r, "recursive", &recursive) || prepare_path(r, &rq, &f, OP(REMOVE)) < 0)
		return;
	f.recursive = recursive;
	unary_call(r, f.sandbox_id, &rq, &policy_once, 200, unary_nothing);
}

void handle_file_mkdir(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__FileCall f;
	struct json_in in;
	struct dsec_error e;
	const char *path = NULL, *mode = "0755";
	bool parents = true;
	uint32_t bits = 0;
	json_in_begin(&in, request_body(r), "", &e);
	json_in_string(&in, "path", LIMIT_PATH_BYTES_MAX, &path);
	json_in_string(&in, "mode", NAME_MAX_LEN, &mode);
	json_in_bool(&in, "parents", &parents);
	if (!mode_parse(mode, &bits))
		json_in_fault(&in, DSEC_E_BAD_FIELD, "mode must be octal text like \"0755\"");
	if (json_in_end(&in) < 0) {
		request_fail(r, &e, 0);
		return;
	}
	if (!path_good(r, "path", path) || prepare(r, &rq, &f, OP(MKDIR)) < 0)
		return;
	set_bytes(&f.path, path);
	f.mode = bits;
	f.parents = parents;
	unary_call(r, f.sandbox_id, &rq, &policy_once, 200, unary_nothing);
}

void handle_file_move(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__FileCall f;
	struct json_in in;
	struct dsec_error e;
	const char *from = NULL, *to = NULL;
	bool overwrite = false;
	json_in_begin(&in, request_body(r), "", &e);
	json_in_string(&in, "from", LIMIT_PATH_BYTES_MAX, &from);
	json_in_string(&in, "to", LIMIT_PATH_BYTES_MAX, &to);
	json_in_bool(&in, "overwrite", &overwrite);
	if (json_in_end(&in) < 0) {
		request_fail(r, &e, 0);
		return;
	}
	if (!path_good(r, "from", from) || !path_good(r, "to", to) || prepare(r, &rq, &f, OP(MOVE)) < 0)
		return;
	set_bytes(&f.path, from);
	set_bytes(&f.to, to);
	f.overwrite = overwrite;
	unary_call(r, f.sandbox_id, &rq, &policy_once, 200, unary_nothing);
}

/* ---- streams ---- */

void handle_file_read(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__FileCall f;
	uint64_t offset = 0, length = 0;
	if (!request_query_uint(r, "offset", INT64_MAX, &offset) ||
	    !request_query_uint(r, "length", INT64_MAX, &length))
		return;
	int edge = prepare_path(r, &rq, &f, OP(READ));
	if (edge < 0)
		return;
	f.offset = offset;
	f.length = length;
	transfer_download(r, (size_t)edge, &rq, "application/octet-stream");
}

static bool read_sha256(struct request *r, uint8_t ret[32], Dsec__Edge__FileCall *f)
{
	const char *hex = request_query(r, "sha256");
	if (!hex)
		return true;
	bool good = strlen(hex) == 64;
	for (int i = 0; i < 64 && good; i++) {
		int c = tolower((unsigned char)hex[i]);
		int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
		good = v >= 0;
		ret[i / 2] = (uint8_t)(i % 2 ? ret[i / 2] | v : v << 4);
	}
	if (!good) {
		request_failf(r, DSEC_E_BAD_FIELD, "sha256 must be 64 hexadecimal digits");
		return false;
	}
	f->expect_sha256.data = ret;
	f->expect_sha256.len = 32;
	return true;
}

void handle_file_write(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__FileCall f;
	const char *mode = request_query(r, "mode");
	bool parents = false;
	uint32_t bits = 0644;
	uint8_t sha[32];
	if (!request_query_bool(r, "parents", &parents))
		return;
	if (mode && !mode_parse(mode, &bits)) {
		request_failf(r, DSEC_E_BAD_FIELD, "mode must be octal like 0644");
		return;
	}
	int edge = prepare_path(r, &rq, &f, OP(WRITE));
	if (edge < 0 || !read_sha256(r, sha, &f))
		return;
	f.mode = bits;
	f.parents = parents;
	transfer_upload_path(r, (size_t)edge, &rq, render_written, request_query(r, "path"));
}

void handle_archive_get(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__FileCall f;
	int edge = prepare_path(r, &rq, &f, OP(TAR_OUT));
	if (edge >= 0)
		transfer_download(r, (size_t)edge, &rq, "application/x-tar");
}

void handle_archive_put(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__FileCall f;
	int edge = prepare_path(r, &rq, &f, OP(TAR_IN));
	if (edge < 0)
		return;
	f.parents = true;
	transfer_upload(r, (size_t)edge, &rq, 200, render_unpacked);
}
