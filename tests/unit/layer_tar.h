/* layer_tar.h: hand-made tar streams for the layer tests, hostile ones included. */
#pragma once
#include "unit.h"
#include <fcntl.h>
#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fdio.h"

struct tar_entry {
	char type; /* '0' file, '1' hard link, '2' symbolic link, '3' char, '5' directory, '6' FIFO */
	const char *name, *link, *data;
	unsigned mode, uid, gid, mtime;
};

/* Octal digits right-aligned in a field of n bytes, NUL-terminated. */
static void tar_octal(char *field, size_t n, uint64_t value)
{
	field[n - 1] = 0;
	for (size_t i = n - 1; i-- > 0; value >>= 3)
		field[i] = (char)('0' + (value & 7));
}

static void tar_add(struct buf *b, const struct tar_entry *e)
{
	char h[512] = { 0 };
	size_t n = e->data ? strlen(e->data) : 0;
	assert_true(strlen(e->name) <= 100);
	memcpy(h, e->name, strlen(e->name));
	tar_octal(h + 100, 8, e->mode ? e->mode : e->type == '5' ? 0755 : 0644);
	tar_octal(h + 108, 8, e->uid);
	tar_octal(h + 116, 8, e->gid);
	tar_octal(h + 124, 12, n);
	tar_octal(h + 136, 12, e->mtime);
	memset(h + 148, ' ', 8);
	h[156] = e->type;
	if (e->link)
		memcpy(h + 157, e->link, strlen(e->link));
	memcpy(h + 257, "ustar\0" "00", 8);
	tar_octal(h + 329, 8, 1);
	tar_octal(h + 337, 8, 3);
	unsigned sum = 0;
	for (int i = 0; i < 512; i++)
		sum += (unsigned char)h[i];
	tar_octal(h + 148, 7, sum);
	assert_int_equal(buf_append(b, h, sizeof(h)), 0);
	char block[512] = { 0 };
	if (n) {
		assert_true(n <= sizeof(block));
		memcpy(block, e->data, n);
		assert_int_equal(buf_append(b, block, sizeof(block)), 0);
	}
}

static inline void tar_end(struct buf *b)
{
	char zero[1024] = { 0 };
	assert_int_equal(buf_append(b, zero, sizeof(zero)), 0);
}

/* A descriptor to read the first n bytes of the stream from. */
static inline int tar_fd(const void *data, size_t n)
{
	int fd = memfd_create("tar", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite_all(fd, data, n, 0), 0);
	return fd;
}

static char test_dir[64];

static inline int make_test_dir_in(const char *where)
{
	snprintf(test_dir, sizeof(test_dir), "%s/layers-u-XXXXXX", where);
	return mkdtemp(test_dir) ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline int remove_tree(const char *path)
{
	return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
