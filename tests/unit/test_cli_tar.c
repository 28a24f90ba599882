/* tar_io: the same tree gives the same bytes and comes back whole; a hostile stream
 * leaves nothing outside the target. */
#include "unit.h"
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "cli/tar_io.h"

static char top[64];

static int set_up(void **state)
{
	strcpy(top, "/tmp/dsec-test-tar-XXXXXX");
	return mkdtemp(top) && !chdir(top) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return chdir("/") || system(command);
}

static int open_dir(const char *path)
{
	mkdir(path, 0755);
	int fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	return fd;
}

static void put(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	fchmod(fd, mode);
	close(fd);
}

static void expect(const char *path, const char *text)
{
	char got[64] = { 0 };
	int fd = open(path, O_RDONLY | O_NOFOLLOW);
	assert_true(fd >= 0);
	assert_true(read(fd, got, sizeof(got) - 1) >= 0);
	assert_string_equal(got, text);
	close(fd);
}

static off_t pack(const char *dir, int out)
{
	struct tar_count count;
	char why[TAR_WHY_MAX];
	int fd = open_dir(dir), r = tar_pack(fd, out, true, &count, why);
	close(fd);
	if (r < 0)
		fail_msg("%s", why);
	off_t n = lseek(out, 0, SEEK_END);
	lseek(out, 0, SEEK_SET);
	return n;
}

static void test_tar_is_canonical_and_whole(void **state)
{
	struct tar_count count;
	struct stat a, b;
	char why[TAR_WHY_MAX], text[65536], again[65536];
	mkdir("from", 0755);
	mkdir("from/z", 0755);
	mkdir("from/a", 0700);
	put("from/z/f", "one", 0644);
	put("from/b\xff", "bytes", 0600); /* a name that is no UTF-8 */
	link("from/z/f", "from/hard");
	symlink("/nowhere", "from/l");
	int one = memfd_create("one", 0), two = memfd_create("two", 0);
	off_t n = pack("from", one);
	rename("from/z/f", "from/z/g"); /* another order in the directory */
	rename("from/z/g", "from/z/f");
	assert_int_equal(pack("from", two), n);
	assert_true(n < (off_t)sizeof(text));
	assert_int_equal(read(one, text, sizeof(text)), n);
	assert_int_equal(read(two, again, sizeof(again)), n);
	assert_memory_equal(text, again, (size_t)n);
	lseek(one, 0, SEEK_SET);
	int to = open_dir("to");
	assert_int_equal(tar_unpack(one, to, &count, why), 0);
	expect("to/z/f", "one");
	expect("to/b\xff", "bytes");
	assert_int_equal(stat("to/z/f", &a), 0);
	assert_int_equal(stat("to/hard", &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(readlink("to/l", text, sizeof(text)), 8);
	close(to);
	close(one);
	close(two);
}

struct entry {
	const char *path;
	mode_t type;
	const char *other; /* link target or content */
	bool hard;
	mode_t mode;
};

/* Unpacks a stream of these entries into "t"; the result. */
static int unpack(const struct entry *entries, size_t n, struct tar_count *count)
{
	char why[TAR_WHY_MAX];
	int fd = memfd_create("tar", 0), to = open_dir("t");
	struct archive *a = archive_write_new();
	archive_write_set_format_pax_restricted(a);
	archive_write_open_fd(a, fd);
	for (size_t i = 0; i < n; i++) {
		struct archive_entry *e = archive_entry_new();
		archive_entry_set_pathname(e, entries[i].path);
		archive_entry_set_filetype(e, entries[i].type);
		archive_entry_set_perm(e, entries[i].mode ? entries[i].mode : 0644);
		bool data = entries[i].type == AE_IFREG && !entries[i].hard;
		archive_entry_set_size(e, data ? (la_int64_t)strlen(entries[i].other) : 0);
		if (entries[i].hard)
			archive_entry_set_hardlink(e, entries[i].other);
		else if (entries[i].type == AE_IFLNK)
			archive_entry_set_symlink(e, entries[i].other);
		assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
		if (data)
			archive_write_data(a, entries[i].other, strlen(entries[i].other));
		archive_entry_free(e);
	}
	archive_write_close(a);
	archive_write_free(a);
	lseek(fd, 0, SEEK_SET);
	int r = tar_unpack(fd, to, count, why);
	assert_int_equal(r < 0, *why != 0);
	close(fd);
	close(to);
	return r;
}

#define UNPACK(...) \
	unpack((const struct entry[]){ __VA_ARGS__ }, sizeof((const struct entry[]){ __VA_ARGS__ }) / sizeof(struct entry), &count)

static void test_tar_stays_inside(void **state)
{
	struct tar_count count;
	put("outside", "safe", 0644);
	mkdir("out", 0755);
	assert_int_equal(UNPACK({ "../outside", AE_IFREG, "bad" }), -EXDEV);
	assert_int_equal(UNPACK({ "a/../../outside", AE_IFREG, "bad" }), -EXDEV);
	assert_int_equal(UNPACK({ "/tmp/outside", AE_IFREG, "bad" }), -EXDEV);
	/* Through a link of the stream's own. */
	assert_true(UNPACK({ "d", AE_IFLNK, "../out" }, { "d/f", AE_IFREG, "bad" }) < 0);
	assert_int_equal(access("out/f", F_OK), -1);
	/* A link in the way of a file is replaced, not followed. */
	assert_int_equal(UNPACK({ "l", AE_IFLNK, "../outside" }, { "l", AE_IFREG, "good" }), 0);
	expect("t/l", "good");
	/* Hard links to what is not a file of the target. */
	assert_int_equal(UNPACK({ "h", AE_IFREG, "../outside", true }), -EXDEV);
	assert_int_equal(UNPACK({ "s", AE_IFLNK, "../outside" }, { "h", AE_IFREG, "s", true }), -EXDEV);
	expect("outside", "safe");
}

static void test_tar_takes_no_powers(void **state)
{
	struct tar_count count;
	struct stat st;
	assert_int_equal(UNPACK({ "suid", AE_IFREG, "x", false, 06755 }, { "dev", AE_IFCHR, "" }, { "locked", AE_IFDIR, "", false, 0500 },
				{ "locked/f", AE_IFREG, "in" }), 0);
	assert_int_equal(stat("t/suid", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(access("t/dev", F_OK), -1);
	assert_int_equal(count.skipped, 1);
	expect("t/locked/f", "in");
}

static void test_tar_damaged(void **state)
{
	struct tar_count count;
	char why[TAR_WHY_MAX];
	int fd = memfd_create("tar", 0), to = open_dir("t");
	char junk[1024];
	memset(junk, 'x', sizeof(junk));
	assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(tar_unpack(fd, to, &count, why), -EBADMSG);
	close(fd);
	close(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tar_is_canonical_and_whole, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_tar_stays_inside, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_tar_takes_no_powers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_tar_damaged, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
