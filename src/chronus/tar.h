/* tar.h: ustar headers with pax records and GNU long names, both ways.
 *
 * Used by file workers (file_tar.c), on their one thread. The reader takes bytes
 * from a callback and hands out one entry at a time; the archive comes from
 * anybody, so every number is checked and names are at most TAR_NAME_MAX bytes.
 * It never touches a file system. Understood: ustar, pax (path, linkpath, size,
 * mtime), GNU long names, base-256 numbers. Refused: sparse files, several volumes.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TAR_BLOCK 512
#define TAR_NAME_MAX 4095
#define TAR_HEADER_MAX (TAR_BLOCK * 2 + 2 * (TAR_NAME_MAX + 64) + 3 * 64 + TAR_BLOCK * 2)

enum tar_type { TAR_FILE = '0', TAR_HARDLINK, TAR_SYMLINK, TAR_CHAR, TAR_BLOCK_DEVICE, TAR_DIRECTORY, TAR_FIFO };

struct tar_entry {
	enum tar_type type;
	char name[TAR_NAME_MAX + 1], link[TAR_NAME_MAX + 1];
	uint32_t mode, uid, gid, major, minor;
	uint64_t size, mtime;
};

/* The header blocks of an entry (pax ones first where a field needs them) into
 * out[TAR_HEADER_MAX]. Bytes, a multiple of TAR_BLOCK. */
size_t tar_write_header(const struct tar_entry *e, uint8_t *out);
static inline size_t tar_padding(uint64_t size) { return (size_t)(-size & (TAR_BLOCK - 1)); }

struct tar_reader {
	/* Up to n bytes, 0 at the end, negative errno. */
	ssize_t (*read)(void *user, void *p, size_t n);
	void *user;
	uint64_t data_left; /* of the current entry */
	size_t padding;     /* after it */
	int ended;          /* the archive's end mark was seen */
};
/* 1 and *ret, 0 at the end; -EBADMSG: not a tar archive or cut short;
 * -ENAMETOOLONG; -ENOTSUP: a kind that is refused; or what read said. The rest of
 * the former entry's data is skipped. */
int tar_next(struct tar_reader *r, struct tar_entry *ret);
ssize_t tar_read_data(struct tar_reader *r, void *p, size_t n); /* of the current entry; 0 at its end */
