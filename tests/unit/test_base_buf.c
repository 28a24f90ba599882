/* buf and ring: growth, bounds at the limit, wrap, failing allocations. */
#include "unit.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "fault.h"

static void test_buf_appends_and_consumes(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	uint8_t next_in = 0, next_out = 0;
	for (int round = 0; round < 2000; round++) {
		uint8_t chunk[97];
		size_t n = (size_t)(round * 31) % sizeof(chunk);
		for (size_t i = 0; i < n; i++)
			chunk[i] = next_in++;
		assert_int_equal(buf_append(&b, chunk, n), 0);
		size_t take = MIN(buf_len(&b), (size_t)(round * 17) % 101);
		for (size_t i = 0; i < take; i++)
			assert_int_equal(buf_ptr(&b)[i], next_out++);
		buf_consume(&b, take);
	}
	assert_true(b.cap < 1 << 20); /* sliding, not growing for ever */
}

static void test_buf_bound(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(300);
	static const char data[301];
	uint8_t *at = (uint8_t *)1;
	assert_int_equal(buf_append(&b, data, 301), -ENOBUFS);
	assert_int_equal(buf_len(&b), 0);
	assert_int_equal(buf_append(&b, data, 300), 0);
	assert_int_equal(buf_append(&b, data, 0), 0);
	assert_int_equal(buf_append(&b, data, 1), -ENOBUFS);
	assert_int_equal(buf_reserve(&b, SIZE_MAX, &at), -ENOBUFS); /* no overflow */
	assert_ptr_equal(at, (uint8_t *)1);
	buf_consume(&b, 1);
	assert_int_equal(buf_append(&b, data, 1), 0); /* the bound is on what is held */
	buf_done(&b);
	assert_int_equal(b.max, 300);
	assert_int_equal(buf_append(&b, data, 300), 0);
}

static void test_buf_text(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(6);
	assert_string_equal(buf_cstr(&b), "");
	assert_int_equal(buf_printf(&b, "%d-%s", 12, "ab"), 0);
	assert_string_equal(buf_cstr(&b), "12-ab");
	assert_int_equal(buf_len(&b), 5);
	assert_int_equal(buf_printf(&b, "%s", "zz"), -ENOBUFS);
	assert_string_equal(buf_cstr(&b), "12-ab");
	assert_int_equal(b.max, 6); /* cstr's terminator is beside the bound, not part of it */
	buf_reset(&b);
	assert_string_equal(buf_cstr(&b), "");
}

static void test_buf_without_memory(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	assert_int_equal(buf_append(&b, "keep", 4), 0);
	static const char big[5000];
	fault_alloc_arm(0);
	assert_int_equal(buf_append(&b, big, sizeof(big)), -ENOMEM);
	assert_true(fault_alloc_disarm());
	assert_int_equal(buf_len(&b), 4);
	assert_memory_equal(buf_ptr(&b), "keep", 4);
}

static void test_ring_wraps(void **state)
{
	struct ring r;
	ring_init(&r, 16);
	uint8_t in = 0, out = 0;
	for (int round = 0; round < 500; round++) {
		uint8_t chunk[20];
		size_t n = (size_t)(round * 7) % sizeof(chunk), room = ring_room(&r);
		for (size_t i = 0; i < n; i++)
			chunk[i] = (uint8_t)(in + i);
		size_t took = ring_write(&r, chunk, n);
		assert_int_equal(took, MIN(n, room));
		in += (uint8_t)took;
		uint64_t at = r.start, until = r.start + (uint64_t)((round * 5) % 17);
		until = MIN(until, r.end);
		while (at < until) {
			const uint8_t *p;
			size_t k = MIN(ring_peek(&r, at, &p), (size_t)(until - at));
			assert_true(k > 0);
			for (size_t i = 0; i < k; i++)
				assert_int_equal(p[i], out++);
			at += k;
		}
		ring_release(&r, until);
		assert_int_equal(r.start, until);
	}
	ring_release(&r, r.end + 100); /* clamped */
	assert_int_equal(ring_len(&r), 0);
	ring_release(&r, 0); /* never backwards */
	assert_int_equal(r.start, r.end);
	ring_done(&r);
}

static void test_ring_is_lazy_and_survives_no_memory(void **state)
{
	struct ring r;
	uint8_t *p;
	size_t n;
	ring_init(&r, 4096);
	assert_null(r.data); /* an idle owner costs nothing */
	fault_alloc_arm(0);
	assert_int_equal(ring_tail(&r, &p, &n), -ENOMEM);
	assert_true(fault_alloc_disarm());
	fault_alloc_arm(0);
	assert_int_equal(ring_write(&r, "x", 1), 0);
	assert_true(fault_alloc_disarm());
	assert_int_equal(ring_tail(&r, &p, &n), 0);
	assert_int_equal(n, 4096);
	memset(p, 'y', n);
	ring_commit(&r, n);
	assert_int_equal(ring_room(&r), 0);
	assert_int_equal(ring_write(&r, "x", 1), 0);
	ring_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buf_appends_and_consumes),
		cmocka_unit_test(test_buf_bound),
		cmocka_unit_test(test_buf_text),
		cmocka_unit_test(test_buf_without_memory),
		cmocka_unit_test(test_ring_wraps),
		cmocka_unit_test(test_ring_is_lazy_and_survives_no_memory),
	};
	return cmocka_run_group_tests_name("base_buf", tests, NULL, NULL);
}
