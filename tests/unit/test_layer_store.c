/* Layers: the same tree gives the same digest, whatever the order, the packing or
 * the file system; publishing is atomic; what crashed imports leave is swept. */
#include "layer_tar.h"
#include <locale.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <archive.h>
#include <archive_entry.h>
#include "layer/import.h"

static volatile sig_atomic_t stop;

static int setup(void **state)
{
	return make_test_dir_in("/tmp");
}

static int teardown(void **state)
{
	return remove_tree(test_dir);
}

static const struct tar_entry tree[] = {
	{ '5', "./", .mtime = 5 },
	{ '5', "./etc", .mtime = 10 },
	{ '0', "./etc/passwd", .data = "root:x:0:0::/root:/bin/sh\n", .mtime = 20 },
	{ '5', "./usr", .mtime = 30 },
	{ '0', "./usr/a", .data = "a", .mode = 04755, .mtime = 40, .uid = 3 },
	{ '2', "./bin", .link = "usr", .mtime = 50 },
	{ '0', "./usr/b", .data = "b", .mtime = 60 },
};

static int import_bytes(const char *dir, const void *p, size_t n, char digest[LAYER_DIGEST_LEN + 1])
{
	_cleanup_close_ int fd = tar_fd(p, n);
	struct import_result res;
	struct dsec_error e = { 0 };
	int r = layer_import(dir, fd, false, &stop, &res, &e);
	if (r < 0)
		return r;
	memcpy(digest, res.digest, sizeof(res.digest));
	layer_info_done(&res.info);
	return 0;
}

static int import_entries(const char *dir, const struct tar_entry *const *entries, size_t n,
			  char digest[LAYER_DIGEST_LEN + 1])
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	for (size_t i = 0; i < n; i++)
		tar_add(&b, entries[i]);
	tar_end(&b);
	return import_bytes(dir, buf_ptr(&b), buf_len(&b), digest);
}

static void import_tree(const char *dir, const int *order, char digest[LAYER_DIGEST_LEN + 1])
{
	const struct tar_entry *entries[ARRAY_SIZE(tree)];
	for (size_t i = 0; i < ARRAY_SIZE(tree); i++)
		entries[i] = &tree[order ? order[i] : (int)i];
	assert_int_equal(import_entries(dir, entries, ARRAY_SIZE(tree), digest), 0);
}

static int count(const char *dir, const char *prefix)
{
	_cleanup_closedir_ DIR *d = opendir(dir);
	int n = 0;
	struct dirent *ent;
	while ((ent = readdir(d)))
		n += !strncmp(ent->d_name, prefix, strlen(prefix));
	return n;
}

static void test_same_tree_same_digest(void **state)
{
	static const int shuffled[] = { 6, 2, 5, 4, 1, 0, 3 };
	char first[LAYER_DIGEST_LEN + 1], other[LAYER_DIGEST_LEN + 1];
	import_tree(test_dir, NULL, first);
	assert_true(layer_digest_valid(first));
	import_tree(test_dir, shuffled, other);
	assert_string_equal(first, other);
	/* Another file system lists directories in another order. */
	char shm[64] = "/dev/shm/layers-u-XXXXXX";
	assert_non_null(mkdtemp(shm));
	import_tree(shm, shuffled, other);
	remove_tree(shm);
	assert_string_equal(first, other);
	assert_int_equal(count(test_dir, "sha256-"), 1);
	assert_int_equal(count(test_dir, ".tmp-"), 0);
}

static void test_times_count_where_the_stream_has_them(void **state)
{
	struct tar_entry a = { '0', "d/f", .data = "x", .mtime = 100 }, b = a, dir = { '5', "d", .mtime = 7 };
	char one[LAYER_DIGEST_LEN + 1], two[LAYER_DIGEST_LEN + 1], three[LAYER_DIGEST_LEN + 1];
	b.mtime = 101;
	assert_int_equal(import_entries(test_dir, (const struct tar_entry *[]){ &a }, 1, one), 0);
	assert_int_equal(import_entries(test_dir, (const struct tar_entry *[]){ &b }, 1, two), 0);
	assert_string_not_equal(one, two);
	/* A directory named after its content still gets its own time. */
	assert_int_equal(import_entries(test_dir, (const struct tar_entry *[]){ &dir, &a }, 2, two), 0);
	assert_int_equal(import_entries(test_dir, (const struct tar_entry *[]){ &a, &dir }, 2, three), 0);
	assert_string_equal(two, three);
	assert_string_not_equal(one, two);
	sleep(1); /* a directory without an entry does not get the time of unpacking */
	assert_int_equal(import_entries(test_dir, (const struct tar_entry *[]){ &a }, 1, three), 0);
	assert_string_equal(one, three);
}

/* The same entries through libarchive's writer: gzip, zstd, pax with attributes. */
static size_t packed(const char *filter, const char *const *xattrs, size_t n_xattrs, uint8_t *out, size_t cap)
{
	size_t used = 0;
	struct archive *a = archive_write_new();
	archive_write_set_format_pax_restricted(a);
	if (strcmp(filter, "none"))
		assert_int_equal(archive_write_add_filter_by_name(a, filter), ARCHIVE_OK);
	assert_int_equal(archive_write_open_memory(a, out, cap, &used), ARCHIVE_OK);
	struct archive_entry *e = archive_entry_new();
	archive_entry_set_pathname(e, "caf\xc3\xa9");
	archive_entry_set_filetype(e, AE_IFREG);
	archive_entry_set_perm(e, 0755);
	archive_entry_set_size(e, 3);
	archive_entry_set_mtime(e, 100, 5);
	for (size_t i = 0; i < n_xattrs; i++)
		archive_entry_xattr_add_entry(e, xattrs[i], "v", 1);
	if (archive_write_header(a, e) != ARCHIVE_OK)
		fail_msg("%s", archive_error_string(a));
	assert_int_equal(archive_write_data(a, "abc", 3), 3);
	archive_entry_free(e);
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	archive_write_free(a);
	return used;
}

static void test_packing_does_not_count(void **state)
{
	static uint8_t out[65536];
	static const char *const names[] = { "user.b", "user.a", "trusted.overlay.opaque" };
	static const char *const turned[] = { "user.a", "user.b" };
	static const char *const filters[] = { "none", "gzip", "zstd" };
	char first[LAYER_DIGEST_LEN + 1], other[LAYER_DIGEST_LEN + 1];
	assert_int_equal(import_bytes(test_dir, out, packed("none", names, 3, out, sizeof(out)), first), 0);
	for (size_t i = 0; i < ARRAY_SIZE(filters); i++) {
		assert_int_equal(import_bytes(test_dir, out, packed(filters[i], turned, 2, out, sizeof(out)), other), 0);
		assert_string_equal(first, other);
	}
	assert_int_equal(import_bytes(test_dir, out, packed("none", turned, 1, out, sizeof(out)), other), 0);
	assert_string_not_equal(first, other);
	/* Cut compressed streams are refused, too. */
	for (size_t i = 1; i < ARRAY_SIZE(filters); i++) {
		size_t n = packed(filters[i], NULL, 0, out, sizeof(out));
		assert_true(import_bytes(test_dir, out, n / 2, other) < 0);
	}
	assert_int_equal(count(test_dir, ".tmp-"), 0);
}

static void test_layer_stays_as_published(void **state)
{
	char digest[LAYER_DIGEST_LEN + 1], path[PATH_MAX];
	struct stat before, after;
	struct dsec_error e;
	import_tree(test_dir, NULL, digest);
	assert_int_equal(layer_image_path(test_dir, digest, path, sizeof(path), &e), 0);
	assert_int_equal(stat(path, &before), 0);
	import_tree(test_dir, NULL, digest);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	struct layer_info info;
	assert_int_equal(layer_info_read(test_dir, digest, &info, &e), 0);
	assert_int_equal(info.size_bytes, (uint64_t)before.st_size);
	assert_int_equal(info.files, ARRAY_SIZE(tree) + 7); /* and the mount points */
	assert_true(json_is_object(json_object_get(info.config, "env")));
	layer_info_done(&info);
	digest[20] = digest[20] == '0' ? '1' : '0';
	assert_int_equal(layer_info_read(test_dir, digest, &info, &e), -ENOENT);
	assert_int_equal(e.code, DSEC_E_LAYER_NOT_FOUND);
	assert_false(layer_digest_valid("sha256:../../../../../etc/passwd"));
	assert_int_equal(layer_info_read(test_dir, "sha256:xyz", &info, &e), -EINVAL);
}

static void test_many_at_once(void **state)
{
	enum { WORKERS = 6 };
	pid_t pids[WORKERS];
	for (int i = 0; i < WORKERS; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			char digest[LAYER_DIGEST_LEN + 1];
			const struct tar_entry *one[] = { &tree[2] };
			_exit(import_entries(test_dir, one, 1, digest) < 0);
		}
	}
	for (int i = 0; i < WORKERS; i++) {
		int status;
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(count(test_dir, "sha256-"), 1);
	assert_int_equal(count(test_dir, ".tmp-"), 0);
}

/* Killed in the middle: a temporary stays until the next start, no layer shows. */
static void test_killed_import_is_swept(void **state)
{
	int in[2];
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	tar_add(&b, &tree[1]);
	tar_add(&b, &tree[2]);
	assert_int_equal(pipe(in), 0);
	pid_t pid = fork();
	if (!pid) {
		struct import_result res;
		struct dsec_error e;
		close(in[1]);
		_exit(layer_import(test_dir, in[0], false, &stop, &res, &e) < 0);
	}
	close(in[0]);
	assert_int_equal(write_all(in[1], buf_ptr(&b), buf_len(&b)), 0);
	for (int i = 0; i < 500 && count(test_dir, ".tmp-") == 0; i++)
		usleep(10000);
	/* Alive: not an orphan. */
	assert_int_equal(layer_store_sweep(test_dir), 0);
	assert_int_equal(count(test_dir, ".tmp-"), 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(in[1]);
	assert_int_equal(count(test_dir, ".tmp-"), 1);
	assert_int_equal(layer_store_sweep(test_dir), 1);
	assert_int_equal(count(test_dir, ".tmp-"), 0);
	assert_int_equal(count(test_dir, "sha256-"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_same_tree_same_digest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_times_count_where_the_stream_has_them, setup, teardown),
		cmocka_unit_test_setup_teardown(test_packing_does_not_count, setup, teardown),
		cmocka_unit_test_setup_teardown(test_layer_stays_as_published, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_import_is_swept, setup, teardown),
	};
	if (geteuid()) {
		puts("1..0 # SKIP a layer keeps owners: needs root");
		return 77;
	}
	setlocale(LC_CTYPE, "C.UTF-8"); /* as layer_import_main does */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
