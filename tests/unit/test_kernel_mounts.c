/* Names in a tree that strangers wrote, and the CPU files. Mounts themselves: tests/integration/test_container_*. */
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "kernel/cpuinfo.h"
#include "kernel/mounts.h"

static void test_no_link_is_followed(void **state)
{
	char dir[] = "/tmp/mounts-unit-XXXXXX";
	assert_non_null(mkdtemp(dir));
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(symlinkat("/", fd, "absolute"), 0);
	assert_int_equal(symlinkat("real", fd, "inside"), 0);
	assert_int_equal(symlinkat("missing", fd, "dangling"), 0);
	assert_int_equal(mkdirat(fd, "real", 0700), 0);
	_cleanup_close_ int file = openat(fd, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_int_equal(mount_dir_beneath(fd, "absolute", 0755), -ELOOP);
	assert_int_equal(mount_dir_beneath(fd, "inside", 0755), -ELOOP);
	assert_int_equal(mount_dir_beneath(fd, "dangling", 0755), -ELOOP);
	assert_int_equal(mount_dir_beneath(fd, "file", 0755), -ENOTDIR);
	assert_int_equal(mount_dir_beneath(fd, "..", 0755), -EXDEV);
	assert_int_equal(mount_dir_beneath(fd, "/etc", 0755), -EXDEV);
	_cleanup_close_ int real = mount_dir_beneath(fd, "real", 0755);
	assert_true(real >= 0);
	_cleanup_close_ int made = mount_dir_beneath(fd, "made", 0711);
	assert_true(made >= 0);
	struct stat st;
	assert_int_equal(fstat(made, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0711);
	static const char *const names[] = { "absolute", "inside", "dangling", "file" };
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlinkat(fd, names[i], 0);
	unlinkat(fd, "real", AT_REMOVEDIR);
	unlinkat(fd, "made", AT_REMOVEDIR);
	assert_int_equal(rmdir(dir), 0);
}

static void test_cpuinfo(void **state)
{
	static const char host[] = "processor\t: 0\nflags\t: a\n\nprocessor\t: 1\nflags\t: b\n\nHardware\t: board\n";
	_cleanup_free_ char *one = NULL, *many = NULL, *none = NULL;
	assert_int_equal(cpuinfo_first(host, 1, &one), 0);
	assert_string_equal(one, "processor\t: 0\nflags\t: a\n\n");
	assert_int_equal(cpuinfo_first(host, 9, &many), 0);
	assert_string_equal(many, "processor\t: 0\nflags\t: a\n\nprocessor\t: 1\nflags\t: b\n\n");
	assert_int_equal(cpuinfo_first("no empty line", 1, &none), -EBADMSG);
	assert_null(none);
	char list[24];
	cpu_list_first(1, list);
	assert_string_equal(list, "0\n");
	cpu_list_first(CPUS_MAX, list);
	assert_string_equal(list, "0-1023\n");
	assert_true(cpus_online() >= 1);
}

int main(void)
{
	umask(0);
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_link_is_followed), cmocka_unit_test(test_cpuinfo) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
