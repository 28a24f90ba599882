/* dsec/file.h: files inside a sandbox.
 *
 * Threads, blocking and errors as in dsec/client.h. Paths are absolute, or
 * relative to the user's home; `user` (NULL: the sandbox's) is who does it, with
 * that user's rights.
 */
#ifndef DSEC_FILE_H
#define DSEC_FILE_H
#include "dsec/client.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dsec_file {
	const char *name; /* bytes as on disk */
	const char *type; /* file, directory, symlink, fifo, socket, char, block */
	const char *link; /* of a symbolic link, else NULL */
	unsigned mode;    /* permission bits */
	uint64_t size, inode;
	double mtime;     /* seconds since 1970 */
	unsigned uid, gid, nlink;
	const char *json;
	void *internal;
};

struct dsec_file_list {
	struct dsec_file *items; /* owned by the list, sorted by name */
	size_t n;
};

/* follow: of what a symbolic link points to. */
DSEC_API int dsec_file_stat(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
			    bool follow, struct dsec_file **ret, struct dsec_error *e);
DSEC_API int dsec_file_list(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
			    struct dsec_file_list **ret, struct dsec_error *e);
/* length 0: to the end. */
DSEC_API int dsec_file_read(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
			    uint64_t offset, uint64_t length, dsec_write_fn sink, void *sink_user,
			    struct dsec_error *e);
/* Replaces the file atomically. mode 0: 0644. parents: makes missing directories. */
DSEC_API int dsec_file_write(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
			     unsigned mode, bool parents, dsec_read_fn source, void *source_user,
			     struct dsec_error *e);
DSEC_API int dsec_file_mkdir(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
			     unsigned mode, bool parents, struct dsec_error *e);
DSEC_API int dsec_file_move(struct dsec_client *c, const char *sandbox_id, const char *from, const char *to,
			    const char *user, bool overwrite, struct dsec_error *e);
DSEC_API int dsec_file_remove(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
			      bool recursive, struct dsec_error *e);
/* A directory as a tar stream, and a tar stream into a directory (made if it is
 * missing). The stream comes from inside: whoever unpacks it must distrust it. */
DSEC_API int dsec_archive_get(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
			      dsec_write_fn sink, void *sink_user, struct dsec_error *e);
DSEC_API int dsec_archive_put(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
			      dsec_read_fn source, void *source_user, struct dsec_error *e);

DSEC_API void dsec_file_free(struct dsec_file *f);
DSEC_API void dsec_file_list_free(struct dsec_file_list *l);

#ifdef __cplusplus
}
#endif
#endif
