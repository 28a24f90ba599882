/* layer_import.c: `dsec layer import`: a directory or a tar file becomes a layer. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/layer_put.h"
#include "cli/tar_io.h"
#include "cli/verbs.h"

#define COPY_CHUNK (256 * 1024)

struct import {
	int fd; /* the directory or the file */
	bool is_dir;
	struct tar_count count;
	char why[TAR_WHY_MAX];
};

static int copy_file(int from, int to)
{
	_cleanup_free_ char *chunk = malloc(COPY_CHUNK);
	if (!chunk)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(from, chunk, COPY_CHUNK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		int r = write_all(to, chunk, (size_t)n);
		if (r < 0)
			return r;
	}
}

static int work(int fd, void *user)
{
	struct import *i = user;
	return i->is_dir ? tar_pack(i->fd, fd, true, &i->count, i->why) : copy_file(i->fd, fd);
}

static int import(const struct common *c, const char *from, const char *word)
{
	struct import i = { .fd = -1 };
	struct stat st;
	char full[LAYER_NAME_MAX], real[PATH_MAX], source[PATH_MAX + 8];
	bool is_stdin = !strcmp(from, "-");
	_cleanup_close_ int own = is_stdin ? -1 : open(from, O_RDONLY | O_CLOEXEC);
	i.fd = is_stdin ? STDIN_FILENO : own;
	if (i.fd < 0 || fstat(i.fd, &st) < 0)
		return cli_fail_with(c, EXIT_FAILED, "local_file", "%s: %s", from, strerror(errno));
	i.is_dir = S_ISDIR(st.st_mode);
	snprintf(source, sizeof(source), "%s:%s", i.is_dir ? "dir" : "tar",
		 is_stdin ? "-" : realpath(from, real) ? real : from);
	struct dsec_client *client = open_client(c);
	if (!client)
		return EXIT_FAILED;
	struct pump pump = { .work = work, .user = &i };
	int status = layer_full_name(c, client, word, full);
	if (!status)
		status = layer_put(c, client, full, source, &pump, i.why);
	if (!status && i.count.skipped)
		fprintf(stderr, "dsec: %llu sockets were left out\n", (unsigned long long)i.count.skipped);
	dsec_client_free(client);
	return status;
}

static const struct option options[] = { COMMON_LONG, { 0 } };

static int import_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_layer_import };
	for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) >= 0;) {
		int r = common_option(&c, o);
		if (r >= 0)
			return r;
	}
	if (argc - optind != 2)
		return usage_error(c.verb, "wants DIR or TAR, and NAME[@VERSION]");
	return import(&c, argv[optind], argv[optind + 1]);
}

const struct verb verb_layer_import = {
	"layer import", import_run, "make a layer of a directory or a tar file",
	"usage: dsec layer import DIR|TAR|- NAME[@VERSION] [--json]\n\n"
	"A directory is sent in canonical form (sorted, numeric owners, hard links kept, other file systems\n"
	"left out); a tar file (plain, gzip, zstd) as it is; - is standard input. Without VERSION: the next number.\n",
	.options = options, .completes = COMPLETES_FILE
};
