/* tar_io.h: a directory as a tar stream, and back. On libarchive.
 *
 * Both functions block and may run on any thread, each on its own descriptors
 * (borrowed). The error sentence goes into `ret_why`.
 *
 * Packing is canonical: names sorted by bytes, numeric owners, whole seconds, no
 * access times, hard links kept, other file systems not entered; the same tree
 * gives the same bytes.
 *
 * Unpacking distrusts the stream. Every name is resolved below the target
 * directory one component at a time without following any link; a name with ".."
 * or from "/" is refused with -EXDEV, a path through a link with -ELOOP or
 * -ENOTDIR. Set-id bits, owners and device nodes are not taken over.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_WHY_MAX 512
#define TAR_DEPTH_MAX 512 /* of directories; deeper is refused */

struct tar_count {
	uint64_t entries, bytes, skipped; /* skipped: sockets; on unpacking devices too */
};

/* keep_owners: uid, gid and extended attributes as they are; otherwise all 0. */
int tar_pack(int dirfd, int out_fd, bool keep_owners, struct tar_count *ret, char ret_why[TAR_WHY_MAX]);
int tar_unpack(int in_fd, int dirfd, struct tar_count *ret, char ret_why[TAR_WHY_MAX]);
