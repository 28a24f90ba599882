/* untar.h: unpacks a tar stream from outside into a staging directory.
 *
 * Called by the importer, a short-lived child process with one thread, as root.
 * The stream is hostile: every name is resolved beneath the staging directory
 * without following symbolic links, so an entry whose path leads through one is
 * refused, as are ".." and device nodes. Owners, modes, times, hard links, holes
 * and the extended attributes user.* and security.capability are kept.
 * Limits are below; memory grows with the number of directories only.
 */
#pragma once
#include <signal.h>
#include <stdint.h>
#include "base/error.h"

#define UNTAR_ENTRIES_MAX 4000000
#define UNTAR_BYTES_MAX (256ull << 30) /* of file content, holes included */
#define UNTAR_XATTR_MAX 65536          /* one value, as the kernel has it */
#define UNTAR_XATTRS_MAX 64            /* kept of one file, the rest is counted as skipped */
#define UNTAR_ID_MAX 65535             /* a sandbox's range; above it an owner becomes UNTAR_ID_NOBODY */
#define UNTAR_ID_NOBODY 65534

struct untar_counts {
	uint64_t files;         /* entries made, directories included */
	uint64_t skipped_nodes; /* device nodes below dev/, which every sandbox gets anew */
	uint64_t skipped_xattrs; /* of name spaces that a layer does not carry */
	uint64_t clamped_owners; /* ids that no sandbox has, made nobody's */
};

/* Plain, gzip or zstd tar from in_fd to its end-of-archive marker; a stream that
 * ends before it is refused: the rest may be missing. Returns -EINTR soon after
 * *stop is set. What was unpacked by then is the caller's to remove. */
int untar(int in_fd, int stage_fd, const volatile sig_atomic_t *stop, struct untar_counts *ret,
	  struct dsec_error *e);

/* "./a//b/" -> "a/b" in place, a leading "/" dropped. -EINVAL for "..", an
 * embedded NUL is impossible. The root itself becomes "". */
int untar_normalise(char *path);
