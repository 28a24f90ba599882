/* The supervisor's parts: state directory and lock, pid files, addresses, logs, ending. */
#include "unit.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/fdio.h"
#include "dsecd/ending.h"
#include "dsecd/options.h"
#include "dsecd/pidfile.h"
#include "dsecd/readiness.h"
#include "dsecd/state.h"
#include "kernel/process.h"

static char top[64];

static int set_up(void **state)
{
	strcpy(top, "/tmp/dsec-test-state-XXXXXX");
	return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

static void test_state_is_private(void **state)
{
	struct state s = STATE_INIT, again = STATE_INIT;
	struct stat st;
	char path[128];
	int holder = 0;
	assert_int_equal(state_open("", true, &s), -EINVAL);
	assert_int_equal(state_open("/", false, &s), -EINVAL);
	state_done(&s);
	snprintf(path, sizeof(path), "%s/a/b", top);
	assert_int_equal(state_open(path, false, &s), -ENOENT);
	assert_int_equal(state_open(path, true, &s), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_true(state_is_of_earlier_boot(&s));
	assert_int_equal(state_record_boot(&s), 0);
	assert_false(state_is_of_earlier_boot(&s));
	assert_int_equal(state_make_key(&s), 0);
	assert_int_equal(stat(s.key_file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(state_lock(&s, &holder), 0);
	assert_int_equal(state_open(path, false, &again), 0);
	assert_int_equal(state_lock(&again, &holder), -EBUSY);
	assert_int_equal(holder, getpid());
	state_done(&s);
	assert_int_equal(state_lock(&again, &holder), 0);
	state_done(&again);
}

static void test_state_refuses_what_others_use(void **state)
{
	struct state s = STATE_INIT;
	struct stat st;
	char path[128];
	chmod(top, 0755);
	snprintf(path, sizeof(path), "%s/theirs", top);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(state_open(top, true, &s), -EPERM);
	assert_int_equal(stat(top, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0755); /* left as it was */
	state_done(&s);
}

static void test_pidfile_names_one_process(void **state)
{
	pid_t pid = 0;
	char path[128], text[128];
	assert_int_equal(pidfile_open(top, "x", &pid), -ESRCH);
	assert_int_equal(pidfile_write(top, "x", getpid()), 0);
	int fd = pidfile_open(top, "x", &pid);
	assert_true(fd >= 0);
	assert_int_equal(pid, getpid());
	close(fd);
	/* The same pid with another start, and of another boot. */
	snprintf(path, sizeof(path), "%s/x.pid", top);
	int n = snprintf(text, sizeof(text), "%d 1 00000000-0000-0000-0000-000000000000\n", getpid());
	assert_int_equal(write_file_atomic(AT_FDCWD, path, text, (size_t)n, 0600), 0);
	assert_int_equal(pidfile_open(top, "x", &pid), -ESRCH);
	assert_int_equal(write_file_atomic(AT_FDCWD, path, "junk", 4, 0600), 0);
	assert_int_equal(pidfile_open(top, "x", &pid), -ESRCH);
	pid = fork();
	if (!pid)
		_exit(0);
	siginfo_t si;
	waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT); /* a zombie is nobody to stop */
	assert_int_equal(pidfile_write(top, "z", pid), 0);
	assert_int_equal(pidfile_open(top, "z", NULL), -ESRCH);
	waitpid(pid, NULL, 0);
}

static void test_listen_addresses(void **state)
{
	char host[LISTEN_HOST_MAX], port[6];
	assert_int_equal(listen_split("127.0.0.1:7600", host, port), 0);
	assert_string_equal(host, "127.0.0.1");
	assert_string_equal(port, "7600");
	assert_int_equal(listen_split("[::1]:65535", host, port), 0);
	assert_string_equal(host, "::1");
	static const char *const bad[] = { "", ":1", "a", "a:", "a:0", "a:65536", "a:1x", "::1:80", "[]:1", "a:123456" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(listen_split(bad[i], host, port), -EINVAL);
}

static void test_log_is_bounded(void **state)
{
	char path[128], old[140], block[1000];
	struct stat st;
	snprintf(path, sizeof(path), "%s/x.log", top);
	snprintf(old, sizeof(old), "%s.1", path);
	memset(block, 'x', sizeof(block));
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
	log_rotate(path, sizeof(block)); /* at the bound: stays */
	assert_int_equal(access(old, F_OK), -1);
	assert_int_equal(write(fd, "y", 1), 1);
	log_rotate(path, sizeof(block));
	assert_int_equal(stat(old, &st), 0);
	assert_int_equal(st.st_size, sizeof(block) + 1);
	assert_int_equal(write(fd, "new", 3), 3); /* the writer goes on in the same file */
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 3);
	close(fd);
}

static int child_that(bool ignores_term)
{
	int ready[2];
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (!pid) {
		signal(SIGTERM, ignores_term ? SIG_IGN : SIG_DFL);
		(void)!write(ready[1], "r", 1);
		for (;;)
			pause();
	}
	char c;
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	return pidfd_of(pid);
}

static void test_ending_is_bounded(void **state)
{
	int fds[] = { child_that(false), child_that(true), -1 };
	assert_int_equal(ending_of(fds, 3, SIGTERM, 100, -1), 1); /* one had to be killed */
	while (waitpid(-1, NULL, 0) > 0)
		;
	assert_int_equal(ending_of(fds, 3, SIGTERM, 100, -1), 0); /* all are gone */
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_state_is_private, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_state_refuses_what_others_use, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pidfile_names_one_process, set_up, tear_down),
		cmocka_unit_test(test_listen_addresses),
		cmocka_unit_test_setup_teardown(test_log_is_bounded, set_up, tear_down),
		cmocka_unit_test(test_ending_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
