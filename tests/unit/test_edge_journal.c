/* journal: torn tails, a flipped byte anywhere, the n-th write failing, compaction, group commit. */
#include "unit.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "edge/journal.h"

#define RECORDS 12

static char dir[] = "/tmp/test-edge-journal-XXXXXX";
static int dirfd_;

struct seen {
	int n;
	int ids[256];
	int fail_at; /* 0: never */
};

/* Record `id` is "id:" and a filler whose length depends on it. */
static size_t make(int id, char *p)
{
	int n = sprintf(p, "%d:", id);
	for (int i = 0; i < id * 7 % 40; i++)
		p[n++] = (char)('a' + i % 26);
	return (size_t)n;
}

static int on_record(const void *p, size_t n, void *user)
{
	struct seen *seen = user;
	char want[128];
	int id = atoi(p);
	assert_int_equal(make(id, want), n);
	assert_memory_equal(p, want, n);
	seen->ids[seen->n++] = id;
	return seen->fail_at && seen->n == seen->fail_at ? -ENOMEM : 0;
}

static struct journal *open_journal(struct seen *seen, struct journal_damage *damage)
{
	struct journal *j = NULL;
	*seen = (struct seen){ 0 };
	assert_int_equal(journal_open(dirfd_, "j", on_record, seen, &j, damage), 0);
	return j;
}

static int append(struct journal *j, int id)
{
	char p[128];
	return journal_append(j, p, make(id, p));
}

static void fill(int n)
{
	struct seen seen;
	struct journal_damage d;
	unlinkat(dirfd_, "j", 0);
	struct journal *j = open_journal(&seen, &d);
	for (int i = 1; i <= n; i++)
		assert_int_equal(append(j, i), 0);
	journal_close(j);
}

static void load(uint8_t **ret, size_t *ret_n)
{
	assert_int_equal(read_file_at(dirfd_, "j", 1 << 20, (char **)ret, ret_n), 0);
}

static void store(const uint8_t *p, size_t n)
{
	_cleanup_close_ int fd = openat(dirfd_, "j", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_int_equal(write_all(fd, p, n), 0);
}

static void test_records_come_back_in_order(void **state)
{
	struct seen seen;
	struct journal_damage d;
	fill(RECORDS);
	for (int again = 0; again < 2; again++) {
		struct journal *j = open_journal(&seen, &d);
		assert_int_equal(seen.n, RECORDS + again);
		for (int i = 0; i < seen.n; i++)
			assert_int_equal(seen.ids[i], i + 1);
		assert_int_equal(d.torn_bytes + d.skipped_bytes, 0);
		assert_int_equal(append(j, RECORDS + again + 1), 0);
		journal_close(j);
	}
}

static void test_cut_anywhere(void **state)
{
	_cleanup_free_ uint8_t *whole = NULL;
	size_t n;
	fill(RECORDS);
	load(&whole, &n);
	int before = -1;
	for (size_t cut = 0; cut <= n; cut++) {
		struct seen seen;
		struct journal_damage d;
		store(whole, cut);
		struct journal *j = open_journal(&seen, &d);
		assert_true(seen.n >= before && seen.n <= RECORDS); /* never less from more bytes */
		before = seen.n;
		assert_int_equal(journal_size(j) + d.torn_bytes, cut);
		assert_int_equal(d.skipped_bytes, 0);
		assert_int_equal(append(j, 99), 0); /* and it goes on behind the last whole one */
		journal_close(j);
		int had = seen.n;
		j = open_journal(&seen, &d);
		assert_int_equal(seen.n, had + 1);
		assert_int_equal(seen.ids[had], 99);
		journal_close(j);
	}
	assert_int_equal(before, RECORDS);
}

static void test_a_flipped_byte_costs_one_record(void **state)
{
	_cleanup_free_ uint8_t *whole = NULL;
	size_t n;
	fill(RECORDS);
	load(&whole, &n);
	for (size_t at = 0; at < n; at++) {
		struct seen seen;
		struct journal_damage d;
		whole[at] ^= 0x40;
		store(whole, n);
		whole[at] ^= 0x40;
		struct journal *j = open_journal(&seen, &d);
		assert_int_equal(seen.n, RECORDS - 1);
		for (int i = 1; i < seen.n; i++)
			assert_true(seen.ids[i] > seen.ids[i - 1]);
		assert_true(d.skipped_bytes || d.torn_bytes);
		journal_close(j);
	}
}

/* A record at another place is not taken for one: old blocks may show through. */
static void test_moved_records_do_not_count(void **state)
{
	_cleanup_free_ uint8_t *whole = NULL;
	size_t n;
	struct seen seen;
	struct journal_damage d;
	fill(RECORDS);
	load(&whole, &n);
	store(whole + 1, n - 1);
	struct journal *j = open_journal(&seen, &d);
	assert_int_equal(seen.n, 0);
	assert_int_equal(d.torn_bytes, n - 1);
	journal_close(j);
}

static void test_sizes_at_the_limit(void **state)
{
	struct seen seen;
	struct journal_damage d;
	unlinkat(dirfd_, "j", 0);
	struct journal *j = open_journal(&seen, &d);
	char *p = calloc(1, JOURNAL_RECORD_MAX + 1);
	assert_int_equal(journal_append(j, p, JOURNAL_RECORD_MAX + 1), -E2BIG);
	assert_int_equal(journal_append(j, p, JOURNAL_RECORD_MAX), 0);
	assert_int_equal(journal_size(j), JOURNAL_RECORD_MAX + 16);
	free(p);
	journal_close(j);
	unlinkat(dirfd_, "j", 0);
}

static void test_replay_may_refuse(void **state)
{
	struct seen seen = { .fail_at = 3 };
	struct journal_damage d;
	struct journal *j = NULL;
	fill(RECORDS);
	assert_int_equal(journal_open(dirfd_, "j", on_record, &seen, &j, &d), -ENOMEM);
	assert_null(j);
}

/* The file may grow to `room` bytes only: the write that crosses it comes short or fails. */
static void limit_file(rlim_t room)
{
	struct rlimit l;
	getrlimit(RLIMIT_FSIZE, &l);
	l.rlim_cur = room;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &l), 0);
}

static void test_any_write_may_fail(void **state)
{
	_cleanup_free_ uint8_t *whole = NULL;
	size_t n;
	fill(RECORDS);
	load(&whole, &n);
	for (size_t room = 0; room < n; room++) {
		struct seen seen;
		struct journal_damage d;
		int ok = 0, failed = 0;
		unlinkat(dirfd_, "j", 0);
		struct journal *j = open_journal(&seen, &d);
		limit_file(room);
		for (int i = 1; i <= RECORDS; i++) {
			int r = append(j, i);
			if (!r)
				ok = failed ? -1 : ok + 1;
			else
				failed++;
			assert_true(ok >= 0 || i > 1); /* smaller ones may still fit afterwards */
		}
		limit_file(RLIM_INFINITY);
		assert_true(failed > 0);
		assert_int_equal(append(j, 50), 0); /* room again: it goes on */
		journal_close(j);
		j = open_journal(&seen, &d);
		assert_int_equal(d.torn_bytes + d.skipped_bytes, 0); /* no trace of the failures */
		assert_int_equal(seen.ids[seen.n - 1], 50);
		assert_int_equal(seen.n, RECORDS - failed + 1);
		journal_close(j);
	}
}

static void test_compaction_keeps_what_is_put(void **state)
{
	struct seen seen;
	struct journal_damage d;
	char p[128];
	fill(RECORDS);
	struct journal *j = open_journal(&seen, &d);
	assert_int_equal(journal_rewrite_begin(j), 0);
	assert_int_equal(journal_rewrite_begin(j), -EBUSY);
	assert_int_equal(journal_rewrite_put(j, p, make(5, p)), 0);
	assert_int_equal(append(j, 13), 0); /* to both */
	assert_int_equal(journal_rewrite_end(j, NULL), 0);
	assert_int_equal(append(j, 14), 0);
	journal_close(j);
	j = open_journal(&seen, &d);
	assert_int_equal(seen.n, 3);
	assert_int_equal(seen.ids[0], 5);
	assert_int_equal(seen.ids[1], 13);
	assert_int_equal(seen.ids[2], 14);
	journal_close(j);
}

static void check_old_journal(struct journal *j, int id)
{
	struct seen seen;
	struct journal_damage d;
	assert_int_equal(append(j, id), 0);
	assert_int_equal(faccessat(dirfd_, "j.new", F_OK, 0), -1);
	journal_close(j);
	j = open_journal(&seen, &d);
	assert_int_equal(seen.ids[seen.n - 1], id);
	assert_int_equal(seen.n, id);
	journal_close(j);
}

static void test_compaction_that_fails_keeps_the_old(void **state)
{
	struct seen seen;
	struct journal_damage d;
	char p[128];
	fill(RECORDS);
	struct journal *j = open_journal(&seen, &d);
	/* at the end, when what was gathered is written */
	assert_int_equal(journal_rewrite_begin(j), 0);
	assert_int_equal(journal_rewrite_put(j, p, make(5, p)), 0);
	limit_file(20);
	assert_true(journal_rewrite_end(j, NULL) < 0);
	limit_file(RLIM_INFINITY);
	check_old_journal(j, RECORDS + 1);
	/* in the middle, when a chunk is full */
	j = open_journal(&seen, &d);
	char *big = calloc(1, 300 * 1024);
	assert_int_equal(journal_rewrite_begin(j), 0);
	limit_file(1024 * 200);
	assert_true(journal_rewrite_put(j, big, 300 * 1024) < 0);
	limit_file(RLIM_INFINITY);
	free(big);
	assert_int_equal(journal_rewrite_put(j, p, make(5, p)), -ECANCELED);
	assert_int_equal(journal_rewrite_end(j, NULL), -ECANCELED);
	check_old_journal(j, RECORDS + 2);
}

static int n_synced;

static void on_synced(int err, void *user)
{
	assert_int_equal(err, 0);
	n_synced++;
}

static void test_sync_with_compaction_in_between(void **state)
{
	struct seen seen;
	struct journal_damage d;
	char p[128];
	uv_loop_t loop;
	uv_loop_init(&loop);
	fill(RECORDS);
	struct journal *j = open_journal(&seen, &d);
	n_synced = 0;
	for (int i = 0; i < 5; i++)
		assert_int_equal(journal_sync(j, &loop, on_synced, NULL), 0);
	assert_false(journal_idle(j));
	assert_int_equal(journal_rewrite_begin(j), 0);
	assert_int_equal(journal_rewrite_put(j, p, make(7, p)), 0);
	assert_int_equal(journal_rewrite_end(j, &loop), 0);
	assert_int_equal(append(j, 20), 0); /* while the worker syncs the new file */
	assert_int_equal(journal_sync(j, &loop, on_synced, NULL), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(n_synced, 6);
	assert_true(journal_idle(j));
	journal_close(j);
	j = open_journal(&seen, &d);
	assert_int_equal(seen.n, 2);
	assert_int_equal(seen.ids[0], 7);
	assert_int_equal(seen.ids[1], 20);
	journal_close(j);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	signal(SIGXFSZ, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records_come_back_in_order),
		cmocka_unit_test(test_cut_anywhere),
		cmocka_unit_test(test_a_flipped_byte_costs_one_record),
		cmocka_unit_test(test_moved_records_do_not_count),
		cmocka_unit_test(test_sizes_at_the_limit),
		cmocka_unit_test(test_replay_may_refuse),
		cmocka_unit_test(test_any_write_may_fail),
		cmocka_unit_test(test_compaction_keeps_what_is_put),
		cmocka_unit_test(test_compaction_that_fails_keeps_the_old),
		cmocka_unit_test(test_sync_with_compaction_in_between),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlinkat(dirfd_, "j", 0);
	rmdir(dir);
	return failed;
}
