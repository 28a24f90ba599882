/* wire.c: see wire.h. Fields are numbered as in proto/chronus.proto; the unit
 * test holds both together by running every message through protobuf-c. */
#include "chronus/wire.h"
#include <errno.h>
#include <string.h>

enum { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

/* ---- The wire itself ---- */

static int get_varint(struct pb_in *in, uint64_t *ret)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 70; shift += 7) {
		if (in->p == in->end)
			return -EBADMSG;
		uint8_t b = *in->p++;
		if (shift < 64)
			v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			*ret = v;
			return 0;
		}
	}
	return -EBADMSG; /* longer than any 64-bit number */
}

int pb_next(struct pb_in *in, struct pb_field *ret)
{
	if (in->p == in->end)
		return 0;
	uint64_t key, n;
	if (get_varint(in, &key) < 0 || key >> 32)
		return -EBADMSG;
	*ret = (struct pb_field){ .number = (uint32_t)(key >> 3), .type = key & 7 };
	if (!ret->number)
		return -EBADMSG;
	switch (ret->type) {
	case PB_VARINT:
		return get_varint(in, &ret->value) < 0 ? -EBADMSG : 1;
	case PB_BYTES:
		if (get_varint(in, &n) < 0)
			return -EBADMSG;
		break;
	case PB_FIXED64:
		n = 8;
		break;
	case PB_FIXED32:
		n = 4;
		break;
	default: /* groups are not used by proto3 */
		return -EBADMSG;
	}
	if (n > (size_t)(in->end - in->p))
		return -EBADMSG;
	ret->bytes = (struct slice){ in->p, (size_t)n };
	in->p += n;
	return 1;
}

static void put(struct pb_out *o, const void *p, size_t n)
{
	if (o->full || n > o->cap - o->n) {
		o->full = true;
		return;
	}
	if (n)
		memcpy(o->p + o->n, p, n);
	o->n += n;
}

static void put_varint(struct pb_out *o, uint64_t v)
{
	uint8_t b[10];
	size_t n = 0;
	do {
		b[n] = (uint8_t)(v & 0x7f);
		v >>= 7;
		b[n] |= v ? 0x80 : 0;
		n++;
	} while (v);
	put(o, b, n);
}

void pb_uint(struct pb_out *o, uint32_t field, uint64_t v)
{
	if (!v)
		return;
	put_varint(o, field << 3 | PB_VARINT);
	put_varint(o, v);
}

static void put_bytes(struct pb_out *o, uint32_t field, const void *p, size_t n)
{
	put_varint(o, field << 3 | PB_BYTES);
	put_varint(o, n);
	put(o, p, n);
}

void pb_bytes(struct pb_out *o, uint32_t field, const void *p, size_t n)
{
	if (n)
		put_bytes(o, field, p, n);
}

void pb_str(struct pb_out *o, uint32_t field, const char *s)
{
	pb_bytes(o, field, s, strlen(s));
}

/* The length is not known yet: it gets a fixed three bytes (a padded varint is
 * legal protobuf), enough for 2 MiB, and a payload is 64 KiB at most. */
#define LENGTH_BYTES 3

size_t pb_open(struct pb_out *o, uint32_t field)
{
	static const uint8_t room[LENGTH_BYTES];
	put_varint(o, field << 3 | PB_BYTES);
	put(o, room, sizeof(room));
	return o->n;
}

void pb_close(struct pb_out *o, size_t mark)
{
	if (o->full)
		return;
	size_t n = o->n - mark;
	uint8_t *at = o->p + mark - LENGTH_BYTES;
	at[0] = (uint8_t)(n & 0x7f) | 0x80;
	at[1] = (uint8_t)(n >> 7 & 0x7f) | 0x80;
	at[2] = (uint8_t)(n >> 14 & 0x7f);
}

/* ---- Decoders ---- */

/* A field of the wrong wire type is an error, not something to skip: the two
 * ends would disagree on what was asked. */
static int want_uint(const struct pb_field *f, uint64_t *ret)
{
	if (f->type != PB_VARINT)
		return -EBADMSG;
	*ret = f->value;
	return 0;
}
static int want_u32(const struct pb_field *f, uint32_t *ret)
{
	*ret = (uint32_t)f->value; /* as protobuf does: truncated */
	return f->type == PB_VARINT ? 0 : -EBADMSG;
}
static int want_bool(const struct pb_field *f, bool *ret)
{
	*ret = f->value != 0;
	return f->type == PB_VARINT ? 0 : -EBADMSG;
}
static int want_bytes(const struct pb_field *f, struct slice *ret)
{
	*ret = f->bytes;
	return f->type == PB_BYTES ? 0 : -EBADMSG;
}

static struct pb_in in_of(struct slice s)
{
	return (struct pb_in){ s.p, s.p + s.n };
}

static int decode_env_var(struct slice raw, struct slice *ret_name, struct slice *ret_value)
{
	struct pb_in in = in_of(raw);
	struct pb_field f;
	int r, bad = 0;
	*ret_name = *ret_value = (struct slice){ 0 };
	while ((r = pb_next(&in, &f)) > 0) {
		if (f.number == 1)
			bad |= want_bytes(&f, ret_name);
		else if (f.number == 2)
			bad |= want_bytes(&f, ret_value);
	}
	return r < 0 || bad ? -EBADMSG : 0;
}

static int decode_start(struct slice raw, struct wire_exec_start *s)
{
	struct pb_in in = in_of(raw);
	struct pb_field f;
	int r, bad = 0;
	s->raw = raw;
	while (!bad && (r = pb_next(&in, &f)) > 0) {
		struct slice name, value;
		switch (f.number) {
		case 1: bad = want_bytes(&f, &s->id); break;
		case 2:
			bad = want_bytes(&f, &value);
			s->n_argv++;
			s->string_bytes += f.bytes.n + 1;
			break;
		case 3:
			bad = want_bytes(&f, &value);
			if (!bad)
				bad = decode_env_var(value, &name, &value);
			if (!bad) {
				s->n_env++;
				s->string_bytes += name.n + value.n + 2;
			}
			break;
		case 4: bad = want_bytes(&f, &s->cwd); break;
		case 5: bad = want_bytes(&f, &s->user); break;
		case 6: bad = want_bool(&f, &s->stdin_open); break;
		case 7: bad = want_bool(&f, &s->pty); break;
		case 8: bad = want_u32(&f, &s->rows); break;
		case 9: bad = want_u32(&f, &s->cols); break;
		case 10: bad = want_uint(&f, &s->timeout_ms); break;
		case 11: bad = want_u32(&f, &s->kill_grace_ms); break;
		case 12: bad = want_u32(&f, &s->drain_ms); break;
		case 13: bad = want_bool(&f, &s->no_new_privs); break;
		}
	}
	return bad || r < 0 ? -EBADMSG : 0;
}

static int decode_offsets(struct slice raw, uint32_t first, uint64_t offset[2], struct slice *id)
{
	struct pb_in in = in_of(raw);
	struct pb_field f;
	int r, bad = 0;
	while (!bad && (r = pb_next(&in, &f)) > 0) {
		if (f.number == first || f.number == first + 1)
			bad = want_uint(&f, &offset[f.number - first]);
		else if (id && f.number == 1)
			bad = want_bytes(&f, id);
	}
	return bad || r < 0 ? -EBADMSG : 0;
}

static int decode_file(struct slice raw, struct wire_file *w)
{
	struct pb_in in = in_of(raw);
	struct pb_field f;
	int r, bad = 0;
	while (!bad && (r = pb_next(&in, &f)) > 0) {
		switch (f.number) {
		case 1: bad = want_u32(&f, &w->op); break;
		case 2: bad = want_bytes(&f, &w->path); break;
		case 3: bad = want_bytes(&f, &w->to); break;
		case 4: bad = want_bytes(&f, &w->user); break;
		case 5: bad = want_uint(&f, &w->offset); break;
		case 6: bad = want_uint(&f, &w->length); break;
		case 7: bad = want_u32(&f, &w->mode); break;
		case 8: bad = want_bool(&f, &w->parents); break;
		case 9: bad = want_bool(&f, &w->recursive); break;
		case 10: bad = want_bool(&f, &w->follow); break;
		case 11: bad = want_bool(&f, &w->overwrite); break;
		}
	}
	return bad || r < 0 || w->op >= FILE_OP_COUNT_ ? -EBADMSG : 0;
}

static int decode_hello(struct slice raw, uint32_t *ret_protocol)
{
	struct pb_in in = in_of(raw);
	struct pb_field f;
	int r, bad = 0;
	while (!bad && (r = pb_next(&in, &f)) > 0)
		if (f.number == 1)
			bad = want_u32(&f, ret_protocol);
	return bad || r < 0 ? -EBADMSG : 0;
}

int wire_decode_open(const void *p, size_t n, struct wire_open *ret)
{
	struct pb_in in = { p, (const uint8_t *)p + n };
	struct pb_field f;
	int r, found = 0;
	ret->what = 0;
	while ((r = pb_next(&in, &f)) > 0) {
		struct slice body;
		uint32_t follow;
		if (f.number == WIRE_FOLLOW) {
			if (want_u32(&f, &follow) < 0)
				return -EBADMSG;
			if (!found && follow) /* with the request beside it, the whole is here */
				*ret = (struct wire_open){ .what = WIRE_FOLLOW, .follow_bytes = follow };
			continue;
		}
		if (f.number < WIRE_HELLO || f.number > WIRE_FILE)
			continue;
		if (want_bytes(&f, &body) < 0)
			return -EBADMSG;
		memset(ret, 0, sizeof(*ret)); /* of a oneof the last one counts */
		ret->what = f.number;
		found = 1;
		switch (ret->what) {
		case WIRE_HELLO: r = decode_hello(body, &ret->protocol); break;
		case WIRE_EXEC_START: r = decode_start(body, &ret->start); break;
		case WIRE_EXEC_ATTACH: r = decode_offsets(body, 2, ret->attach.out_offset, &ret->attach.id); break;
		case WIRE_FILE: r = decode_file(body, &ret->file); break;
		case WIRE_FOLLOW: break;
		}
		if (r < 0)
			return r;
	}
	return r < 0 || !ret->what ? -EBADMSG : 0;
}

static char *copy_string(char *at, struct slice s)
{
	if (s.n)
		memcpy(at, s.p, s.n);
	at[s.n] = 0;
	return at + s.n + 1;
}

int wire_exec_strings(const struct wire_exec_start *s, char **argv, char **env, char *bytes)
{
	struct pb_in in = in_of(s->raw);
	struct pb_field f;
	uint32_t a = 0, e = 0;
	while (pb_next(&in, &f) > 0) {
		if (f.number == 2) {
			if (f.bytes.n && memchr(f.bytes.p, 0, f.bytes.n))
				return -EINVAL;
			argv[a++] = bytes;
			bytes = copy_string(bytes, f.bytes);
		} else if (f.number == 3) {
			struct slice name, value;
			decode_env_var(f.bytes, &name, &value);
			if (!name.n || memchr(name.p, 0, name.n) || memchr(name.p, '=', name.n) ||
			    (value.n && memchr(value.p, 0, value.n)))
				return -EINVAL;
			env[e++] = bytes;
			bytes = copy_string(bytes, name);
			bytes[-1] = '=';
			bytes = copy_string(bytes, value);
		}
	}
	argv[a] = env[e] = NULL;
	return 0;
}

static int decode_signal(struct slice raw, struct wire_command *c)
{
	struct pb_in in = in_of(raw);
	struct pb_field f;
	int r, bad = 0;
	while (!bad && (r = pb_next(&in, &f)) > 0) {
		switch (f.number) {
		case 1: bad = want_u32(&f, &c->signal); break;
		case 2: bad = want_bool(&f, &c->whole_tree); break;
		case 3: bad = want_bool(&f, &c->by_user_kill); break;
		}
	}
	return bad || r < 0 ? -EBADMSG : 0;
}

int wire_decode_command(const void *p, size_t n, struct wire_command *ret)
{
	struct pb_in in = { p, (const uint8_t *)p + n };
	struct pb_field f;
	int r, found = 0;
	while ((r = pb_next(&in, &f)) > 0) {
		struct slice body;
		uint64_t size[2] = { 0 };
		if (f.number < WIRE_ACK || f.number > WIRE_FORGET)
			continue;
		if (want_bytes(&f, &body) < 0)
			return -EBADMSG;
		*ret = (struct wire_command){ .what = f.number };
		found = 1;
		if (f.number == WIRE_ACK)
			r = decode_offsets(body, 1, ret->out_offset, NULL);
		else if (f.number == WIRE_SIGNAL)
			r = decode_signal(body, ret);
		else if (f.number == WIRE_RESIZE) {
			r = decode_offsets(body, 1, size, NULL);
			ret->rows = (uint32_t)size[0];
			ret->cols = (uint32_t)size[1];
		}
		if (r < 0)
			return r;
	}
	return r < 0 || !found ? -EBADMSG : 0;
}

int wire_decode_file_command(const void *p, size_t n, uint64_t *ret_commit_bytes)
{
	struct pb_in in = { p, (const uint8_t *)p + n };
	struct pb_field f;
	int r, found = 0;
	while ((r = pb_next(&in, &f)) > 0) {
		struct slice body;
		uint64_t bytes[2] = { 0 };
		if (f.number != 1)
			continue;
		if (want_bytes(&f, &body) < 0 || decode_offsets(body, 1, bytes, NULL) < 0)
			return -EBADMSG;
		*ret_commit_bytes = bytes[0];
		found = 1;
	}
	return r < 0 ? -EBADMSG : found ? 0 : -ENOMSG;
}

int wire_decode_hello_message(const void *p, size_t n, struct wire_disk_usage *ret)
{
	struct pb_in in = { p, (const uint8_t *)p + n };
	struct pb_field f;
	int r, found = 0;
	*ret = (struct wire_disk_usage){ 0 };
	while ((r = pb_next(&in, &f)) > 0) {
		struct slice body;
		if (f.number != 3)
			continue;
		if (want_bytes(&f, &body) < 0)
			return -EBADMSG;
		struct pb_in sub = in_of(body);
		int bad = 0;
		found = 1;
		while (!bad && (r = pb_next(&sub, &f)) > 0) {
			switch (f.number) {
			case 1: bad = want_u32(&f, &ret->token); break;
			case 2: bad = want_uint(&f, &ret->limit_bytes); break;
			case 3: bad = want_uint(&f, &ret->used_bytes); break;
			}
		}
		if (bad || r < 0)
			return -EBADMSG;
	}
	return r < 0 ? -EBADMSG : found ? 0 : -ENOMSG;
}

/* ---- Encoders ---- */

void wire_hello_begin(struct pb_out *o, const char *version, size_t *ret_mark)
{
	*ret_mark = pb_open(o, 1);
	pb_uint(o, 1, 1);
	pb_str(o, 2, version);
}

void wire_hello_exec(struct pb_out *o, const char *id, bool running)
{
	size_t m = pb_open(o, 3);
	pb_str(o, 1, id);
	pb_uint(o, 2, running);
	pb_close(o, m);
}

void wire_disk_usage_request(struct pb_out *o, uint32_t token)
{
	size_t m = pb_open(o, 2);
	pb_uint(o, 1, token);
	pb_close(o, m);
}

void wire_started(struct pb_out *o, const struct wire_started *s)
{
	size_t m = pb_open(o, 1);
	pb_uint(o, 1, s->pid);
	pb_uint(o, 2, s->stdin_offset);
	pb_uint(o, 3, s->stdin_closed);
	pb_uint(o, 4, s->started_at_ms);
	pb_uint(o, 5, s->out_offset[0]);
	pb_uint(o, 6, s->out_offset[1]);
	pb_close(o, m);
}

void wire_failed(struct pb_out *o, const char *code, const char *message)
{
	size_t m = pb_open(o, 2);
	pb_str(o, 1, code);
	pb_str(o, 2, message);
	pb_close(o, m);
}

void wire_exited(struct pb_out *o, const struct wire_exited *x)
{
	size_t m = pb_open(o, 3);
	pb_uint(o, 1, x->signaled);
	pb_uint(o, 2, x->exit_code);
	pb_uint(o, 3, x->signal);
	pb_uint(o, 4, x->timed_out);
	pb_uint(o, 5, x->user_killed);
	pb_uint(o, 6, x->background_alive);
	pb_uint(o, 7, x->cpu_usec);
	pb_uint(o, 8, x->max_rss_bytes);
	pb_uint(o, 9, x->wall_ms);
	pb_uint(o, 10, x->out_total[0]);
	pb_uint(o, 11, x->out_total[1]);
	pb_uint(o, 12, x->drain_cut);
	pb_close(o, m);
}

void wire_stdin_state(struct pb_out *o, uint64_t offset, bool closed)
{
	size_t m = pb_open(o, 4);
	pb_uint(o, 1, offset);
	pb_uint(o, 2, closed);
	pb_close(o, m);
}

static void entry(struct pb_out *o, uint32_t field, const struct wire_entry *e)
{
	size_t m = pb_open(o, field);
	pb_bytes(o, 1, e->name.p, e->name.n);
	pb_uint(o, 2, e->mode);
	pb_uint(o, 3, e->size);
	pb_uint(o, 4, e->mtime_ns);
	pb_uint(o, 5, e->uid);
	pb_uint(o, 6, e->gid);
	pb_uint(o, 7, e->inode);
	pb_uint(o, 8, e->nlink);
	pb_bytes(o, 9, e->link.p, e->link.n);
	pb_close(o, m);
}

void wire_file_stat(struct pb_out *o, const struct wire_entry *e)
{
	entry(o, 1, e);
}

void wire_file_entry(struct pb_out *o, const struct wire_entry *e)
{
	entry(o, 1, e);
}

void wire_file_done(struct pb_out *o, uint64_t bytes, uint64_t entries)
{
	size_t m = pb_open(o, 3);
	pb_uint(o, 1, bytes);
	pb_uint(o, 2, entries);
	pb_close(o, m);
}

void wire_file_failed(struct pb_out *o, const char *code, const char *message, uint32_t err)
{
	size_t m = pb_open(o, 4);
	pb_str(o, 1, code);
	pb_str(o, 2, message);
	pb_uint(o, 3, err);
	pb_close(o, m);
}
