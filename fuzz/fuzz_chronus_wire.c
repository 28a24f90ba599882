/* fuzz_chronus_wire.c: everything chronus parses: messages of the edge, tar
 * archives and passwd files of anybody.
 *
 * LLVMFuzzerTestOneInput for libFuzzer; with FUZZ_REPLAY a plain program that
 * replays files (arguments) or generates inputs (-g SEED COUNT), deterministic.
 * The unit test test_chronus_fuzz includes it. Input: byte 0 chooses the parser,
 * the rest is its text. Checked: no access outside of the input (it is copied to
 * an allocation of its exact size, for ASan), slices lie inside of it, strings
 * fit their buffers, ids and sizes are within their limits. */
#include "fuzz_chronus_wire.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "chronus/chronus-internal.h"
#include "chronus/tar.h"

#define EXPECT(cond)                                                          \
	do {                                                                  \
		if (!(cond)) {                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                              \
		}                                                             \
	} while (0)

enum { PARSE_OPEN, PARSE_COMMAND, PARSE_HELLO, PARSE_FILE_COMMAND, PARSE_TAR, PARSE_USER, PARSERS };

static void inside(struct slice s, const uint8_t *p, size_t n)
{
	EXPECT(!s.n || (s.p >= p && s.n <= n && s.p <= p + n - s.n));
}

static void check_strings(const struct wire_exec_start *w)
{
	_cleanup_free_ char **pointers = malloc(((size_t)w->n_argv + w->n_env + 2) * sizeof(char *));
	_cleanup_free_ char *bytes = malloc(w->string_bytes + 1);
	char **env = pointers + w->n_argv + 1;
	EXPECT(pointers && bytes);
	if (wire_exec_strings(w, pointers, env, bytes) < 0)
		return;
	size_t total = 0;
	for (uint32_t i = 0; i < w->n_argv; i++)
		total += strlen(pointers[i]) + 1;
	for (uint32_t i = 0; i < w->n_env; i++) {
		EXPECT(strchr(env[i], '=') > env[i]);
		total += strlen(env[i]) + 1;
	}
	EXPECT(total == w->string_bytes);
	EXPECT(!pointers[w->n_argv] && !env[w->n_env]);
}

static void parse_open(const uint8_t *p, size_t n)
{
	struct wire_open o;
	if (wire_decode_open(p, n, &o) < 0)
		return;
	switch (o.what) {
	case WIRE_EXEC_START:
		inside(o.start.id, p, n);
		inside(o.start.cwd, p, n);
		inside(o.start.user, p, n);
		check_strings(&o.start);
		break;
	case WIRE_EXEC_ATTACH:
		inside(o.attach.id, p, n);
		break;
	case WIRE_FILE:
		EXPECT(o.file.op < FILE_OP_COUNT_);
		inside(o.file.path, p, n);
		inside(o.file.to, p, n);
		inside(o.file.user, p, n);
		break;
	case WIRE_HELLO:
		break;
	case WIRE_FOLLOW:
		EXPECT(o.follow_bytes > 0);
		break;
	default:
		EXPECT(!"a kind that does not exist");
	}
}

struct memory {
	const uint8_t *p;
	size_t n, step;
};

static ssize_t read_memory(void *user, void *p, size_t n)
{
	struct memory *m = user;
	size_t k = MIN(MIN(n, m->n), m->step);
	if (k)
		memcpy(p, m->p, k);
	m->p += k;
	m->n -= k;
	return (ssize_t)k;
}

/* The result of a whole archive; the same whatever the size of the reads. */
static int parse_tar(const uint8_t *p, size_t n, size_t step, size_t *ret_entries)
{
	static struct tar_entry e;
	struct memory m = { p, n, step };
	struct tar_reader r = { .read = read_memory, .user = &m };
	char data[700];
	int k;
	*ret_entries = 0;
	while ((k = tar_next(&r, &e)) > 0) {
		EXPECT(*e.name && strnlen(e.name, sizeof(e.name)) < sizeof(e.name));
		EXPECT(strnlen(e.link, sizeof(e.link)) < sizeof(e.link));
		EXPECT(e.type >= TAR_FILE && e.type <= TAR_FIFO && e.mode <= 07777 && e.size <= INT64_MAX);
		if (++*ret_entries % 2) { /* the other half is skipped by tar_next */
			ssize_t got;
			uint64_t total = 0;
			while ((got = tar_read_data(&r, data, sizeof(data))) > 0)
				total += (uint64_t)got;
			EXPECT(got < 0 || total == e.size);
		}
	}
	return k;
}

static void parse_user(const uint8_t *p, size_t n)
{
	/* SPEC \0 PASSWD \0 GROUP */
	_cleanup_free_ char *text = malloc(n + 3);
	struct sandbox_user u;
	struct dsec_error e;
	EXPECT(text);
	memcpy(text, p, n);
	memset(text + n, 0, 3);
	const char *passwd = text + strlen(text) + 1, *group = passwd + (passwd < text + n ? strlen(passwd) + 1 : 0);
	if (group > text + n)
		group = text + n;
	if (passwd > text + n)
		passwd = text + n;
	if (user_parse(text, passwd, group, &u, &e) < 0) {
		EXPECT(e.code == DSEC_E_BAD_USER);
		return;
	}
	EXPECT(u.uid <= SANDBOX_ID_LAST && u.gid <= SANDBOX_ID_LAST && u.n_groups >= 1 && u.n_groups <= ARRAY_SIZE(u.groups));
	for (size_t i = 0; i < u.n_groups; i++)
		EXPECT(u.groups[i] <= SANDBOX_ID_LAST);
	EXPECT(strnlen(u.name, sizeof(u.name)) < sizeof(u.name) && strnlen(u.home, sizeof(u.home)) < sizeof(u.home));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_command c;
	struct wire_disk_usage u;
	uint64_t bytes;
	size_t entries[2];
	if (!size)
		return 0;
	size_t n = size - 1;
	_cleanup_free_ uint8_t *p = malloc(n ? n : 1);
	EXPECT(p);
	memcpy(p, data + 1, n);
	switch (data[0] % PARSERS) {
	case PARSE_OPEN:
		parse_open(p, n);
		break;
	case PARSE_COMMAND:
		if (wire_decode_command(p, n, &c) == 0)
			EXPECT(c.what >= WIRE_ACK && c.what <= WIRE_FORGET);
		break;
	case PARSE_HELLO:
		wire_decode_hello_message(p, n, &u);
		break;
	case PARSE_FILE_COMMAND:
		wire_decode_file_command(p, n, &bytes);
		break;
	case PARSE_TAR:
		EXPECT(parse_tar(p, n, SIZE_MAX, &entries[0]) == parse_tar(p, n, 1 + data[0] / PARSERS, &entries[1]));
		EXPECT(entries[0] == entries[1]);
		break;
	case PARSE_USER:
		parse_user(p, n);
		break;
	}
	return 0;
}

/* ---- Generated inputs ---- */

static uint64_t next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void random_message(struct pb_out *o, uint64_t *s, int depth)
{
	uint8_t junk[40];
	for (uint64_t i = next(s) % 8; i; i--) {
		uint32_t f = (uint32_t)(next(s) % 16 + 1);
		switch (next(s) % (depth < 3 ? 4 : 2)) {
		case 0:
			pb_uint(o, f, next(s) >> next(s) % 64);
			break;
		case 1:
			for (size_t k = 0; k < sizeof(junk); k++)
				junk[k] = (uint8_t)(next(s) % 97 + (k % 7 ? 32 : 0));
			pb_bytes(o, f, junk, next(s) % sizeof(junk));
			break;
		default: {
			size_t m = pb_open(o, depth == 0 ? f % 5 + 1 : f);
			random_message(o, s, depth + 1);
			pb_close(o, m);
		}
		}
	}
}

static size_t random_tar(uint64_t *s, uint8_t *p, size_t max)
{
	static struct tar_entry e;
	size_t n = 0;
	for (uint64_t i = next(s) % 4 + 1; i && n + TAR_HEADER_MAX + 2048 < max; i--) {
		e = (struct tar_entry){ .type = TAR_FILE + (enum tar_type)(next(s) % 7), .mode = (uint32_t)next(s) & 07777,
					.mtime = next(s) % (1ull << 40) };
		memset(e.name, 'a' + (int)(next(s) % 20), next(s) % 3 ? next(s) % 30 + 1 : next(s) % 600 + 1);
		memset(e.link, '.', next(s) % 2 ? next(s) % 300 : 0);
		e.size = e.type == TAR_FILE ? next(s) % 1500 : 0;
		n += tar_write_header(&e, p + n);
		memset(p + n, 'x', e.size + tar_padding(e.size));
		n += e.size + tar_padding(e.size);
	}
	if (next(s) % 2) {
		memset(p + n, 0, 1024);
		n += 1024;
	}
	return n;
}

static size_t random_users(uint64_t *s, uint8_t *p, size_t max)
{
	static const char *const words[] = { "root", "agent", ":", ":", ":", "0", "1000", "65535", "65536", ",", "\n", "\n", "x", "/home/agent" };
	size_t n = 0;
	for (int part = 0; part < 3; part++) {
		for (uint64_t i = next(s) % (part ? 60 : 4); i && n + 20 < max; i--) {
			const char *w = words[next(s) % ARRAY_SIZE(words)];
			memcpy(p + n, w, strlen(w));
			n += strlen(w);
		}
		p[n++] = 0;
	}
	return n;
}

size_t fuzz_chronus_generate(uint64_t seed, uint8_t *p, size_t max)
{
	uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;
	struct pb_out o = { .p = p + 1, .cap = max - 1 };
	next(&s);
	p[0] = (uint8_t)next(&s);
	switch (p[0] % PARSERS) {
	case PARSE_TAR:
		o.n = random_tar(&s, o.p, o.cap);
		break;
	case PARSE_USER:
		o.n = random_users(&s, o.p, o.cap);
		break;
	default:
		random_message(&o, &s, 0);
	}
	for (uint64_t i = next(&s) % 4; i && o.n; i--) /* a quarter stays whole */
		p[1 + next(&s) % o.n] ^= (uint8_t)(1 << next(&s) % 8);
	return 1 + o.n;
}

#ifdef FUZZ_REPLAY
int main(int argc, char **argv)
{
	static uint8_t data[1 << 16];
	if (argc == 4 && !strcmp(argv[1], "-g")) {
		uint64_t seed = strtoull(argv[2], NULL, 0), count = strtoull(argv[3], NULL, 0);
		for (uint64_t i = seed; i < seed + count; i++)
			LLVMFuzzerTestOneInput(data, fuzz_chronus_generate(i, data, sizeof(data)));
		printf("%llu generated inputs\n", (unsigned long long)count);
		return 0;
	}
	for (int i = 1; i < argc; i++) {
		char *text;
		size_t n;
		int r = read_file_at(-100 /* AT_FDCWD */, argv[i], sizeof(data), &text, &n);
		if (r < 0) {
			fprintf(stderr, "%s: %s\n", argv[i], strerror(-r));
			return 1;
		}
		LLVMFuzzerTestOneInput((uint8_t *)text, n);
		free(text);
	}
	return 0;
}
#endif
