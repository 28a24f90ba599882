/* fuzz_aether.c: the aether core against arbitrary bytes in arbitrary chunks.
 *
 * LLVMFuzzerTestOneInput for libFuzzer; compiled with FUZZ_REPLAY it is a plain
 * program that replays files or directories, or (-g SEED COUNT) generates inputs
 * itself: deterministic, so a failure is repeated by its seed. The unit test
 * test_aether_fuzz links it without a main and replays the corpus.
 *
 * Input: byte 0 chooses the end and its limits, byte 1 the chunk pattern, the
 * rest is what the peer sends. The owner answers events in a fixed way, so that
 * sending, credit, close and reset are driven too. Checked: the outcome does not
 * depend on the chunks, output keeps its bound, windows are never exceeded, and
 * counts agree with the table of streams.
 */
#include "fuzz_aether.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "aether/aether-internal.h"
#include "base/cleanup.h"

#define EXPECT(cond)                                                          \
	do {                                                                  \
		if (!(cond)) {                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                              \
		}                                                             \
	} while (0)

#define LIMITS_ACTIVE 16 /* of input byte 0: the owner acts */

struct outcome {
	int err;
	uint32_t digest; /* of the events in order */
	unsigned events;
};

static void mix(struct outcome *o, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		o->digest = (o->digest ^ ((const uint8_t *)p)[i]) * 0x01000193u;
}

static void check_invariants(const struct aether *a)
{
	size_t it = 0;
	const struct stream *s;
	while ((s = hashmap_next(&a->streams, &it))) {
		EXPECT(s->send_window <= a->peer_window);
		EXPECT((uint64_t)s->recv_window + s->consumed <= a->config.window);
	}
	EXPECT(a->n_peers <= a->config.max_streams);
	EXPECT(a->n_peers + a->n_ours <= hashmap_len(&a->streams));
	EXPECT(a->parsed <= buf_len(&a->in));
}

/* Does with an event what its first payload byte says. */
static void act(struct aether *a, const struct aether_event *ev)
{
	if (ev->type == AETHER_EV_DATA || ev->type == AETHER_EV_MSG)
		aether_consume(a, ev->stream, ev->n);
	switch (ev->n ? ev->payload[0] : 0) {
	case 'e':
		aether_send_data(a, ev->stream, ev->channel, ev->payload, ev->n);
		break;
	case 'm':
		aether_send_msg(a, ev->stream, ev->payload, ev->n);
		break;
	case 'c':
		aether_close(a, ev->stream);
		break;
	case 'r':
		aether_reset(a, ev->stream, AETHER_RESET_CANCELLED);
		break;
	case 'g':
		aether_goaway(a, 1);
		break;
	}
}

static void drain(struct aether *a, bool active, struct outcome *o)
{
	struct aether_event ev;
	while (aether_next(a, &ev) > 0) {
		if (ev.type == AETHER_EV_WRITABLE)
			continue;
		o->events++;
		mix(o, &ev.type, sizeof(ev.type));
		mix(o, &ev.stream, sizeof(ev.stream));
		mix(o, &ev.code, sizeof(ev.code));
		mix(o, &ev.channel, 1);
		mix(o, ev.payload, ev.n);
		EXPECT(ev.n <= AETHER_PAYLOAD_MAX);
		if (active)
			act(a, &ev);
		check_invariants(a);
	}
}

static struct outcome run(const uint8_t *p, size_t n, uint8_t limits, const uint8_t *chunks, size_t n_chunks)
{
	struct aether_config c = {
		.client = limits & 1,
		.window = limits & 2 ? AETHER_WINDOW_MIN : 0,
		.max_streams = limits & 4 ? 3 : 0,
		.output_max = limits & 8 ? AETHER_OUTPUT_MIN : 0,
	};
	struct aether *a;
	struct outcome o = { .digest = 0x811c9dc5u };
	uint32_t mine;
	EXPECT(aether_new(&c, &a) == 0);
	EXPECT(aether_open(a, "mine", 4, &mine) == 0);
	for (size_t at = 0, i = 0; at < n && !o.err; i++) {
		size_t k = MIN(n - at, (size_t)(chunks[i % n_chunks] ? chunks[i % n_chunks] : 70000));
		uint8_t *copy = malloc(k); /* exact, for ASan */
		EXPECT(copy);
		memcpy(copy, p + at, k);
		o.err = aether_recv(a, copy, k);
		free(copy);
		check_invariants(a);
		drain(a, limits & LIMITS_ACTIVE, &o);
		at += k;
	}
	EXPECT(!o.err || aether_error(a) == o.err);
	aether_free(a);
	return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t whole[] = { 0 }, bytes[] = { 1 }, odd[] = { 3, 1, 7, 12, 2, 255, 13 };
	if (size < 2)
		return 0;
	const uint8_t pattern[] = { data[1], 1, (uint8_t)(data[1] >> 3) };
	struct outcome ref = run(data + 2, size - 2, data[0], whole, 1), o;
	const struct {
		const uint8_t *p;
		size_t n;
	} ways[] = { { bytes, 1 }, { odd, sizeof(odd) }, { pattern, sizeof(pattern) } };
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		o = run(data + 2, size - 2, data[0], ways[i].p, ways[i].n);
		EXPECT(data[0] & LIMITS_ACTIVE ||
		       (o.err == ref.err && o.events == ref.events && o.digest == ref.digest));
	}
	return 0;
}

/* --- generated inputs: mostly well-formed, so that they reach deep --- */

static uint64_t rng_state;
static uint32_t rng(uint32_t below)
{
	rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rng_state >> 33) % below;
}

size_t fuzz_aether_generate(uint64_t seed, uint8_t *p, size_t max)
{
	static const uint8_t greeting[WIRE_GREETING_SIZE] = "DSaE\0\x14\0\1\0\1\0\0\0\1\0\0\0\0\0";
	rng_state = seed * 2654435761u + 1;
	size_t n = 0;
	p[n++] = (uint8_t)rng(32);
	p[n++] = (uint8_t)rng(256);
	memcpy(p + n, greeting, sizeof(greeting));
	n += sizeof(greeting);
	p[n - 1] = 8;
	static const uint8_t mostly[] = { WIRE_OPEN, WIRE_OPEN, WIRE_MSG, WIRE_MSG, WIRE_MSG, WIRE_DATA,
					  WIRE_DATA, WIRE_DATA, WIRE_DATA, WIRE_PING, WIRE_PONG };
	static const uint8_t ends[] = { WIRE_CLOSE, WIRE_CLOSE, WIRE_RESET, WIRE_CREDIT, WIRE_GOAWAY };
	uint8_t closed[512] = { 0 };
	uint32_t first = p[0] & 1 ? 2 : 1, opened = 0; /* streams that this peer opens */
	while (n + WIRE_HEADER_SIZE + 300 < max && opened < sizeof(closed) && rng(60)) {
		uint8_t type = rng(10) ? mostly[rng(sizeof(mostly))] : ends[rng(sizeof(ends))];
		uint32_t len = rng(4) ? rng(20) : rng(300);
		if (!opened && type < WIRE_PING)
			type = WIRE_OPEN;
		uint32_t i = type == WIRE_OPEN ? opened++ : opened ? rng(opened) : 0;
		if (closed[i] && rng(30) && type < WIRE_PING && type != WIRE_OPEN)
			continue; /* now and then it does go on after its close */
		closed[i] |= type == WIRE_CLOSE || type == WIRE_RESET;
		uint32_t stream = type >= WIRE_PING ? 0 : first + 2 * i;
		if (type == WIRE_CLOSE)
			len = 0;
		if (type == WIRE_DATA && !len)
			len = 1;
		if (type >= WIRE_RESET)
			len = WIRE_CONTROL_SIZE;
		p[n] = type;
		p[n + 1] = type == WIRE_DATA ? (uint8_t)rng(4) : 0;
		put16(p + n + 2, 0);
		put32(p + n + 4, stream);
		put32(p + n + 8, len);
		n += WIRE_HEADER_SIZE;
		for (uint32_t k = 0; k < len; k++)
			p[n++] = (uint8_t) "eeemmcrx\0"[rng(9)];
	}
	for (uint32_t flips = rng(3) ? 0 : rng(4); flips; flips--)
		p[rng((uint32_t)n)] ^= (uint8_t)(1 << rng(8));
	return n;
}

int fuzz_aether_replay(const char *path)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode)) {
		_cleanup_closedir_ DIR *d = opendir(path);
		struct dirent *e;
		int count = 0;
		while (d && (e = readdir(d))) {
			char name[4096];
			if (e->d_name[0] == '.')
				continue;
			snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
			int r = fuzz_aether_replay(name);
			if (r < 0)
				return r;
			count += r;
		}
		return d ? count : -errno;
	}
	_cleanup_fclose_ FILE *f = fopen(path, "rb");
	static uint8_t data[1 << 20];
	if (!f)
		return -errno;
	LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof(data), f));
	return 1;
}

#ifdef FUZZ_REPLAY
int main(int argc, char **argv)
{
	static uint8_t data[1 << 16];
	if (argc == 4 && !strcmp(argv[1], "-g")) {
		uint64_t seed = strtoull(argv[2], NULL, 0), count = strtoull(argv[3], NULL, 0);
		for (uint64_t i = seed; i < seed + count; i++)
			LLVMFuzzerTestOneInput(data, fuzz_aether_generate(i, data, sizeof(data)));
		printf("%llu generated inputs\n", (unsigned long long)count);
		return 0;
	}
	for (int i = 1; i < argc; i++) {
		int r = fuzz_aether_replay(argv[i]);
		if (r < 0) {
			fprintf(stderr, "%s: %s\n", argv[i], strerror(-r));
			return 1;
		}
		printf("%s: %d inputs\n", argv[i], r);
	}
	return 0;
}
#endif
