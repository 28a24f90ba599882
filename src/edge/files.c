/* files.c: see files.h.
 *
 * F1 held_up: bytes of the caller that chronus's stream did not take; held_down:
 *    the other way. Credit of a byte is given back when it has left here.
 * F2 WRITE: chronus writes a temporary file. When the caller has half-closed and
 *    all is passed on, the hash is complete: if it is the expected one FileCommit
 *    is sent, else the stream is reset, which makes chronus forget the bytes.
 * F3 Entries of a listing are credited when the answers before them are out, so a
 *    directory of any size passes through in one window.
 * F4 A relay whose connection broke fails; a repeat is the caller's decision. One
 *    that never had a stream waits for the channel.
 */
#include "edge/files.h"
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include "edge/sandbox.h"

#define SHA256_SIZE 32

struct relay {
	struct peer peer;
	struct link link; /* sb->files */
	struct sandbox *sb;
	struct call *call;
	Dsec__Edge__FileCall__Op op;
	EVP_MD_CTX *hash; /* READ, WRITE */
	uint64_t bytes;   /* hashed */
	uint8_t expect[SHA256_SIZE];
	bool has_expect, upload_closed, up_done;
	struct buf held_up, held_down;
	size_t owed;      /* credit of reports that are queued for the caller, F3 */
	Dsec__Chronus__FileReport *last; /* done or failed, behind held_down */
};

static bool uploads(const struct relay *f)
{
	return f->op == DSEC__EDGE__FILE_CALL__OP__WRITE || f->op == DSEC__EDGE__FILE_CALL__OP__TAR_IN;
}

static bool hashes(const struct relay *f)
{
	return f->op == DSEC__EDGE__FILE_CALL__OP__WRITE || f->op == DSEC__EDGE__FILE_CALL__OP__READ;
}

/* --- upload --- */

static int digest(struct relay *f, uint8_t ret[SHA256_SIZE])
{
	unsigned n = SHA256_SIZE;
	EVP_MD_CTX *copy = EVP_MD_CTX_new();
	int ok = copy && EVP_MD_CTX_copy_ex(copy, f->hash) && EVP_DigestFinal_ex(copy, ret, &n);
	EVP_MD_CTX_free(copy);
	return ok ? 0 : -ENOMEM;
}

static int commit(struct relay *f)
{
	Dsec__Chronus__FileCommit m = DSEC__CHRONUS__FILE_COMMIT__INIT;
	Dsec__Chronus__FileCommand cmd = DSEC__CHRONUS__FILE_COMMAND__INIT;
	m.bytes = f->bytes;
	cmd.what_case = DSEC__CHRONUS__FILE_COMMAND__WHAT_COMMIT;
	cmd.commit = &m;
	return peer_send(&f->peer, &cmd.base);
}

/* All of the caller's bytes are with chronus. F2 */
static void end_upload(struct relay *f)
{
	uint8_t sum[SHA256_SIZE];
	if (f->op == DSEC__EDGE__FILE_CALL__OP__WRITE) {
		if (digest(f, sum) < 0) {
			call_fail(f->call, DSEC_E_INTERNAL, "SHA-256 failed");
			return;
		}
		if (f->has_expect && memcmp(sum, f->expect, SHA256_SIZE)) {
			call_fail(f->call, DSEC_E_HASH_MISMATCH,
				  "the %llu bytes received do not have the SHA-256 that was named; the old file is untouched",
				  (unsigned long long)f->bytes);
			return;
		}
		/* The commit is the end of it; the stream is closed with the answer. */
		f->up_done = commit(f) != -EAGAIN; /* else WRITABLE tries again */
		return;
	}
	f->up_done = true;
	peer_half_close(&f->peer);
}

static void pump_up(struct relay *f)
{
	if (!f->peer.stream || f->up_done || !uploads(f))
		return;
	while (buf_len(&f->held_up)) {
		long k = peer_send_data(&f->peer, 0, buf_ptr(&f->held_up), buf_len(&f->held_up));
		if (k <= 0)
			return;
		buf_consume(&f->held_up, (size_t)k);
		call_consume(f->call, (size_t)k);
	}
	buf_reset(&f->held_up);
	if (f->upload_closed)
		end_upload(f);
}

static void call_data(struct call *c, uint8_t channel, const void *p, size_t n)
{
	struct relay *f = c->data;
	if (!uploads(f) || channel) {
		call_consume(c, n);
		return;
	}
	if (hashes(f))
		EVP_DigestUpdate(f->hash, p, n);
	f->bytes += n;
	/* Straight through if nothing waits before it. */
	long k = buf_len(&f->held_up) || !f->peer.stream ? 0 : peer_send_data(&f->peer, 0, p, n);
	size_t sent = k > 0 ? (size_t)k : 0;
	call_consume(c, sent);
	if (sent < n && buf_append(&f->held_up, (const uint8_t *)p + sent, n - sent) < 0)
		call_fail(c, DSEC_E_CAPACITY, "out of memory for the upload");
}

static void call_half_closed(struct call *c)
{
	struct relay *f = c->data;
	f->upload_closed = true;
	pump_up(f);
}

/* --- download --- */

static void set_entry(const Dsec__Chronus__FileEntry *in, Dsec__Edge__FileEntry *ret)
{
	dsec__edge__file_entry__init(ret);
	ret->name = in->name;
	ret->mode = in->mode;
	ret->size = in->size;
	ret->mtime_ns = in->mtime_ns;
	ret->uid = in->uid;
	ret->gid = in->gid;
	ret->inode = in->inode;
	ret->nlink = in->nlink;
	ret->link = in->link;
}

static void reply_stat(struct call *c, const Dsec__Chronus__FileEntry *in)
{
	Dsec__Edge__FileEntry m;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	set_entry(in, &m);
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_STAT;
	reply.stat = &m;
	call_reply(c, &reply);
}

static void reply_entries(struct call *c, const Dsec__Chronus__FileEntries *in)
{
	Dsec__Edge__FileEntries m = DSEC__EDGE__FILE_ENTRIES__INIT;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	_cleanup_free_ Dsec__Edge__FileEntry *entries = calloc(in->n_entries + 1, sizeof(*entries));
	_cleanup_free_ Dsec__Edge__FileEntry **ptrs = calloc(in->n_entries + 1, sizeof(*ptrs));
	if (!entries || !ptrs) {
		call_fail(c, DSEC_E_CAPACITY, "out of memory for a directory listing");
		return;
	}
	for (size_t i = 0; i < in->n_entries; i++) {
		set_entry(in->entries[i], &entries[i]);
		ptrs[i] = &entries[i];
	}
	m.n_entries = in->n_entries;
	m.entries = ptrs;
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_ENTRIES;
	reply.entries = &m;
	call_reply(c, &reply);
}

/* The last report, once everything before it is out. */
static void answer(struct relay *f)
{
	Dsec__Chronus__FileReport *last = f->last;
	struct call *c = f->call;
	uint8_t sum[SHA256_SIZE];
	if (last->what_case == DSEC__CHRONUS__FILE_REPORT__WHAT_FAILED) {
		call_fail(c, dsec_code_from_name(last->failed->code), "%s", last->failed->message);
		return;
	}
	Dsec__Edge__FileDone m = DSEC__EDGE__FILE_DONE__INIT;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	m.bytes = last->done->bytes;
	m.entries = last->done->entries;
	if (hashes(f) && !digest(f, sum))
		m.sha256 = (ProtobufCBinaryData){ SHA256_SIZE, sum };
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_FILE_DONE;
	reply.file_done = &m;
	call_reply(c, &reply);
	call_end(c);
}

static void pump_down(struct relay *f)
{
	while (buf_len(&f->held_down)) {
		long k = call_send_data(f->call, 1, buf_ptr(&f->held_down), buf_len(&f->held_down));
		if (k <= 0)
			return;
		buf_consume(&f->held_down, (size_t)k);
		peer_consume(&f->peer, (size_t)k);
	}
	buf_reset(&f->held_down);
	if (f->last)
		answer(f);
}

static void down_data(struct relay *f, const void *p, size_t n)
{
	if (hashes(f))
		EVP_DigestUpdate(f->hash, p, n);
	long k = buf_len(&f->held_down) ? 0 : call_send_data(f->call, 1, p, n);
	size_t sent = k > 0 ? (size_t)k : 0;
	peer_consume(&f->peer, sent);
	if (sent < n && buf_append(&f->held_down, (const uint8_t *)p + sent, n - sent) < 0)
		call_fail(f->call, DSEC_E_CAPACITY, "out of memory for the download");
}

static void on_report(struct relay *f, const void *p, size_t n)
{
	Dsec__Chronus__FileReport *m = dsec__chronus__file_report__unpack(NULL, n, p);
	if (!m) {
		call_fail(f->call, DSEC_E_INTERNAL, "the sandbox's runtime sent a report that cannot be decoded");
		return;
	}
	switch (m->what_case) {
	case DSEC__CHRONUS__FILE_REPORT__WHAT_STAT:
		reply_stat(f->call, m->stat);
		break;
	case DSEC__CHRONUS__FILE_REPORT__WHAT_ENTRIES:
		reply_entries(f->call, m->entries);
		break;
	case DSEC__CHRONUS__FILE_REPORT__WHAT_DONE:
	case DSEC__CHRONUS__FILE_REPORT__WHAT_FAILED:
		if (f->last)
			break;
		f->last = m;
		pump_down(f);
		return;
	default:
		break;
	}
	dsec__chronus__file_report__free_unpacked(m, NULL);
}

static void peer_event(struct peer *p, const struct aether_event *ev)
{
	struct relay *f = container_of(p, struct relay, peer);
	switch (ev->type) {
	case AETHER_EV_MSG:
		if (call_sendable(f->call))
			peer_consume(p, ev->n);
		else
			f->owed += ev->n;
		on_report(f, ev->payload, ev->n);
		break;
	case AETHER_EV_DATA:
		down_data(f, ev->payload, ev->n);
		break;
	case AETHER_EV_WRITABLE:
		pump_up(f);
		break;
	case AETHER_EV_CLOSE:
	case AETHER_EV_RESET:
		if (!f->last)
			call_fail(f->call, DSEC_E_INTERNAL, "the sandbox's runtime ended the file operation without a result");
		break;
	default:
		break;
	}
}

/* --- life of a relay --- */

static void peer_lost(struct peer *p)
{
	struct relay *f = container_of(p, struct relay, peer);
	if (f->last)
		return; /* all is here; the caller just reads slowly */
	call_fail(f->call, DSEC_E_EDGE_UNAVAILABLE, "the connection to the sandbox broke during the file operation");
}

static void call_writable(struct call *c)
{
	struct relay *f = c->data;
	peer_consume(&f->peer, f->owed);
	f->owed = 0;
	pump_down(f);
}

static void release(struct call *c)
{
	struct relay *f = c->data;
	if (f->last)
		peer_finish(&f->peer);
	peer_reset(&f->peer);
	list_drop(&f->link);
	EVP_MD_CTX_free(f->hash);
	buf_done(&f->held_up);
	buf_done(&f->held_down);
	if (f->last)
		dsec__chronus__file_report__free_unpacked(f->last, NULL);
	free(f);
}

static const struct call_ops relay_ops = { call_data, call_half_closed, call_writable, release };

static void start(struct relay *f)
{
	const Dsec__Edge__FileCall *req = f->call->request->file;
	Dsec__Chronus__FileRequest m = DSEC__CHRONUS__FILE_REQUEST__INIT;
	Dsec__Chronus__ChronusOpen open = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
	char *user = f->sb->spec->user;
	m.op = (Dsec__Chronus__FileRequest__Op)req->op; /* the two enums are one list */
	m.path = req->path;
	m.to = req->to;
	m.user = req->user.len ? req->user : (ProtobufCBinaryData){ strlen(user), (uint8_t *)user };
	m.offset = req->offset;
	m.length = req->length;
	m.mode = req->mode;
	m.parents = req->parents;
	m.recursive = req->recursive;
	m.follow = req->follow;
	m.overwrite = req->overwrite;
	open.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_FILE;
	open.file = &m;
	int r = peer_open(&f->peer, f->sb->channel, &open);
	if (r < 0)
		call_fail(f->call, DSEC_E_OVERLOADED, "the file operation could not be sent to the sandbox: %s",
			  strerror(-r));
	else
		pump_up(f);
}

static size_t running(const struct sandbox *sb)
{
	size_t n = 0;
	for (const struct link *l = sb->files.next; l != &sb->files; l = l->next)
		n++;
	return n;
}

void files_call(struct call *c, struct sandbox *sb, const Dsec__Edge__FileCall *req)
{
	if (!req->path.len || memchr(req->path.data, 0, req->path.len)) {
		call_fail(c, DSEC_E_BAD_FIELD, "path: a file's path, without NUL bytes");
		return;
	}
	if (req->expect_sha256.len && req->expect_sha256.len != SHA256_SIZE) {
		call_fail(c, DSEC_E_BAD_FIELD, "expect_sha256: %d bytes", SHA256_SIZE);
		return;
	}
	if (running(sb) >= FILES_RUNNING_MAX) {
		call_fail(c, DSEC_E_OVERLOADED, "%d file operations run in this sandbox", FILES_RUNNING_MAX);
		return;
	}
	struct relay *f = calloc(1, sizeof(*f));
	if (!f || !(f->hash = EVP_MD_CTX_new()) || !EVP_DigestInit_ex(f->hash, EVP_sha256(), NULL)) {
		if (f)
			EVP_MD_CTX_free(f->hash);
		free(f);
		call_fail(c, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	f->sb = sb;
	f->call = c;
	f->op = req->op;
	f->upload_closed = c->upload_ended;
	f->held_up = f->held_down = BUF_INIT(0); /* bounded by the stream windows */
	if ((f->has_expect = req->expect_sha256.len > 0))
		memcpy(f->expect, req->expect_sha256.data, SHA256_SIZE);
	peer_init(&f->peer, peer_event, peer_lost);
	list_init(&f->link);
	list_append(&sb->files, &f->link);
	c->data = f;
	c->ops = &relay_ops;
	if (channel_use(sb->channel))
		start(f);
}

void files_resume_all(struct sandbox *sb)
{
	list_for_each(f, &sb->files, struct relay, link)
		if (!f->peer.stream && !f->last)
			start(f);
}

void files_abandon_all(struct sandbox *sb)
{
	list_for_each(f, &sb->files, struct relay, link)
		if (!f->last)
			call_fail(f->call, DSEC_E_SANDBOX_STOPPED, "the sandbox ended during the file operation: %s",
				  sb->message ? sb->message : stop_reason_name(sb->reason));
}
