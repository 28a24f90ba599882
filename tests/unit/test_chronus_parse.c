/* passwd and group files, the tar format, and the text of meminfo. */
#include "unit.h"
#include "base/cleanup.h"
#include "chronus/chronus-internal.h"
#include "chronus/tar.h"

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
			     "# comment\n"
			     "broken\n"
			     "nouid:x::5:::\n"
			     "big:x:65536:5::/:/bin/sh\n"
			     "agent:x:1000:1001:Agent,,:/home/agent:/bin/zsh\n"
			     "last:x:65535:65535::/last:";
static const char group[] = "root:x:0:\nagents:x:1001:\nvideo:x:44:agent,other\naudio:x:29:other,agent2\ndocker:x:7:agent\n";

static void test_users(void **state)
{
	struct sandbox_user u;
	struct dsec_error e;
	assert_int_equal(user_parse("", passwd, group, &u, &e), 0);
	assert_true(u.uid == 0 && u.gid == 0 && u.n_groups == 1);
	assert_string_equal(u.home, "/root");
	assert_int_equal(user_parse("agent", passwd, group, &u, &e), 0);
	assert_true(u.uid == 1000 && u.gid == 1001 && u.n_groups == 3);
	assert_true(u.groups[0] == 1001 && u.groups[1] == 44 && u.groups[2] == 7);
	assert_string_equal(u.shell, "/bin/zsh");
	assert_int_equal(user_parse("1000", passwd, group, &u, &e), 0);
	assert_string_equal(u.name, "agent");
	assert_int_equal(user_parse("last", passwd, group, &u, &e), 0);
	assert_int_equal(u.uid, SANDBOX_ID_LAST);
	assert_string_equal(u.shell, "/bin/sh");
	assert_int_equal(user_parse("77", passwd, group, &u, &e), 0);
	assert_true(u.uid == 77 && u.gid == 77);
	assert_string_equal(u.home, "/");
	assert_int_equal(user_parse("agent:video", passwd, group, &u, &e), 0);
	assert_int_equal(u.gid, 44);
	assert_int_equal(user_parse("5:65535", passwd, group, &u, &e), 0);
	assert_int_equal(u.gid, 65535);
	assert_int_equal(user_parse("root", "", "", &u, &e), 0);
	assert_string_equal(u.home, "/root");
}

static void test_users_refused(void **state)
{
	static const char *const bad[] = { "nobody", "65536", "-1", "agent:none", "agent:65536", "agent:", "big", "nouid", "broken",
					   "1000x", "000000", "roo", "rootx", ": :" };
	struct sandbox_user u;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct dsec_error e = { 0 };
		assert_int_equal(user_parse(bad[i], passwd, group, &u, &e), -ENOENT);
		assert_int_equal(e.code, DSEC_E_BAD_USER);
	}
}

static void test_too_long_fields(void **state)
{
	char text[2000], name[101] = "";
	struct sandbox_user u;
	struct dsec_error e;
	memset(name, 'n', 100);
	snprintf(text, sizeof(text), "%s:x:5:5::/h:\nok:x:6:6::/%0*d:/bin/sh\n", name, 500, 0);
	assert_int_equal(user_parse(name, text, "", &u, &e), -ENOENT); /* longer than a name may be */
	assert_int_equal(user_parse("ok", text, "", &u, &e), 0);
	assert_string_equal(u.home, "/"); /* too long to use */
}

static void test_groups_are_bounded(void **state)
{
	char text[8192];
	size_t n = 0;
	struct sandbox_user u;
	struct dsec_error e;
	for (int i = 0; i < 200; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "g%d:x:%d:agent\n", i, 2000 + i);
	assert_int_equal(user_parse("agent", passwd, text, &u, &e), 0);
	assert_int_equal(u.n_groups, ARRAY_SIZE(u.groups));
}

/* ---- tar ---- */

struct memory {
	const uint8_t *p;
	size_t n, step;
};

static ssize_t read_memory(void *user, void *p, size_t n)
{
	struct memory *m = user;
	size_t k = MIN(MIN(n, m->n), m->step);
	memcpy(p, m->p, k);
	m->p += k;
	m->n -= k;
	return (ssize_t)k;
}

static struct tar_entry in, out;

static void round_trip(size_t step)
{
	uint8_t h[TAR_HEADER_MAX + 4096] = { 0 };
	size_t n = tar_write_header(&in, h);
	assert_int_equal(n % TAR_BLOCK, 0);
	assert_true(n <= TAR_HEADER_MAX);
	struct memory m = { h, n + (in.size < 2048 ? in.size + tar_padding(in.size) : 0), step };
	struct tar_reader r = { .read = read_memory, .user = &m };
	assert_int_equal(tar_next(&r, &out), 1);
	assert_string_equal(in.name, out.name);
	assert_string_equal(in.link, out.link);
	assert_true(in.type == out.type && in.mode == out.mode && in.size == out.size && in.mtime == out.mtime);
	assert_int_equal(tar_next(&r, &out), in.size < 2048 ? 0 : -EBADMSG);
}

static void test_tar_names_at_the_limits(void **state)
{
	static const size_t lengths[] = { 1, 99, 100, 101, 155, 256, 1000, TAR_NAME_MAX };
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++)
		for (size_t j = 0; j < ARRAY_SIZE(lengths); j++)
			for (size_t step = 1; step < 5000; step = step * 7 + 30) {
				in = (struct tar_entry){ .type = TAR_SYMLINK, .mode = 0777, .mtime = 1 };
				memset(in.name, 'n', lengths[i]);
				memset(in.link, 'l', lengths[j]);
				round_trip(step);
			}
}

static void test_tar_sizes_at_the_limits(void **state)
{
	static const uint64_t sizes[] = { 0, 1, 511, 512, 513, 2047, (1ull << 33) - 1, 1ull << 33, 1ull << 45 };
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		in = (struct tar_entry){ .type = TAR_FILE, .name = "f", .mode = 07777, .size = sizes[i], .mtime = (1ull << 33) - 1 };
		round_trip(100);
	}
}

static int first(const uint8_t *p, size_t n)
{
	struct memory m = { p, n, SIZE_MAX };
	struct tar_reader r = { .read = read_memory, .user = &m };
	return tar_next(&r, &out);
}

/* Rewrites one field of a header and its checksum. */
static void patch(uint8_t *h, size_t at, const char *text, size_t n)
{
	unsigned sum = 0;
	memcpy(h + at, text, n);
	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
}

static void test_tar_odd_headers(void **state)
{
	uint8_t h[TAR_HEADER_MAX];
	in = (struct tar_entry){ .type = TAR_FILE, .name = "dir/", .mode = 0644 };
	size_t n = tar_write_header(&in, h);
	assert_int_equal(first(h, n), 1);
	assert_int_equal(out.type, TAR_DIRECTORY); /* as the oldest tars say it */
	assert_int_equal(first(h, n - 1), -EBADMSG);
	assert_int_equal(first(h, 0), 0);
	h[0] ^= 1;
	assert_int_equal(first(h, n), -EBADMSG); /* checksum */
	h[0] ^= 1;
	patch(h, 124, "0000000000x", 12);
	assert_int_equal(first(h, n), -EBADMSG); /* size is no number */
	patch(h, 124, "\x80\0\0\0\0\0\0\0\0\0\2\1", 12); /* base 256 */
	assert_int_equal(first(h, n), 1);
	patch(h, 156, "0", 1);
	patch(h, 0, "f\0\0\0", 4);
	assert_int_equal(first(h, n), 1);
	assert_int_equal(out.size, 513);
	patch(h, 124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12); /* negative */
	assert_int_equal(first(h, n), -EBADMSG);
	patch(h, 124, "00000000000", 12);
	patch(h, 156, "S", 1);
	assert_int_equal(first(h, n), -ENOTSUP); /* GNU sparse */
	patch(h, 156, "M", 1);
	assert_int_equal(first(h, n), -ENOTSUP); /* continued volume */
	patch(h, 156, "0", 1);
	patch(h, 345, "some/prefix", 11);
	assert_int_equal(first(h, n), 1);
	assert_string_equal(out.name, "some/prefix/f");
	patch(h, 0, "\0\0\0\0", 4);
	patch(h, 345, "\0", 1);
	assert_int_equal(first(h, n), -EBADMSG); /* no name */
}

static void test_tar_pax(void **state)
{
	static const struct {
		const char *records;
		int want;
	} tries[] = {
		{ "12 path=abc\n", 1 },
		{ "12 path=abc\n16 mtime=1x5e99\n", -EBADMSG },
		{ "16 mtime=1.5e99\n", 1 }, /* a fraction is dropped unread */
		{ "13 mtime=1.5\n", 1 },
		{ "12 mtime=-5\n", 1 },
		{ "11 path=abc\n", -EBADMSG },
		{ "99 path=abc\n", -EBADMSG },
		{ "path=abc\n", -EBADMSG },
		{ "5 x\n\n", -EBADMSG },
		{ "3 \n", -EBADMSG },
		{ "22 GNU.sparse.major=1\n", -ENOTSUP },
		{ "12 uname=ab\n", 1 },
		{ "99999999999999999999999 path=a\n", -EBADMSG },
	};
	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		uint8_t raw[4 * TAR_BLOCK] = { 0 };
		size_t n = strlen(tries[i].records);
		char size[24];
		in = (struct tar_entry){ .type = TAR_FILE, .name = "x", .mode = 0644 };
		tar_write_header(&in, raw);
		snprintf(size, sizeof(size), "%011zo", n);
		patch(raw, 124, size, 12);
		patch(raw, 156, "x", 1);
		memcpy(raw + TAR_BLOCK, tries[i].records, n);
		tar_write_header(&in, raw + 2 * TAR_BLOCK);
		assert_int_equal(first(raw, 3 * TAR_BLOCK), tries[i].want);
		assert_int_equal(first(raw, 2 * TAR_BLOCK), tries[i].want < 0 ? tries[i].want : i == 0 ? -EBADMSG : 0);
	}
}

static void test_tar_gnu_long_name(void **state)
{
	static uint8_t raw[TAR_BLOCK * 20];
	char size[24];
	in = (struct tar_entry){ .type = TAR_FILE, .name = "././@LongLink", .mode = 0644 };
	for (size_t n = TAR_NAME_MAX - 1; n <= TAR_NAME_MAX + 1; n++) {
		memset(raw, 0, sizeof(raw));
		tar_write_header(&in, raw);
		snprintf(size, sizeof(size), "%011zo", n + 1);
		patch(raw, 124, size, 12);
		patch(raw, 156, "L", 1);
		memset(raw + TAR_BLOCK, 'z', n);
		tar_write_header(&in, raw + TAR_BLOCK + n + 1 + tar_padding(n + 1));
		int k = first(raw, sizeof(raw));
		assert_int_equal(k, n <= TAR_NAME_MAX ? 1 : -ENAMETOOLONG);
		if (k == 1)
			assert_int_equal(strlen(out.name), n);
	}
}

/* ---- meminfo ---- */

static void test_meminfo(void **state)
{
	char v1[] = "cache 1\nrss 2\ntotal_cache 8192000\ntotal_rss 4096000\ntotal_shmem 1024000\ntotal_mapped_file 512000\n"
		    "total_active_file 2048000\ntotal_inactive_file 5120000\n";
	char v2[] = "anon 4096000\nfile 8192000\nshmem 1024000\nfile_mapped 512000\nactive_file 2048000\ninactive_file 5120000\n"
		    "slab_reclaimable 1024\nslab 2048\n";
	struct meminfo_view a = { .limit = 256 << 20, .usage = 64 << 20 }, b = a;
	char pa[4096], pb[4096];
	meminfo_parse_stat(v1, &a);
	meminfo_parse_stat(v2, &b);
	assert_true(a.cache == 8192000 && a.anon == 4096000 && a.shmem == 1024000 && a.inactive_file == 5120000);
	assert_true(b.cache == a.cache && b.anon == a.anon && b.mapped == a.mapped && b.slab == 2048);
	size_t n = meminfo_format(&a, pa, sizeof(pa));
	assert_non_null(strstr(pa, "MemTotal:             262144 kB\n"));
	assert_non_null(strstr(pa, "MemFree:              196608 kB\n"));
	assert_non_null(strstr(pa, "SwapTotal:                 0 kB\n"));
	/* Whatever the figures, the length is the same. */
	struct meminfo_view extreme = { .limit = 1ull << 49, .usage = UINT64_MAX, .cache = 1ull << 49 };
	assert_int_equal(meminfo_format(&extreme, pb, sizeof(pb)), n);
	assert_int_equal(meminfo_format(&(struct meminfo_view){ 0 }, pb, sizeof(pb)), n);
	assert_int_equal(strlen(pb), n);
	/* More in use than the limit (usage lags) is not a negative number. */
	b.usage = b.limit + 4096;
	meminfo_format(&b, pb, sizeof(pb));
	assert_non_null(strstr(pb, "MemFree:                   0 kB\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_users_refused),
		cmocka_unit_test(test_too_long_fields),
		cmocka_unit_test(test_groups_are_bounded),
		cmocka_unit_test(test_tar_names_at_the_limits),
		cmocka_unit_test(test_tar_sizes_at_the_limits),
		cmocka_unit_test(test_tar_odd_headers),
		cmocka_unit_test(test_tar_pax),
		cmocka_unit_test(test_tar_gnu_long_name),
		cmocka_unit_test(test_meminfo),
	};
	return cmocka_run_group_tests_name("chronus_parse", tests, NULL, NULL);
}
