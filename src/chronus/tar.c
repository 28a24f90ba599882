/* tar.c: see tar.h. */
#include "chronus/tar.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"

#define PAX_MAX (64 * 1024) /* bytes of one pax header; real ones have a few hundred */

struct ustar { /* POSIX.1-1988, all text */
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct ustar) == TAR_BLOCK, "a header is one block");

/* ---- Writing ---- */

/* Octal digits and a NUL; false if it does not fit. */
static bool put_octal(char *to, size_t n, uint64_t v)
{
	for (size_t i = n - 1; i-- > 0; v >>= 3)
		to[i] = (char)('0' + (v & 7));
	to[n - 1] = 0;
	return v == 0;
}

static void put_checksum(struct ustar *h)
{
	unsigned sum = 0;
	memset(h->checksum, ' ', sizeof(h->checksum));
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += ((const uint8_t *)h)[i];
	put_octal(h->checksum, 7, sum);
}

static void put_name(char *to, size_t cap, const char *name)
{
	memcpy(to, name, MIN(strlen(name), cap));
}

static void begin(struct ustar *h, char type)
{
	memset(h, 0, sizeof(*h));
	h->type = type;
	memcpy(h->magic, "ustar", 6);
	memcpy(h->version, "00", 2);
}

/* "LENGTH key=value\n", where LENGTH counts itself. */
static size_t pax_record(char *out, const char *key, const char *value)
{
	size_t body = strlen(key) + strlen(value) + 3, digits = 1, len;
	do
		len = body + digits;
	while (snprintf(NULL, 0, "%zu", len) > (int)digits && digits++);
	return (size_t)sprintf(out, "%zu %s=%s\n", len, key, value);
}

static size_t pax_records(const struct tar_entry *e, char *out)
{
	char number[24];
	size_t n = 0;
	if (strlen(e->name) > sizeof(((struct ustar *)0)->name))
		n += pax_record(out + n, "path", e->name);
	if (strlen(e->link) > sizeof(((struct ustar *)0)->link))
		n += pax_record(out + n, "linkpath", e->link);
	if (e->size >> 33) {
		snprintf(number, sizeof(number), "%llu", (unsigned long long)e->size);
		n += pax_record(out + n, "size", number);
	}
	return n;
}

size_t tar_write_header(const struct tar_entry *e, uint8_t *out)
{
	struct ustar h;
	size_t at = 0, n = pax_records(e, (char *)out + TAR_BLOCK);
	if (n) {
		begin(&h, 'x');
		put_name(h.name, sizeof(h.name), "pax");
		put_octal(h.mode, sizeof(h.mode), 0644);
		put_octal(h.uid, sizeof(h.uid), 0);
		put_octal(h.gid, sizeof(h.gid), 0);
		put_octal(h.size, sizeof(h.size), n);
		put_octal(h.mtime, sizeof(h.mtime), 0);
		put_checksum(&h);
		memcpy(out, &h, TAR_BLOCK);
		memset(out + TAR_BLOCK + n, 0, tar_padding(n));
		at = TAR_BLOCK + n + tar_padding(n);
	}
	begin(&h, (char)e->type);
	put_name(h.name, sizeof(h.name), e->name);
	put_name(h.link, sizeof(h.link), e->link);
	put_octal(h.mode, sizeof(h.mode), e->mode & 07777);
	put_octal(h.uid, sizeof(h.uid), e->uid);
	put_octal(h.gid, sizeof(h.gid), e->gid);
	put_octal(h.size, sizeof(h.size), e->size); /* the record overrides what does not fit */
	put_octal(h.mtime, sizeof(h.mtime), e->mtime);
	if (e->type == TAR_CHAR || e->type == TAR_BLOCK_DEVICE) {
		put_octal(h.major, sizeof(h.major), e->major);
		put_octal(h.minor, sizeof(h.minor), e->minor);
	}
	put_checksum(&h);
	memcpy(out + at, &h, TAR_BLOCK);
	return at + TAR_BLOCK;
}

/* ---- Reading ---- */

/* n bytes whole. 1; 0 when the input ended before the first; -EBADMSG within. */
static int read_whole(struct tar_reader *r, void *p, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t k = r->read(r->user, (char *)p + done, n - done);
		if (k < 0)
			return (int)k;
		if (!k)
			return done ? -EBADMSG : 0;
		done += (size_t)k;
	}
	return 1;
}

static int skip(struct tar_reader *r, uint64_t n)
{
	char waste[4096];
	while (n) {
		ssize_t k = r->read(r->user, waste, (size_t)MIN(n, (uint64_t)sizeof(waste)));
		if (k <= 0)
			return k < 0 ? (int)k : -EBADMSG;
		n -= (uint64_t)k;
	}
	return 0;
}

/* Octal text between blanks, or base-256 when the first bit is set. */
static int get_number(const char *p, size_t n, uint64_t *ret)
{
	uint64_t v = 0;
	if ((uint8_t)p[0] & 0x80) {
		if ((uint8_t)p[0] & 0x40)
			return -EBADMSG; /* negative */
		v = (uint8_t)p[0] & 0x3f;
		for (size_t i = 1; i < n; i++) {
			if (v >> 55)
				return -EBADMSG;
			v = v << 8 | (uint8_t)p[i];
		}
		*ret = v;
		return 0;
	}
	size_t i = 0;
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
		if (v >> 60)
			return -EBADMSG;
		v = v << 3 | (uint64_t)(p[i] - '0');
	}
	if (i < n && p[i] != ' ' && p[i] != 0)
		return -EBADMSG;
	*ret = v;
	return 0;
}

static bool checksum_right(const struct ustar *h)
{
	uint64_t want;
	unsigned u = 0;
	int s = 0; /* some old programs summed signed bytes */
	if (get_number(h->checksum, sizeof(h->checksum), &want) < 0)
		return false;
	for (size_t i = 0; i < TAR_BLOCK; i++) {
		bool own = i >= offsetof(struct ustar, checksum) && i < offsetof(struct ustar, type);
		uint8_t b = own ? ' ' : ((const uint8_t *)h)[i];
		u += b;
		s += (int8_t)b;
	}
	return want == u || (s >= 0 && want == (uint64_t)s);
}

/* What pax records and GNU long names say about the entry that follows. */
struct overrides {
	bool name, link, size, mtime;
	uint64_t size_value, mtime_value;
};

static int set_text(char *to, const char *p, size_t n)
{
	if (n > TAR_NAME_MAX)
		return -ENAMETOOLONG;
	if (n && memchr(p, 0, n))
		return -EBADMSG;
	memcpy(to, p, n);
	to[n] = 0;
	return 0;
}

static int get_decimal(const char *p, size_t n, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;
	for (; i < n && p[i] >= '0' && p[i] <= '9'; i++) {
		if (v > UINT64_MAX / 20)
			return -EBADMSG;
		v = v * 10 + (uint64_t)(p[i] - '0');
	}
	if (!i || (i < n && p[i] != '.'))
		return -EBADMSG;
	*ret = v; /* a fraction of a second is dropped */
	return 0;
}

static int pax_apply(const char *key, size_t kn, const char *v, size_t vn, struct tar_entry *e, struct overrides *o)
{
	if (kn == 4 && !memcmp(key, "path", 4)) {
		o->name = true;
		return set_text(e->name, v, vn);
	}
	if (kn == 8 && !memcmp(key, "linkpath", 8)) {
		o->link = true;
		return set_text(e->link, v, vn);
	}
	if (kn == 4 && !memcmp(key, "size", 4)) {
		o->size = true;
		return get_decimal(v, vn, &o->size_value);
	}
	if (kn == 5 && !memcmp(key, "mtime", 5)) {
		if (vn && v[0] == '-') { /* before 1970: shown as 1970 */
			o->mtime = true;
			return 0;
		}
		o->mtime = true;
		return get_decimal(v, vn, &o->mtime_value);
	}
	if (kn >= 11 && !memcmp(key, "GNU.sparse.", 11))
		return -ENOTSUP;
	return 0;
}

static int pax_parse(const char *p, size_t n, struct tar_entry *e, struct overrides *o)
{
	while (n) {
		uint64_t len;
		const char *space = memchr(p, ' ', MIN(n, (size_t)20));
		if (!space || get_decimal(p, (size_t)(space - p), &len) < 0 || len > n || len < (size_t)(space - p) + 3 ||
		    p[len - 1] != '\n')
			return -EBADMSG;
		const char *key = space + 1, *end = p + len - 1;
		const char *eq = memchr(key, '=', (size_t)(end - key));
		if (!eq)
			return -EBADMSG;
		int r = pax_apply(key, (size_t)(eq - key), eq + 1, (size_t)(end - eq - 1), e, o);
		if (r < 0)
			return r;
		p += len;
		n -= len;
	}
	return 0;
}

/* The body of a header that speaks of the next one ('x', 'g', 'L', 'K'). */
static int read_extra(struct tar_reader *r, char type, uint64_t size, struct tar_entry *e, struct overrides *o)
{
	if (size > PAX_MAX)
		return type == 'L' || type == 'K' ? -ENAMETOOLONG : -EBADMSG;
	_cleanup_free_ char *body = malloc(size + 1);
	if (!body)
		return -ENOMEM;
	int k = size ? read_whole(r, body, size) : 1;
	if (k <= 0)
		return k < 0 ? k : -EBADMSG;
	k = skip(r, tar_padding(size));
	if (k < 0 || type == 'g') /* global records: none that we know matters */
		return k;
	if (type == 'x')
		return pax_parse(body, size, e, o);
	body[size] = 0;
	if (type == 'L')
		o->name = true;
	else
		o->link = true;
	return set_text(type == 'L' ? e->name : e->link, body, strlen(body));
}

static int fill_names(const struct ustar *h, struct tar_entry *e, const struct overrides *o)
{
	size_t n = strnlen(h->name, sizeof(h->name));
	/* The prefix exists in ustar only; GNU keeps other things there. */
	size_t pn = memcmp(h->magic, "ustar", 6) ? 0 : strnlen(h->prefix, sizeof(h->prefix));
	if (!o->name)
		snprintf(e->name, sizeof(e->name), "%.*s%s%.*s", (int)pn, h->prefix, pn ? "/" : "", (int)n, h->name);
	if (!o->link)
		snprintf(e->link, sizeof(e->link), "%.*s", (int)strnlen(h->link, sizeof(h->link)), h->link);
	return *e->name ? 0 : -EBADMSG;
}

static int fill_entry(struct tar_reader *r, const struct ustar *h, struct tar_entry *e, const struct overrides *o)
{
	uint64_t mode = 0, uid = 0, gid = 0, major = 0, minor = 0;
	if (get_number(h->mode, sizeof(h->mode), &mode) < 0 || get_number(h->size, sizeof(h->size), &e->size) < 0)
		return -EBADMSG;
	/* Ids and times that make no sense do not matter. */
	get_number(h->uid, sizeof(h->uid), &uid);
	get_number(h->gid, sizeof(h->gid), &gid);
	get_number(h->major, sizeof(h->major), &major);
	get_number(h->minor, sizeof(h->minor), &minor);
	if (get_number(h->mtime, sizeof(h->mtime), &e->mtime) < 0)
		e->mtime = 0;
	e->mode = (uint32_t)mode & 07777;
	e->uid = (uint32_t)uid;
	e->gid = (uint32_t)gid;
	e->major = (uint32_t)major;
	e->minor = (uint32_t)minor;
	if (o->size)
		e->size = o->size_value;
	if (o->mtime)
		e->mtime = o->mtime_value;
	if (e->size > (uint64_t)INT64_MAX)
		return -EBADMSG;
	int err = fill_names(h, e, o);
	if (err < 0)
		return err;
	size_t n = strlen(e->name);
	e->type = h->type == 0 || h->type == '7' ? TAR_FILE : (enum tar_type)h->type;
	if (e->type == TAR_FILE && e->name[n - 1] == '/') /* how the oldest tars say directory */
		e->type = TAR_DIRECTORY;
	if (e->type < TAR_FILE || e->type > TAR_FIFO)
		return -ENOTSUP;
	/* Only files have data; some tars give a hard link its file's size. */
	if (e->type != TAR_FILE)
		e->size = 0;
	r->data_left = e->size;
	r->padding = tar_padding(e->size);
	return 1;
}

int tar_next(struct tar_reader *r, struct tar_entry *ret)
{
	static const struct ustar zero;
	struct overrides o = { 0 };
	struct ustar h;
	int k = skip(r, r->data_left);
	if (k == 0)
		k = skip(r, r->padding);
	r->data_left = r->padding = 0;
	if (k < 0 || r->ended)
		return k;
	*ret = (struct tar_entry){ 0 };
	for (;;) {
		k = read_whole(r, &h, sizeof(h));
		if (k <= 0) /* an archive without end mark is whole if it ends between entries */
			return k < 0 ? k : o.name || o.link || o.size ? -EBADMSG : 0;
		if (!memcmp(&h, &zero, sizeof(h))) {
			r->ended = 1;
			return 0;
		}
		uint64_t size;
		if (!checksum_right(&h) || get_number(h.size, sizeof(h.size), &size) < 0)
			return -EBADMSG;
		if (h.type != 'x' && h.type != 'g' && h.type != 'L' && h.type != 'K')
			return fill_entry(r, &h, ret, &o);
		k = read_extra(r, h.type, size, ret, &o);
		if (k < 0)
			return k;
	}
}

ssize_t tar_read_data(struct tar_reader *r, void *p, size_t n)
{
	if (!r->data_left)
		return 0;
	ssize_t k = r->read(r->user, p, (size_t)MIN((uint64_t)n, r->data_left));
	if (k == 0)
		return -EBADMSG;
	if (k > 0)
		r->data_left -= (uint64_t)k;
	return k;
}
