/* cleanup.h: scope-bound release of memory and descriptors.
 *
 * Used by every component, on any thread. Owns nothing by itself: a variable
 * marked _cleanup_* releases what it holds when it leaves scope; TAKE_PTR and
 * TAKE_FD hand the value over and disarm the variable. Descriptors use -1 (or
 * any negative number) for "none". errno is preserved by every cleanup.
 */
#pragma once
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <dirent.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

static inline void base_freep(void *p)
{
	free(*(void **)p);
}
static inline int base_close(int fd)
{
	if (fd >= 0) {
		int saved = errno;
		close(fd);
		errno = saved;
	}
	return -1;
}
static inline void base_closep(int *fd)
{
	*fd = base_close(*fd);
}
static inline void base_fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}
static inline void base_closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

#define _cleanup_free_ _cleanup_(base_freep)
#define _cleanup_close_ _cleanup_(base_closep)
#define _cleanup_fclose_ _cleanup_(base_fclosep)
#define _cleanup_closedir_ _cleanup_(base_closedirp)

/* Hand the pointer / descriptor over and leave NULL / -1 behind. */
#define TAKE_PTR(p)                    \
	({                             \
		__typeof__(p) t_ = (p); \
		(p) = NULL;            \
		t_;                    \
	})
#define TAKE_FD(fd)        \
	({                 \
		int t_ = (fd); \
		(fd) = -1; \
		t_;        \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
/* Token for token as in <sys/param.h> (which uv.h includes), so that either may come first. */
/* clang-format off */
#define MIN(a,b) (((a)<(b))?(a):(b))
#define MAX(a,b) (((a)>(b))?(a):(b))
/* clang-format on */
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
