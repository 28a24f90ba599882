/* cp.c: `dsec cp`: files and directories into a sandbox and out of it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/cp_path.h"
#include "cli/pump.h"
#include "cli/tar_io.h"
#include "cli/verbs.h"

struct copy {
	struct common c;
	struct dsec_client *client;
	const char *user;
	struct progress progress;
	struct tar_count count;
	char why[TAR_WHY_MAX];
	int dirfd;
};

static int local_error(struct copy *k, int r, const char *path)
{
	return cli_fail_with(&k->c, EXIT_FAILED, r == -EXDEV || r == -ELOOP ? "path_unsafe" : "local_file", "%s: %s", path,
			 strerror(-r));
}

/* A failure of the pair: the local side's words are the better ones, unless it
 * only noticed that the server had given up. */
static int pair_error(struct copy *k, int local, int call, const struct dsec_error *e)
{
	if (local < 0 && (call >= 0 || (local != -EPIPE && local != -EBADMSG)))
		return cli_fail_with(&k->c, EXIT_FAILED, strstr(k->why, ": refused") ? "path_unsafe" : "local_file", "%s", k->why);
	return cli_fail(&k->c, e, EXIT_FAILED);
}

static int pack_work(int fd, void *user)
{
	struct copy *k = user;
	return tar_pack(k->dirfd, fd, false, &k->count, k->why);
}

static int unpack_work(int fd, void *user)
{
	struct copy *k = user;
	int r = tar_unpack(fd, k->dirfd, &k->count, k->why);
	char rest[4096];
	while (!r && read(fd, rest, sizeof(rest)) > 0) /* the padding behind the end mark */
		;
	return r;
}

static ssize_t read_fd(void *buf, size_t n, void *user)
{
	struct pump *p = user;
	ssize_t r = read(p->fd, buf, n);
	if (r > 0)
		progress_add(p->progress, (uint64_t)r);
	return r < 0 ? -errno : r;
}

static int write_fd(const void *data, size_t n, void *user)
{
	struct pump *p = user;
	progress_add(p->progress, n);
	return write_all(p->fd, data, n);
}

/* Where a copy lands: `to` itself, or inside it when it is a directory. */
static char *land(const char *to, bool to_is_dir, const struct cp_place *from)
{
	_cleanup_free_ char *name = from->content || !to_is_dir ? strdup("") : cp_base_name(from->path);
	return name ? cp_join(to, name) : NULL;
}

static int file_out(struct copy *k, const struct cp_place *from, const struct dsec_file *st, const char *path)
{
	struct dsec_error e;
	struct pump plain = { .fd = STDOUT_FILENO, .progress = &k->progress };
	_cleanup_free_ char *tmp = NULL;
	bool direct = !strcmp(path, "-");
	struct stat there;
	/* A device or pipe is written to, a file is replaced whole or not at all. */
	if (!direct && !stat(path, &there) && !S_ISREG(there.st_mode)) {
		plain.fd = open(path, O_WRONLY | O_CLOEXEC);
		direct = true;
	} else if (!direct) {
		if (asprintf(&tmp, "%s.dsec-XXXXXX", path) < 0) {
			tmp = NULL;
			return local_error(k, -ENOMEM, path);
		}
		plain.fd = mkostemp(tmp, O_CLOEXEC);
	}
	if (plain.fd < 0)
		return local_error(k, -errno, path);
	int r = dsec_file_read(k->client, from->id, from->path, k->user, 0, 0, write_fd, &plain, &e);
	progress_end(&k->progress);
	int local = r;
	if (!r && tmp && (fchmod(plain.fd, st->mode & 0777) < 0 || rename(tmp, path) < 0))
		local = -errno;
	if (local < 0 && tmp)
		unlink(tmp);
	if (plain.fd != STDOUT_FILENO)
		close(plain.fd);
	k->count = (struct tar_count){ .entries = 1, .bytes = st->size };
	return r < 0 ? cli_fail(&k->c, &e, EXIT_FAILED) : local < 0 ? local_error(k, local, path) : 0;
}

static int dir_out(struct copy *k, const struct cp_place *from, const char *path)
{
	struct dsec_error e;
	struct pump pump = { .work = unpack_work, .user = k, .progress = &k->progress };
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return local_error(k, -errno, path);
	_cleanup_close_ int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = dirfd < 0 ? -errno : 0;
	k->dirfd = dirfd;
	if (!r)
		r = pump_start(&pump, false);
	if (r < 0)
		return local_error(k, r, path);
	r = dsec_archive_get(k->client, from->id, from->path, k->user, pump_write, &pump, &e);
	int local = pump_finish(&pump);
	progress_end(&k->progress);
	return r < 0 || local < 0 ? pair_error(k, local, r, &e) : 0;
}

static int copy_out(struct copy *k, const struct cp_place *from, const struct cp_place *to)
{
	struct dsec_file *st = NULL;
	struct dsec_error e;
	struct stat there;
	if (dsec_file_stat(k->client, from->id, from->path, k->user, true, &st, &e) < 0)
		return cli_fail(&k->c, &e, EXIT_FAILED);
	bool is_dir = !strcmp(st->type, "directory"), into = !stat(to->path, &there) && S_ISDIR(there.st_mode);
	int status;
	_cleanup_free_ char *path = land(to->path, into, from);
	if (!path)
		status = local_error(k, -ENOMEM, to->path);
	else if (to->slash && !into && !is_dir)
		status = local_error(k, -ENOENT, to->path);
	else if (is_dir)
		status = dir_out(k, from, path);
	else if (!strcmp(st->type, "file"))
		status = file_out(k, from, st, path);
	else
		status = cli_fail_with(&k->c, EXIT_FAILED, "unsupported", "%s is neither a file nor a directory", from->path);
	dsec_file_free(st);
	return status;
}

static int file_in(struct copy *k, int fd, const struct stat *st, const struct cp_place *to, const char *path)
{
	struct dsec_error e;
	struct pump plain = { .fd = fd, .progress = &k->progress };
	unsigned mode = S_ISREG(st->st_mode) ? st->st_mode & 0777 : 0644;
	int r = dsec_file_write(k->client, to->id, path, k->user, mode, false, read_fd, &plain, &e);
	progress_end(&k->progress);
	k->count = (struct tar_count){ .entries = 1, .bytes = k->progress.bytes };
	return r < 0 ? cli_fail(&k->c, &e, EXIT_FAILED) : 0;
}

static int dir_in(struct copy *k, int dirfd, const struct cp_place *to, const char *path)
{
	struct dsec_error e;
	struct pump pump = { .work = pack_work, .user = k, .progress = &k->progress };
	k->dirfd = dirfd;
	int r = pump_start(&pump, true);
	if (r < 0)
		return local_error(k, r, path);
	r = dsec_archive_put(k->client, to->id, path, k->user, pump_read, &pump, &e);
	int local = pump_finish(&pump);
	progress_end(&k->progress);
	return r < 0 || local < 0 ? pair_error(k, local, r, &e) : 0;
}

static int copy_in(struct copy *k, const struct cp_place *from, const struct cp_place *to)
{
	struct dsec_file *there = NULL;
	struct dsec_error e = { 0 };
	struct stat st;
	bool from_stdin = !strcmp(from->path, "-");
	_cleanup_close_ int own = from_stdin ? -1 : open(from->path, O_RDONLY | O_CLOEXEC);
	int fd = from_stdin ? STDIN_FILENO : own;
	if (fd < 0 || fstat(fd, &st) < 0)
		return local_error(k, -errno, from->path);
	int r = dsec_file_stat(k->client, to->id, to->path, k->user, true, &there, &e);
	if (r < 0 && strcmp(e.code, "file_not_found"))
		return cli_fail(&k->c, &e, EXIT_FAILED);
	bool into = to->slash || (!r && !strcmp(there->type, "directory"));
	dsec_file_free(there);
	if (from_stdin && into)
		return usage_error(k->c.verb, "standard input needs a file's name in the sandbox");
	_cleanup_free_ char *path = land(to->path, into, from);
	if (!path)
		return local_error(k, -ENOMEM, from->path);
	return S_ISDIR(st.st_mode) ? dir_in(k, fd, to, path) : file_in(k, fd, &st, to, path);
}

static int copy(struct copy *k, const struct cp_place *from, const struct cp_place *to)
{
	if (from->remote == to->remote)
		return usage_error(k->c.verb, "one of the two places must be in a sandbox (ID:PATH) and one on this machine");
	k->client = open_client(&k->c);
	if (!k->client)
		return EXIT_FAILED;
	progress_start(&k->progress, "copied", k->c.json);
	int status = from->remote ? copy_out(k, from, to) : copy_in(k, from, to);
	progress_end(&k->progress);
	if (!status && k->count.skipped)
		fprintf(stderr, "dsec: %llu devices or sockets were left out\n", (unsigned long long)k->count.skipped);
	if (!status && k->c.json)
		printf("{\"entries\":%llu,\"bytes\":%llu,\"skipped\":%llu}\n", (unsigned long long)k->count.entries,
		       (unsigned long long)k->count.bytes, (unsigned long long)k->count.skipped);
	dsec_client_free(k->client);
	return status;
}

static const struct option options[] = { COMMON_LONG, { "user", required_argument, NULL, 'u' }, { 0 } };

static int cp_run(int argc, char **argv)
{
	struct copy k = { .c.verb = &verb_cp };
	for (int o; (o = getopt_long(argc, argv, "hu:", options, NULL)) >= 0;) {
		int r;
		if (o == 'u')
			k.user = optarg;
		else if ((r = common_option(&k.c, o)) >= 0)
			return r;
	}
	struct cp_place from = { 0 }, to = { 0 };
	if (argc - optind != 2 || cp_place_parse(argv[optind], &from) < 0)
		return usage_error(k.c.verb, "wants two places: FROM TO");
	int status = cp_place_parse(argv[optind + 1], &to) < 0 ? usage_error(k.c.verb, "TO is empty") : copy(&k, &from, &to);
	cp_place_done(&from);
	cp_place_done(&to);
	return status;
}

const struct verb verb_cp = {
	"cp", cp_run, "copy files into a sandbox or out of it",
	"usage: dsec cp [-u USER] FROM TO\n\n"
	"One of FROM and TO is ID:PATH, the other a path here, or - for standard input or output.\n"
	"Into a directory that exists, FROM keeps its name; FROM/. means its content.\n"
	"  -u, --user U  as whom in the sandbox (default: the sandbox's user)\n"
	"  --json        print the number of entries and bytes\n"
	"Owners, set-id bits and devices are not copied; links are never followed when unpacking here.\n",
	.options = options, .completes = COMPLETES_COPY
};
