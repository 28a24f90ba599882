/* spool: what is kept of a stream at, under and over its bound; after kill -9; when the disk fails. */
#include "unit.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/stat.h>
#include "base/cleanup.h"
#include "edge/spool.h"

#define LIMIT 1000
#define BIG (3 * SPOOL_SLACK)

static char dir[] = "/tmp/test-edge-spool-XXXXXX";
static struct spool_set set;
static struct spool s;

static uint8_t byte_at(uint64_t pos)
{
	return (uint8_t)(pos * 31 + pos / 251);
}

static void put(struct spool *to, size_t n)
{
	uint8_t *p = malloc(n + 1);
	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(to->total + i);
	assert_int_equal(spool_append(to, p, n), 0);
	free(p);
}

/* Reads from `at` to the end in pieces of `piece`; checks every byte; counts gaps. */
static uint64_t read_all_from(struct spool *from, uint64_t at, size_t piece, uint64_t *ret_gap_from,
			      uint64_t *ret_gap_to)
{
	uint8_t *p = malloc(piece);
	uint64_t got = 0, gaps = 0;
	for (;;) {
		uint64_t before = at;
		long n = spool_read(from, &at, p, piece);
		assert_true(n >= 0);
		if (at != before) {
			gaps++;
			*ret_gap_from = before;
			*ret_gap_to = at;
		}
		for (long i = 0; i < n; i++)
			assert_int_equal(p[i], byte_at(at + (uint64_t)i));
		at += (uint64_t)n;
		got += (uint64_t)n;
		if (!n)
			break;
	}
	free(p);
	assert_int_equal(at, from->total);
	assert_true(gaps <= 1);
	return got;
}

static void check(struct spool *from, uint64_t kept, uint64_t gap_from, uint64_t gap_to)
{
	static const size_t pieces[] = { 1, 7, 500, 100000 };
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		uint64_t a = 0, b = 0;
		if (from->total > 100000 && pieces[i] == 1)
			continue;
		assert_int_equal(read_all_from(from, 0, pieces[i], &a, &b), kept);
		assert_int_equal(a, gap_from);
		assert_int_equal(b, gap_to);
	}
	assert_int_equal(spool_truncated(from), gap_to > gap_from);
}

static int setup(void **state)
{
	spool_init(&s, &set, "sb", "ex", "out", LIMIT);
	return 0;
}

static int teardown(void **state)
{
	s.total += !s.total; /* the file may be there even if this object saw nothing */
	spool_remove(&s);
	return 0;
}

static void test_nothing_makes_no_file(void **state)
{
	uint64_t at = 0;
	uint8_t b;
	assert_int_equal(spool_read(&s, &at, &b, 1), 0);
	assert_int_equal(spool_recover(&s), 0);
	assert_int_equal(s.total, 0);
	assert_int_equal(faccessat(set.dirfd, "sb.ex.out", F_OK, 0), -1);
}

static void test_under_at_and_over_the_limit(void **state)
{
	put(&s, LIMIT - 1);
	check(&s, LIMIT - 1, 0, 0);
	put(&s, 1);
	check(&s, LIMIT, 0, 0);
	put(&s, 1);
	check(&s, LIMIT, LIMIT / 2, LIMIT / 2 + 1);
	put(&s, 10 * LIMIT);
	check(&s, LIMIT, LIMIT / 2, s.total - LIMIT / 2);
}

static void test_odd_pieces_through_many_wraps(void **state)
{
	for (int i = 0; i < 3000; i++)
		put(&s, (size_t)(i * 37) % 301);
	check(&s, LIMIT, LIMIT / 2, s.total - LIMIT / 2);
	assert_true(spool_stored(&s) <= LIMIT + SPOOL_SLACK);
	struct stat st;
	assert_int_equal(fstatat(set.dirfd, "sb.ex.out", &st, 0), 0);
	assert_true(st.st_size <= LIMIT + SPOOL_SLACK + 16);
}

static void test_pieces_larger_than_everything(void **state)
{
	put(&s, BIG);
	put(&s, BIG + 13);
	check(&s, LIMIT, LIMIT / 2, s.total - LIMIT / 2);
}

static void test_limit_of_one(void **state)
{
	spool_init(&s, &set, "sb", "ex", "out", 1);
	put(&s, 1);
	check(&s, 1, 0, 0);
	put(&s, 5);
	check(&s, 1, 0, 5);
}

static void test_reading_from_inside_the_gap_and_beyond(void **state)
{
	uint64_t a = 0, b = 0, at;
	uint8_t p[8];
	put(&s, 5 * LIMIT);
	assert_int_equal(read_all_from(&s, 2 * LIMIT, 64, &a, &b), LIMIT / 2);
	assert_int_equal(a, 2 * LIMIT);
	assert_int_equal(b, s.total - LIMIT / 2);
	at = s.total + 100; /* nothing there yet: stays */
	assert_int_equal(spool_read(&s, &at, p, sizeof(p)), 0);
	assert_int_equal(at, s.total + 100);
}

/* A new object on the same file, as a restarted edge has it. */
static void recover_and_check(uint64_t total, uint64_t kept)
{
	struct spool again;
	spool_close(&s);
	spool_init(&again, &set, "sb", "ex", "out", LIMIT);
	assert_int_equal(spool_recover(&again), 0);
	assert_int_equal(again.total, total);
	uint64_t a, b;
	assert_int_equal(read_all_from(&again, 0, 100, &a, &b), kept);
	put(&again, 10); /* and it goes on where it was */
	read_all_from(&again, 0, 100, &a, &b);
	spool_close(&again);
}

static void test_recovery_below_the_limit(void **state)
{
	put(&s, 700);
	recover_and_check(700, 700);
}

static void test_recovery_before_and_after_the_wrap(void **state)
{
	uint64_t ring_full = LIMIT + SPOOL_SLACK;
	put(&s, ring_full);
	recover_and_check(ring_full, LIMIT);
}

static void test_recovery_after_the_wrap(void **state)
{
	put(&s, LIMIT + SPOOL_SLACK + 1);
	recover_and_check(LIMIT + SPOOL_SLACK + 1, LIMIT);
	put(&s, 0);
}

/* kill -9 between the bytes and the header: the old promise still holds. */
static void test_a_piece_without_its_header_spoils_nothing(void **state)
{
	put(&s, 4 * (LIMIT + SPOOL_SLACK) + 77);
	uint64_t total = s.total;
	uint8_t header[16];
	_cleanup_close_ int fd = openat(set.dirfd, "sb.ex.out", O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, header, sizeof(header), 0), sizeof(header));
	put(&s, SPOOL_SLACK); /* the largest piece */
	assert_int_equal(pwrite(fd, header, sizeof(header), 0), sizeof(header));
	recover_and_check(total, LIMIT);
}

static void test_bytes_that_cannot_be_stored_are_counted(void **state)
{
	struct rlimit old, small = { 16 + 300, 16 + 300 };
	put(&s, 200);
	getrlimit(RLIMIT_FSIZE, &old);
	small.rlim_max = old.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	uint8_t more[200] = { 0 };
	assert_int_equal(spool_append(&s, more, sizeof(more)), -EFBIG); /* told once */
	assert_int_equal(spool_append(&s, more, sizeof(more)), 0);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(spool_append(&s, more, sizeof(more)), 0); /* a hole cannot be kept: stays so */
	assert_int_equal(s.total, 800);
	check(&s, 200, 200, 800);
}

static void test_skipped_bytes_are_a_gap(void **state)
{
	put(&s, 100);
	spool_skip(&s, 50); /* known already */
	assert_int_equal(s.total, 100);
	uint64_t at = 100;
	uint8_t p[8];
	assert_int_equal(spool_read(&s, &at, p, sizeof(p)), 0);
	assert_int_equal(at, 100); /* at the end is not in a gap */
	spool_skip(&s, 150);
	check(&s, 100, 100, 150);
}

static void test_descriptors_are_a_budget(void **state)
{
	struct spool many[20];
	char names[20][4];
	struct spool_set small;
	spool_set_init(&small, set.dirfd, 3);
	for (int i = 0; i < 20; i++) {
		snprintf(names[i], sizeof(names[i]), "%d", i);
		spool_init(&many[i], &small, "sb", names[i], "out", LIMIT);
	}
	for (int round = 0; round < 50; round++)
		for (int i = 0; i < 20; i++) {
			put(&many[i], 30);
			assert_true(small.n_open <= 3);
		}
	for (int i = 0; i < 20; i++) {
		check(&many[i], LIMIT, LIMIT / 2, 1500 - LIMIT / 2);
		spool_remove(&many[i]);
	}
	assert_int_equal(small.n_open, 0);
}

int main(void)
{
	assert_non_null(mkdtemp(dir));
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	spool_set_init(&set, fd, 8);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_makes_no_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_under_at_and_over_the_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_odd_pieces_through_many_wraps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pieces_larger_than_everything, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limit_of_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reading_from_inside_the_gap_and_beyond, setup, teardown),
		cmocka_unit_test_setup_teardown(test_recovery_below_the_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_recovery_before_and_after_the_wrap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_recovery_after_the_wrap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_piece_without_its_header_spoils_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bytes_that_cannot_be_stored_are_counted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_skipped_bytes_are_a_gap, setup, teardown),
		cmocka_unit_test_setup_teardown(test_descriptors_are_a_budget, setup, teardown),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(dir);
	return failed;
}
