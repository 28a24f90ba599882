/* erofs_build.c: see erofs_build.h. */
#include "layer/erofs_build.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"

#define CANONICAL_UUID "00000000-0000-0000-0000-000000000000"
/* Of all ways to keep files' own times under a fixed superblock time only this one
 * works in erofs-utils 1.5: -T fixes every file's too, --preserve-mtime or not.
 * 2100-01-01; a later mtime is taken down to it. */
#define CANONICAL_TIME "SOURCE_DATE_EPOCH=4102444800"
#define CHILD_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DIGEST_BLOCK (1u << 20)
#define WORDS_MAX 1000 /* of what mkfs.erofs says when it fails */

/* Only exec: no allocation after the fork. */
static void child(int out, char *const argv[])
{
	/* Nothing else of our environment: mkfs.erofs reads it for settings. */
	char *const env[] = { CANONICAL_TIME, CHILD_PATH, NULL };
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int null = open("/dev/null", O_RDWR);
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	execvpe(argv[0], argv, env);
	_exit(127);
}

/* Reads the child's words to their end, keeps the first. */
static void drain(int fd, char words[WORDS_MAX + 1], const volatile sig_atomic_t *stop, pid_t pid)
{
	size_t n = 0;
	char more[512];
	for (;;) {
		ssize_t k = read(fd, more, sizeof(more));
		if (k < 0 && errno == EINTR && *stop)
			kill(pid, SIGKILL); /* not reaped yet: the pid is ours */
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		size_t take = MIN((size_t)k, WORDS_MAX - n);
		memcpy(words + n, more, take);
		n += take;
	}
	words[n] = 0;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)words[i] < ' ')
			words[i] = ' ';
}

static int build_failed(int status, const char *words, struct dsec_error *e)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return dsec_error_set(e, -ENOENT, DSEC_E_HOST_LACKS, "mkfs.erofs is not installed (package erofs-utils)");
	if (strstr(words, "No space left"))
		return dsec_error_set(e, -ENOSPC, DSEC_E_CAPACITY, "the layer store's disk is full");
	return dsec_error_set(e, -EIO, DSEC_E_INTERNAL, "mkfs.erofs failed (status %d): %.250s", status, words);
}

int erofs_build(const char *tree, const char *image, bool compress, const volatile sig_atomic_t *stop,
		struct dsec_error *e)
{
	char *argv[16];
	int n = 0;
	argv[n++] = "mkfs.erofs";
	argv[n++] = "-d1"; /* errors only */
	argv[n++] = "-U" CANONICAL_UUID;
	argv[n++] = "-x2147483647"; /* the value that switches shared attributes off */
	if (compress)
		argv[n++] = "-zlz4";
	argv[n++] = (char *)image;
	argv[n++] = (char *)tree;
	argv[n] = NULL;
	int pipe_fds[2];
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return dsec_error_errno(e, -errno, "pipe");
	_cleanup_close_ int words_fd = pipe_fds[0];
	_cleanup_close_ int out = pipe_fds[1];
	pid_t pid = fork();
	if (pid < 0)
		return dsec_error_errno(e, -errno, "fork");
	if (!pid)
		child(out, argv);
	base_closep(&out);
	out = -1;
	char words[WORDS_MAX + 1];
	int status;
	drain(words_fd, words, stop, pid);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return dsec_error_errno(e, -errno, "waitpid");
		if (*stop)
			kill(pid, SIGKILL);
	}
	if (*stop)
		return dsec_error_set(e, -EINTR, DSEC_E_DEADLINE, "the import was stopped");
	return status ? build_failed(status, words, e) : 0;
}

int erofs_digest(const char *image, char ret_digest[LAYER_DIGEST_LEN + 1], uint64_t *ret_size,
		 struct dsec_error *e)
{
	_cleanup_close_ int fd = open(image, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	_cleanup_free_ uint8_t *block = malloc(DIGEST_BLOCK);
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	uint8_t sum[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	uint64_t size = 0;
	ssize_t k = -1;
	int r = fd < 0 ? -errno : !block || !md || !EVP_DigestInit_ex(md, EVP_sha256(), NULL) ? -ENOMEM : 0;
	while (!r && (k = read(fd, block, DIGEST_BLOCK)) > 0) {
		size += (uint64_t)k;
		r = EVP_DigestUpdate(md, block, (size_t)k) ? 0 : -EIO;
	}
	if (!r && (k < 0 || !EVP_DigestFinal_ex(md, sum, &n)))
		r = k < 0 ? -errno : -EIO;
	EVP_MD_CTX_free(md);
	if (r < 0)
		return dsec_error_errno(e, r, "digest of %s", image);
	memcpy(ret_digest, "sha256:", 7);
	for (unsigned i = 0; i < n; i++)
		sprintf(ret_digest + 7 + 2 * i, "%02x", sum[i]);
	*ret_size = size;
	return 0;
}
