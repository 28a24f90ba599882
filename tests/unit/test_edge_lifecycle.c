/* lifecycle and ttl: every move, every deadline and way out; who wins at the end of a life. */
#include "unit.h"
#include "edge/lifecycle.h"
#include "edge/ttl.h"

/* The table once more, as the design says it, to hold the code's against. */
static const char *const allowed[] = {
	"pending preparing",  "pending stopped",  "preparing running", "preparing stopping", "running pausing",
	"running stopping",   "pausing paused",   "pausing running",   "pausing stopping",   "paused resuming",
	"paused stopping",    "resuming running", "resuming paused",   "resuming stopping",  "stopping stopped",
};

static bool expected(enum sandbox_state from, enum sandbox_state to)
{
	char move[64];
	snprintf(move, sizeof(move), "%s %s", lifecycle_name(from), lifecycle_name(to));
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (!strcmp(allowed[i], move))
			return true;
	return false;
}

static void test_every_move(void **state)
{
	int n = 0;
	for (int from = 0; from < SB_STATES; from++)
		for (int to = 0; to < SB_STATES; to++) {
			if (lifecycle_may(from, to) != expected(from, to))
				fail_msg("%s -> %s", lifecycle_name(from), lifecycle_name(to));
			n += lifecycle_may(from, to);
		}
	assert_int_equal(n, sizeof(allowed) / sizeof(allowed[0]));
	assert_false(lifecycle_may(SB_STATES, SB_RUNNING));
	assert_false(lifecycle_may(SB_RUNNING, SB_STATES));
}

static void test_every_state_has_a_way_out(void **state)
{
	for (int s = 0; s < SB_STATES; s++) {
		/* Only what a lifetime bounds may do without a deadline of its own. */
		assert_int_equal(lifecycle_deadline_ms(s) == 0, s == SB_RUNNING || s == SB_PAUSED);
		if (s == SB_STOPPED)
			assert_int_equal(lifecycle_overdue(s), SB_STATES);
		else
			assert_true(lifecycle_may(s, lifecycle_overdue(s)));
	}
	/* Following the overdue moves always ends in stopped. */
	for (int s = 0; s < SB_STATES; s++) {
		int at = s, steps = 0;
		while (at != SB_STOPPED && steps++ < SB_STATES)
			at = lifecycle_overdue(at);
		assert_int_equal(at, SB_STOPPED);
	}
}

static void test_reason_names(void **state)
{
	for (int r = 0; r < STOP_REASONS; r++)
		assert_int_equal(stop_reason_from_name(stop_reason_name(r)), r);
	assert_int_equal(stop_reason_from_name("martian"), STOP_FAILED);
}

static void test_lifetime_ends_at_its_end(void **state)
{
	struct ttl t = { .end_ms = 10000, .active_ms = 0 };
	uint64_t next = 0;
	assert_int_equal(ttl_decide(&t, 9999, false, &next), TTL_KEEP);
	assert_int_equal(next, 10000);
	assert_int_equal(ttl_decide(&t, 10000, false, &next), TTL_EXPIRED);
	assert_int_equal(ttl_decide(&t, 10000, true, &next), TTL_EXPIRED); /* busy does not help */
	assert_int_equal(ttl_idle_end_ms(&t, false), 0);
}

static void test_idle_needs_all_three_quiet(void **state)
{
	struct ttl t = { .end_ms = 1000000, .idle_ms = 4000, .active_ms = 1000 };
	uint64_t next = 0;
	assert_int_equal(ttl_decide(&t, 1000, false, &next), TTL_KEEP);
	assert_int_equal(next, 2000); /* a quarter of the idle time: the next sample */
	assert_int_equal(ttl_decide(&t, 4999, false, &next), TTL_KEEP);
	assert_int_equal(next, 5000);
	assert_int_equal(ttl_decide(&t, 5000, true, &next), TTL_KEEP); /* a command runs */
	assert_int_equal(next, 1000000);
	assert_int_equal(ttl_decide(&t, 5000, false, &next), TTL_IDLE);
	ttl_touch(&t, 4999); /* traffic */
	assert_int_equal(ttl_decide(&t, 5000, false, &next), TTL_KEEP);
	assert_int_equal(ttl_idle_end_ms(&t, false), 8999);
	assert_int_equal(ttl_idle_end_ms(&t, true), 0);
}

static void test_cpu_use_is_life(void **state)
{
	struct ttl t = { .end_ms = 1000000, .idle_ms = 4000, .active_ms = 1000 };
	ttl_sample(&t, 2000, 500000); /* the first reading tells nothing yet */
	assert_int_equal(t.active_ms, 1000);
	ttl_sample(&t, 3000, 500000 + 1000 * TTL_IDLE_CPU_PERMILLE); /* at the threshold: housekeeping */
	assert_int_equal(t.active_ms, 1000);
	ttl_sample(&t, 4000, 500000 + 2000 * TTL_IDLE_CPU_PERMILLE + 1);
	assert_int_equal(t.active_ms, 4000);
	ttl_sample(&t, 5000, 0); /* a counter that went back is no use of CPU */
	assert_int_equal(t.active_ms, 4000);
}

static void test_renewal_loses_against_the_end(void **state)
{
	struct ttl t = { .end_ms = 10000, .idle_ms = 5000, .active_ms = 6000 };
	uint64_t longer = 60000, none = 0, too_short = TTL_MIN_MS - 1, shortest = TTL_MIN_MS, longest = TTL_MAX_MS,
		 too_long = TTL_MAX_MS + 1;
	assert_int_equal(ttl_renew(&t, 10000, false, &longer, NULL), -ESTALE);
	assert_int_equal(t.end_ms, 10000);
	assert_int_equal(ttl_renew(&t, 9999, false, &too_short, NULL), -EINVAL);
	assert_int_equal(ttl_renew(&t, 9999, false, &too_long, NULL), -EINVAL);
	assert_int_equal(ttl_renew(&t, 9999, false, &longer, &too_long), -EINVAL);
	assert_int_equal(t.end_ms, 10000); /* all or nothing */
	assert_int_equal(ttl_renew(&t, 9999, false, &shortest, NULL), 0);
	assert_int_equal(t.end_ms, 9999 + TTL_MIN_MS);
	assert_int_equal(t.idle_ms, 5000);
	assert_int_equal(ttl_renew(&t, 10500, false, &longest, &none), 0);
	assert_int_equal(t.end_ms, 10500 + TTL_MAX_MS);
	assert_int_equal(t.idle_ms, 0);
	/* Idle time that ran out counts as an end too. */
	struct ttl idle = { .end_ms = 100000, .idle_ms = 1000, .active_ms = 1000 };
	assert_int_equal(ttl_renew(&idle, 2000, false, &longer, NULL), -ESTALE);
	assert_int_equal(ttl_renew(&idle, 2000, true, &longer, NULL), 0);
}

static void test_sample_period_bounds(void **state)
{
	struct ttl t = { .idle_ms = TTL_IDLE_MIN_MS };
	assert_int_equal(ttl_sample_period_ms(&t), TTL_SAMPLE_MIN_MS);
	t.idle_ms = TTL_MAX_MS;
	assert_int_equal(ttl_sample_period_ms(&t), TTL_SAMPLE_MAX_MS);
	t.idle_ms = 8000;
	assert_int_equal(ttl_sample_period_ms(&t), 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_move),
		cmocka_unit_test(test_every_state_has_a_way_out),
		cmocka_unit_test(test_reason_names),
		cmocka_unit_test(test_lifetime_ends_at_its_end),
		cmocka_unit_test(test_idle_needs_all_three_quiet),
		cmocka_unit_test(test_cpu_use_is_life),
		cmocka_unit_test(test_renewal_loses_against_the_end),
		cmocka_unit_test(test_sample_period_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
