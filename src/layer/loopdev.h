/* loopdev.h: loop devices over a regular file.
 *
 * Called by the mounter (layers where the kernel cannot mount a file, the
 * writable volume). A device made here is autoclear: it goes away with its last
 * user, also when that user is killed, so a descriptor must be held until a
 * mount holds it. Negative errno.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define LOOPDEV_PATH_MAX 32

/* Attaches file_fd (borrowed). *ret_fd holds the device; path names it. */
int loopdev_attach(int file_fd, bool read_only, bool direct_io, char ret_path[LOOPDEV_PATH_MAX], int *ret_fd);
/* The device that already carries this very file (device and inode number, not
 * its path, which differs by mount namespace). -ENOENT when there is none. */
int loopdev_find(int file_fd, char ret_path[LOOPDEV_PATH_MAX], int *ret_fd);
