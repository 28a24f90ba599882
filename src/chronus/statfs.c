/* statfs.c */
#include <unistd.h>
#include "chronus/chronus-internal.h"
void statfs_watch(struct exec *x, int fd) { close(fd); }
void statfs_usage_reply(struct chronus *c, const struct wire_disk_usage *u) {}
bool statfs_child_exited(struct chronus *c, pid_t pid) { return false; }
void statfs_tick(struct chronus *c, uint64_t now) {}
uint64_t statfs_deadline(struct chronus *c) { return CHRONUS_NONE; }
