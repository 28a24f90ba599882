/* Whole reads and writes, atomic files, sockets of long paths, descriptors. */
#include "unit.h"
#include <fcntl.h>
#include <ftw.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "fault.h"

static char dir[64];

static int make_dir(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/dsec-test-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int remove_dir(void **state)
{
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static int count_files(void)
{
	_cleanup_closedir_ DIR *d = opendir(dir);
	int n = 0;
	struct dirent *e;
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	return n;
}

static void test_files(void **state)
{
	_cleanup_close_ int dfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	size_t n;
	static char big[10000];
	memset(big, 'b', sizeof(big));
	assert_int_equal(read_file_at(dfd, "none", 10, &text, &n), -ENOENT);
	assert_int_equal(write_file_at(dfd, "none", "x"), -ENOENT); /* never creates */
	assert_int_equal(write_file_atomic(dfd, "f", big, sizeof(big), 0640), 0);
	struct stat st;
	assert_int_equal(fstatat(dfd, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(read_file_at(dfd, "f", sizeof(big) - 1, &text, &n), -EFBIG);
	assert_null(text);
	assert_int_equal(read_file_at(dfd, "f", sizeof(big), &text, &n), 0);
	assert_int_equal(n, sizeof(big));
	assert_int_equal(strlen(text), n);
	assert_int_equal(write_file_atomic(dfd, "f", "new", 3, 0600), 0);
	char *again;
	assert_int_equal(read_file_at(dfd, "f", 100, &again, NULL), 0);
	assert_string_equal(again, "new");
	free(again);
	assert_int_equal(count_files(), 1); /* no temporary is left */
	assert_int_equal(write_file_atomic(dfd, "no/such", "x", 1, 0600), -ENOENT);
	assert_int_equal(mkdirat(dfd, "d", 0700), 0);
	assert_int_equal(write_file_atomic(dfd, "d", "x", 1, 0600), -EISDIR);
	assert_int_equal(count_files(), 2);
	assert_int_equal(read_file_at(dfd, "d", 10, &again, NULL), -EISDIR);
	fault_alloc_arm(0);
	assert_int_equal(read_file_at(dfd, "f", 100, &again, NULL), -ENOMEM);
	assert_true(fault_alloc_disarm());
}

static void test_whole_reads_and_writes(void **state)
{
	int p[2];
	static char data[300000], back[300001];
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 13);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid_t pid = fork(); /* more than a pipe holds: the writer blocks and goes on */
	assert_true(pid >= 0);
	if (!pid) {
		close(p[0]);
		_exit(write_all(p[1], data, sizeof(data)) ? 1 : 0);
	}
	close(p[1]);
	assert_int_equal(read_all(p[0], back, 100), 100);
	assert_int_equal(read_all(p[0], back + 100, sizeof(back) - 100), sizeof(data) - 100); /* ends at EOF */
	assert_memory_equal(data, back, sizeof(data));
	close(p[0]);
	int status;
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	assert_int_equal(write_all(-1, "x", 1), -EBADF);
	assert_int_equal(read_all(-1, back, 1), -EBADF);
	_cleanup_close_ int full = open("/dev/full", O_RDWR | O_CLOEXEC);
	assert_int_equal(write_all(full, "x", 1), -ENOSPC);
	assert_int_equal(pwrite_all(full, "x", 1, 0), -ENOSPC);
}

static void test_sockets_of_long_paths(void **state)
{
	char path[300];
	/* Far beyond the 107 bytes of sun_path. */
	snprintf(path, sizeof(path), "%s/%0*d", dir, 180, 0);
	assert_int_equal(mkdir(path, 0700), 0);
	strcat(path, "/s.sock");
	assert_int_equal(unix_connect(path, SOCK_STREAM), -ENOENT);
	int l = unix_listen(path, SOCK_STREAM, 4);
	assert_true(l >= 0);
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	close(l);
	assert_int_equal(unix_connect(path, SOCK_STREAM), -ECONNREFUSED); /* stale */
	l = unix_listen(path, SOCK_STREAM, 4); /* and replaced */
	assert_true(l >= 0);
	int c = unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK);
	assert_true(c >= 0);
	assert_int_not_equal(fcntl(c, F_GETFL) & O_NONBLOCK, 0);
	assert_int_not_equal(fcntl(c, F_GETFD) & FD_CLOEXEC, 0);
	assert_int_not_equal(fcntl(l, F_GETFD) & FD_CLOEXEC, 0);
	close(c);
	close(l);
	assert_int_equal(unix_listen("/nonexistent/dir/s", SOCK_STREAM, 1), -ENOENT);
	snprintf(path, sizeof(path), "%s/%0*d", dir, 110, 0); /* a name longer than sun_path */
	assert_int_equal(unix_listen(path, SOCK_STREAM, 1), -ENAMETOOLONG);
}

static int open_fds(void)
{
	_cleanup_closedir_ DIR *d = opendir("/proc/self/fd");
	int n = 0;
	while (readdir(d))
		n++;
	return n;
}

static void test_descriptors_travel(void **state)
{
	int sv[2], out[FDIO_FDS_MAX + 1], in[FDIO_FDS_MAX];
	char text[16];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	for (size_t i = 0; i < ARRAY_SIZE(out); i++)
		out[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(send_fds(sv[0], "m", 1, out, FDIO_FDS_MAX + 1), -E2BIG);
	int before = open_fds();
	assert_int_equal(send_fds(sv[0], "most", 4, out, FDIO_FDS_MAX), 4);
	size_t n = FDIO_FDS_MAX;
	assert_int_equal(recv_fds(sv[1], text, sizeof(text), in, &n), 4);
	assert_int_equal(n, FDIO_FDS_MAX);
	for (size_t i = 0; i < n; i++) {
		assert_int_not_equal(fcntl(in[i], F_GETFD) & FD_CLOEXEC, 0);
		close(in[i]);
	}
	/* More than the receiver has room for: all closed, none leaked. */
	assert_int_equal(send_fds(sv[0], "m", 1, out, 3), 1);
	n = 2;
	assert_int_equal(recv_fds(sv[1], text, sizeof(text), in, &n), -EMSGSIZE);
	assert_int_equal(n, 0);
	/* None wanted at all, and a packet longer than the buffer. */
	assert_int_equal(send_fds(sv[0], "m", 1, out, 1), 1);
	assert_int_equal(recv_fds(sv[1], text, sizeof(text), NULL, NULL), -EMSGSIZE);
	assert_int_equal(send_fds(sv[0], "0123456789abcdefg", 17, out, 1), 17);
	n = 2;
	assert_int_equal(recv_fds(sv[1], text, sizeof(text), in, &n), -EMSGSIZE);
	assert_int_equal(open_fds(), before);
	/* Plain bytes, end of file, and nothing there. */
	assert_int_equal(send_fds(sv[0], "p", 1, NULL, 0), 1);
	n = 2;
	assert_int_equal(recv_fds(sv[1], text, sizeof(text), in, &n), 1);
	assert_int_equal(n, 0);
	fcntl(sv[1], F_SETFL, O_NONBLOCK);
	n = 2;
	assert_int_equal(recv_fds(sv[1], text, sizeof(text), in, &n), -EAGAIN);
	assert_int_equal(n, 0);
	close(sv[0]);
	n = 2;
	assert_int_equal(recv_fds(sv[1], text, sizeof(text), in, &n), 0);
	assert_int_equal(send_fds(sv[1], "x", 1, NULL, 0), -EPIPE); /* an error, not a signal */
	close(sv[1]);
	for (size_t i = 0; i < ARRAY_SIZE(out); i++)
		close(out[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_files, make_dir, remove_dir),
		cmocka_unit_test(test_whole_reads_and_writes),
		cmocka_unit_test_setup_teardown(test_sockets_of_long_paths, make_dir, remove_dir),
		cmocka_unit_test(test_descriptors_travel),
	};
	return cmocka_run_group_tests_name("base_fdio", tests, NULL, NULL);
}
