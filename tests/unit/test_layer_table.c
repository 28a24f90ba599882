/* The table of layer mounts: one a layer, kept in its own namespace, dropped when
 * the layer has left the store, and never under a mount made from it. */
#include "layer_tar.h"
#include <sched.h>
#include <sys/mount.h>
#include "layer/import.h"
#include "layer/layer_table.h"
#include "layer/rmtree.h"

static volatile sig_atomic_t stop;
static char mounts[96], digest[LAYER_DIGEST_LEN + 1];

static int setup(void **state)
{
	if (make_test_dir_in("/tmp") < 0)
		return -1;
	snprintf(mounts, sizeof(mounts), "%s/mnt", test_dir);
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	tar_add(&b, &(struct tar_entry){ '0', "f", .data = "content" });
	tar_end(&b);
	_cleanup_close_ int fd = tar_fd(buf_ptr(&b), buf_len(&b));
	struct import_result res;
	struct dsec_error e;
	if (mkdir(mounts, 0700) < 0 || layer_import(test_dir, fd, false, &stop, &res, &e) < 0)
		return -1;
	memcpy(digest, res.digest, sizeof(digest));
	layer_info_done(&res.info);
	return 0;
}

static int teardown(void **state)
{
	return remove_tree(test_dir);
}

static void assert_readable(int mount_fd)
{
	_cleanup_free_ char *text = NULL;
	assert_int_equal(read_file_at(mount_fd, "f", 64, &text, NULL), 0);
	assert_string_equal(text, "content");
}

static void remove_layer(void)
{
	char name[LAYER_DIR_NAME_LEN + 1];
	_cleanup_close_ int dir = open(test_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	layer_dir_name(digest, name);
	assert_int_equal(rmtree_at(dir, name), 0);
}

static void test_one_mount_a_layer(void **state)
{
	struct layer_table *t;
	struct dsec_error e;
	int first, again;
	assert_int_equal(layer_table_new(test_dir, mounts, &t), 0);
	assert_int_equal(layer_table_get(t, digest, &first, &e), 0);
	assert_int_equal(layer_table_get(t, digest, &again, &e), 0);
	assert_int_equal(first, again);
	assert_readable(first);
	assert_int_equal(openat(first, "new", O_CREAT | O_WRONLY, 0644), -1);
	assert_int_equal(errno, EROFS);
	assert_int_equal(layer_table_forget(t, digest), -EBUSY); /* used a moment ago */
	layer_table_free(t);
	assert_int_equal(rmdir(mounts), 0); /* unmounted, mount points removed */
	assert_int_equal(mkdir(mounts, 0700), 0);
}

static void test_a_removed_layer_is_dropped(void **state)
{
	struct layer_table *t;
	struct dsec_error e;
	int fd;
	assert_int_equal(layer_table_new(test_dir, mounts, &t), 0);
	assert_int_equal(layer_table_get(t, digest, &fd, &e), 0);
	assert_int_equal(layer_table_sweep(t), 0);
	/* What an overlay holds: a clone of the mount. */
	_cleanup_close_ int clone = open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	assert_true(clone >= 0);
	remove_layer();
	assert_int_equal(layer_table_sweep(t), 1);
	assert_int_equal(layer_table_sweep(t), 0);
	assert_readable(clone);
	assert_int_equal(layer_table_get(t, digest, &fd, &e), -ENOENT);
	assert_int_equal(e.code, DSEC_E_LAYER_NOT_FOUND);
	layer_table_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_mount_a_layer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_removed_layer_is_dropped, setup, teardown),
	};
	if (geteuid() || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		puts("1..0 # SKIP mounting needs root");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
