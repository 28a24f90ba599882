/* Unpacking hostile and honest tar streams: confinement, owners, times, cuts. */
#include "layer_tar.h"
#include "layer/untar.h"

static char stage[96], outside[96];
static int stage_fd;
static volatile sig_atomic_t stop;

static int setup(void **state)
{
	if (make_test_dir_in("/tmp") < 0)
		return -1;
	snprintf(stage, sizeof(stage), "%s/stage", test_dir);
	snprintf(outside, sizeof(outside), "%s/outside", test_dir);
	if (mkdir(stage, 0755) < 0 || mkdir(outside, 0755) < 0)
		return -1;
	stage_fd = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	stop = 0;
	return stage_fd < 0;
}

static int teardown(void **state)
{
	close(stage_fd);
	return remove_tree(test_dir);
}

static int unpack_bytes(const void *p, size_t n, struct untar_counts *counts, struct dsec_error *e)
{
	_cleanup_close_ int fd = tar_fd(p, n);
	*e = (struct dsec_error){ 0 };
	return untar(fd, stage_fd, &stop, counts, e);
}

static int unpack(const struct tar_entry *entries, size_t n, struct untar_counts *counts, struct dsec_error *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	for (size_t i = 0; i < n; i++)
		tar_add(&b, &entries[i]);
	tar_end(&b);
	return unpack_bytes(buf_ptr(&b), buf_len(&b), counts, e);
}

#define UNPACK(entries) unpack(entries, ARRAY_SIZE(entries), &counts, &e)

static struct stat stat_of(const char *path)
{
	struct stat st;
	assert_int_equal(fstatat(stage_fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st;
}

static void assert_content(const char *path, const char *want)
{
	_cleanup_free_ char *text = NULL;
	assert_int_equal(read_file_at(stage_fd, path, 4096, &text, NULL), 0);
	assert_string_equal(text, want);
}

static void assert_outside_empty(void)
{
	_cleanup_closedir_ DIR *d = opendir(outside);
	struct dirent *ent;
	while ((ent = readdir(d)))
		assert_true(ent->d_name[0] == '.');
}

static void test_normalise(void **state)
{
	static const char *const good[][2] = {
		{ "a", "a" },	      { "/a/b", "a/b" }, { "./a//./b/", "a/b" }, { ".", "" }, { "/", "" },
		{ "a/...", "a/..." }, { "..a/b", "..a/b" }, { "", "" },
	};
	static const char *const bad[] = { "..", "a/..", "../a", "/..", "a/../b", "./.." };
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		char path[64];
		snprintf(path, sizeof(path), "%s", good[i][0]);
		assert_int_equal(untar_normalise(path), 0);
		assert_string_equal(path, good[i][1]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char path[64];
		snprintf(path, sizeof(path), "%s", bad[i]);
		assert_int_equal(untar_normalise(path), -EINVAL);
	}
}

static void test_kinds_and_metadata(void **state)
{
	static const struct tar_entry entries[] = {
		{ '5', "./", .mode = 0700, .mtime = 11 },
		{ '5', "./d", .mode = 02750, .uid = 5, .gid = 6, .mtime = 1000 },
		{ '0', "./d/f", .data = "content", .mode = 04711, .uid = 7, .gid = 8, .mtime = 2000 },
		{ '1', "./hard", .link = "./d/f" },
		{ '2', "./soft", .link = "/etc/passwd", .uid = 9, .mtime = 3000 },
		{ '1', "./hardsoft", .link = "soft" },
		{ '6', "./fifo", .mode = 0620 },
		{ '0', "/abs/deep/g", .data = "x" },
		{ '0', "big-owner", .uid = 65535, .gid = 65536 },
	};
	struct untar_counts counts;
	struct dsec_error e;
	assert_int_equal(UNPACK(entries), 0);
	assert_int_equal(stat_of(".").st_mode & 07777, 0700);
	assert_int_equal(stat_of(".").st_mtime, 11);
	struct stat d = stat_of("d"), f = stat_of("d/f"), s = stat_of("soft");
	assert_int_equal(d.st_mode, S_IFDIR | 02750);
	assert_int_equal(d.st_uid, 5);
	assert_int_equal(d.st_gid, 6);
	assert_int_equal(d.st_mtime, 1000);
	assert_int_equal(f.st_mode, S_IFREG | 04711);
	assert_int_equal(f.st_uid, 7);
	assert_int_equal(f.st_mtime, 2000);
	assert_int_equal(stat_of("hard").st_ino, f.st_ino);
	assert_true(S_ISLNK(s.st_mode));
	assert_int_equal(s.st_uid, 9);
	assert_int_equal(s.st_mtime, 3000);
	assert_int_equal(stat_of("hardsoft").st_ino, s.st_ino);
	assert_int_equal(stat_of("fifo").st_mode, S_IFIFO | 0620);
	assert_content("abs/deep/g", "x");
	assert_int_equal(stat_of("abs/deep").st_mtime, 0);
	assert_int_equal(stat_of("abs").st_mode & 07777, 0755);
	assert_int_equal(stat_of("big-owner").st_uid, 65535);
	assert_int_equal(stat_of("big-owner").st_gid, UNTAR_ID_NOBODY);
	assert_int_equal(counts.clamped_owners, 1);
	static const char *const roots[] = { "proc", "sys", "dev", "dev/shm", "dev/pts", "tmp", "run" };
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++)
		assert_true(S_ISDIR(stat_of(roots[i]).st_mode));
	assert_int_equal(stat_of("tmp").st_mode & 07777, 01777);
	assert_int_equal(stat_of("dev").st_mtime, 0);
}

static void assert_refused(const struct tar_entry *entries, size_t n, enum dsec_code code)
{
	struct untar_counts counts;
	struct dsec_error e;
	assert_true(unpack(entries, n, &counts, &e) < 0);
	if (e.code != code)
		fail_msg("code %s: %s", dsec_code_name(e.code), e.message);
	assert_outside_empty();
}

static void test_escapes_are_refused(void **state)
{
	const struct tar_entry dotdot[] = { { '0', "../outside/x", .data = "x" } };
	const struct tar_entry inner[] = { { '0', "a/../../outside/x", .data = "x" } };
	const struct tar_entry link_out[] = { { '2', "a", .link = outside }, { '0', "a/x", .data = "x" } };
	const struct tar_entry link_rel[] = { { '2', "a", .link = "../outside" }, { '5', "a/x" } };
	const struct tar_entry link_in[] = { { '5', "b" }, { '2', "a", .link = "b" }, { '0', "a/x", .data = "x" } };
	const struct tar_entry link_deep[] = { { '2', "p/a", .link = outside }, { '0', "p/a/q/r", .data = "x" } };
	const struct tar_entry swap[] = { { '5', "a" }, { '0', "a/f", .data = "1" }, { '1', "keep", .link = "a/f" },
					  { '2', "a", .link = outside } };
	const struct tar_entry swap_empty[] = { { '5', "a/b" }, { '2', "a/b", .link = outside },
						{ '0', "a/b/x", .data = "x" } };
	const struct tar_entry hard_out[] = { { '1', "h", .link = "../outside/secret" } };
	const struct tar_entry hard_via[] = { { '2', "a", .link = outside }, { '1', "h", .link = "a/secret" } };
	const struct tar_entry not_dir[] = { { '0', "a", .data = "1" }, { '0', "a/x", .data = "x" } };
	const struct tar_entry device[] = { { '3', "etc/null" } };
	const struct tar_entry dev_link[] = { { '2', "dev", .link = outside } };
	const struct tar_entry tmp_file[] = { { '0', "tmp", .data = "x" } };
	const struct tar_entry root_file[] = { { '2', "./", .link = outside } };
	assert_refused(dotdot, 1, DSEC_E_PATH_UNSAFE);
	assert_refused(inner, 1, DSEC_E_PATH_UNSAFE);
	assert_refused(link_out, 2, DSEC_E_PATH_UNSAFE);
	assert_refused(link_rel, 2, DSEC_E_PATH_UNSAFE);
	assert_refused(link_in, 3, DSEC_E_PATH_UNSAFE);
	assert_refused(link_deep, 2, DSEC_E_PATH_UNSAFE);
	assert_refused(swap, 4, DSEC_E_PATH_UNSAFE);
	assert_refused(swap_empty, 3, DSEC_E_PATH_UNSAFE);
	assert_refused(hard_out, 1, DSEC_E_PATH_UNSAFE);
	assert_refused(hard_via, 2, DSEC_E_PATH_UNSAFE);
	assert_refused(not_dir, 2, DSEC_E_PATH_UNSAFE);
	assert_refused(device, 1, DSEC_E_PATH_UNSAFE);
	assert_refused(dev_link, 1, DSEC_E_PATH_UNSAFE);
	assert_refused(tmp_file, 1, DSEC_E_PATH_UNSAFE);
	assert_refused(root_file, 1, DSEC_E_PATH_UNSAFE);
}

/* The link's target must not be written through, nor the other name of a hard link. */
static void test_replacing(void **state)
{
	char secret[128];
	snprintf(secret, sizeof(secret), "%s/secret", outside);
	assert_int_equal(write_file_atomic(AT_FDCWD, secret, "old", 3, 0600), 0);
	const struct tar_entry entries[] = {
		{ '2', "a", .link = secret },	 { '0', "a", .data = "new" },
		{ '0', "f", .data = "first" },	 { '1', "g", .link = "f" },
		{ '0', "g", .data = "second" },
	};
	struct untar_counts counts;
	struct dsec_error e;
	assert_int_equal(UNPACK(entries), 0);
	assert_content("a", "new");
	assert_content("f", "first");
	assert_content("g", "second");
	_cleanup_free_ char *text = NULL;
	assert_int_equal(read_file_at(AT_FDCWD, secret, 16, &text, NULL), 0);
	assert_string_equal(text, "old");
}

static void test_devices_below_dev_are_left_out(void **state)
{
	const struct tar_entry entries[] = { { '5', "dev" }, { '3', "./dev/null" }, { '3', "dev/a/b" }, { '0', "x" } };
	struct untar_counts counts;
	struct dsec_error e;
	assert_int_equal(UNPACK(entries), 0);
	assert_int_equal(counts.skipped_nodes, 2);
	struct stat st;
	assert_int_equal(fstatat(stage_fd, "dev/null", &st, 0), -1);
}

/* Wherever the stream is cut, at entry boundaries too, it is refused. */
static void test_cut_streams_are_refused(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	tar_add(&b, &(struct tar_entry){ '5', "d" });
	tar_add(&b, &(struct tar_entry){ '0', "d/f", .data = "content" });
	tar_add(&b, &(struct tar_entry){ '0', "empty" });
	tar_add(&b, &(struct tar_entry){ '1', "hard", .link = "d/f" });
	size_t whole = buf_len(&b);
	tar_end(&b);
	struct untar_counts counts;
	struct dsec_error e;
	for (size_t n = 0; n <= whole; n += 64) {
		if (unpack_bytes(buf_ptr(&b), n, &counts, &e) == 0)
			fail_msg("%zu of %zu bytes were taken for a whole stream", n, whole);
		assert_int_equal(e.code, DSEC_E_BAD_REQUEST);
	}
	assert_int_equal(unpack_bytes(buf_ptr(&b), buf_len(&b), &counts, &e), 0);
}

static void test_rubbish(void **state)
{
	struct untar_counts counts;
	struct dsec_error e;
	assert_true(unpack_bytes("not a tar stream at all", 23, &counts, &e) < 0);
	assert_int_equal(e.code, DSEC_E_BAD_REQUEST);
	stop = 1;
	assert_int_equal(unpack_bytes("x", 1, &counts, &e), -EINTR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_normalise),
		cmocka_unit_test_setup_teardown(test_kinds_and_metadata, setup, teardown),
		cmocka_unit_test_setup_teardown(test_escapes_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replacing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_devices_below_dev_are_left_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut_streams_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rubbish, setup, teardown),
	};
	if (geteuid()) {
		puts("1..0 # SKIP unpacking keeps owners: needs root");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
