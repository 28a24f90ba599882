/* rmtree.h: removes a tree below a directory descriptor.
 *
 * Used by the importer and the store. Never follows a symbolic link, never
 * uses more open descriptors than the tree is deep (2,048 at most). A mount
 * point in the way stops it with EBUSY. Absent is success.
 */
#pragma once

int rmtree_at(int dirfd, const char *name);
