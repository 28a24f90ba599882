/* rmtree.h: removes a tree below a directory descriptor.
 *
 * Used by the importer and the store. Never follows a symbolic link, never
 * leaves the file system it starts on, and is bounded in open descriptors by
 * the depth, not the size. Absent is success.
 */
#pragma once

int rmtree_at(int dirfd, const char *name);
