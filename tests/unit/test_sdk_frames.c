/* frames: the same calls however the bytes are cut; what is no frame stream is refused. */
#include "unit.h"
#include <stdlib.h>
#include "sdk/frames.h"

struct seen {
	char out[256], err[256], events[512];
	size_t n_out, n_err, n_events;
	int stop_at_event; /* -ECANCELED at that event */
};

static int on_data(enum frame_type t, const void *p, size_t n, void *user)
{
	struct seen *s = user;
	char *to = t == FRAME_STDERR ? s->err : s->out;
	size_t *at = t == FRAME_STDERR ? &s->n_err : &s->n_out;
	memcpy(to + *at, p, n);
	*at += n;
	return 0;
}

static int on_event(const char *json, size_t n, void *user)
{
	struct seen *s = user;
	memcpy(s->events + s->n_events, json, n);
	s->n_events += n;
	s->events[s->n_events++] = ';';
	return s->stop_at_event && !--s->stop_at_event ? -ECANCELED : 0;
}

static struct frames parser(struct seen *s)
{
	*s = (struct seen){ 0 };
	return (struct frames){ .on_data = on_data, .on_event = on_event, .user = s };
}

static size_t frame(uint8_t *to, uint8_t type, const char *payload)
{
	size_t n = strlen(payload);
	to[0] = type;
	to[1] = to[2] = 0;
	to[3] = (uint8_t)(n >> 8);
	to[4] = (uint8_t)n;
	memcpy(to + 5, payload, n);
	return 5 + n;
}

static size_t sample(uint8_t *to)
{
	size_t n = frame(to, FRAME_EVENT, "{\"event\":\"started\"}");
	n += frame(to + n, FRAME_STDOUT, "hello ");
	n += frame(to + n, FRAME_KEEPALIVE, "");
	n += frame(to + n, FRAME_STDERR, "oops");
	n += frame(to + n, FRAME_STDOUT, "");
	n += frame(to + n, FRAME_STDOUT, "world");
	return n + frame(to + n, FRAME_EVENT, "{\"event\":\"exit\"}");
}

static void test_frames_in_odd_chunks(void **state)
{
	uint8_t bytes[512];
	size_t n = sample(bytes);
	for (size_t chunk = 1; chunk <= n; chunk++) {
		struct seen s;
		struct frames f = parser(&s);
		for (size_t at = 0; at < n; at += chunk)
			assert_int_equal(sdk_frames_feed(&f, bytes + at, n - at < chunk ? n - at : chunk), 0);
		assert_int_equal(s.n_out, 11);
		assert_memory_equal(s.out, "hello world", 11);
		assert_int_equal(s.n_err, 4);
		assert_string_equal(s.events, "{\"event\":\"started\"};{\"event\":\"exit\"};");
		assert_false(sdk_frames_partial(&f));
		sdk_frames_reset(&f);
	}
}

static void test_frames_partial_is_known(void **state)
{
	uint8_t bytes[512];
	size_t n = sample(bytes), ends = 0;
	for (size_t cut = 1; cut < n; cut++) {
		struct seen s;
		struct frames f = parser(&s);
		assert_int_equal(sdk_frames_feed(&f, bytes, cut), 0);
		ends += !sdk_frames_partial(&f);
		sdk_frames_reset(&f);
		assert_false(sdk_frames_partial(&f));
	}
	assert_int_equal(ends, 6); /* the inner borders of seven frames */
}

static void refused(const uint8_t header[5])
{
	struct seen s;
	struct frames f = parser(&s);
	assert_int_equal(sdk_frames_feed(&f, header, 5), -EPROTO);
	sdk_frames_reset(&f);
}

static void test_frames_refuse_what_is_none(void **state)
{
	refused((const uint8_t[5]){ 0, 0, 0, 0, 1 });
	refused((const uint8_t[5]){ 5, 0, 0, 0, 1 });
	refused((const uint8_t[5]){ 'H', 'T', 'T', 'P', '/' });
	refused((const uint8_t[5]){ FRAME_KEEPALIVE, 0, 0, 0, 1 });
	refused((const uint8_t[5]){ FRAME_EVENT, 0, 0, 0, 0 });
	refused((const uint8_t[5]){ FRAME_EVENT, 0, 0x40, 0, 1 });  /* FRAME_EVENT_MAX + 1 */
	refused((const uint8_t[5]){ FRAME_STDOUT, 0x10, 0, 0, 1 }); /* FRAME_DATA_MAX + 1 */
}

static void test_frames_event_at_the_limit(void **state)
{
	struct seen s;
	struct frames f = parser(&s);
	assert_int_equal(sdk_frames_feed(&f, (const uint8_t[5]){ FRAME_EVENT, 0, 0x40, 0, 0 }, 5), 0);
	assert_true(sdk_frames_partial(&f));
	sdk_frames_reset(&f);
}

static void test_frames_callback_stops(void **state)
{
	uint8_t bytes[512];
	size_t n = sample(bytes);
	struct seen s;
	struct frames f = parser(&s);
	s.stop_at_event = 1;
	assert_int_equal(sdk_frames_feed(&f, bytes, n), -ECANCELED);
	assert_int_equal(s.n_out, 0);
	sdk_frames_reset(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_in_odd_chunks),     cmocka_unit_test(test_frames_partial_is_known),
		cmocka_unit_test(test_frames_refuse_what_is_none), cmocka_unit_test(test_frames_event_at_the_limit),
		cmocka_unit_test(test_frames_callback_stops),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
