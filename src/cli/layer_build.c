/* layer_build.c: `dsec layer build`: a Debian root made by mmdebstrap becomes a layer.
 *
 * mmdebstrap runs as a child and writes a tar stream, which goes to the server as
 * it comes; its words go to a file that is shown when it fails (or to the terminal
 * with --verbose). What it takes over from this host (resolv.conf, hostname) is
 * removed again before the stream is made, so a layer tells nothing of the machine
 * that built it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/layer_put.h"
#include "cli/verbs.h"

enum { OPT_DEBIAN = OPT_FIRST_FREE, OPT_INCLUDE, OPT_MIRROR, OPT_VERBOSE };
#define WORDS_MAX 64
#define WHY_MAX 4096
#define LOG_LOOK_BYTES 8192 /* of the end of mmdebstrap's words */
#define CAUSE_MAX 160
#define PROXIES_MAX 8

struct build {
	struct common c;
	const char *suite, *mirror;
	char *include; /* owned: all --include joined by commas */
	bool verbose;
	char *proxies[PROXIES_MAX]; /* owned options */
	size_t n_proxies;
	const char *words[WORDS_MAX]; /* borrowed */
	size_t n_words;
	int log_fd;
	char why[WHY_MAX];
};

static const char remove_host_traces[] =
	"--customize-hook=rm -f \"$1/etc/resolv.conf\" \"$1/etc/apt/apt.conf.d/99mmdebstrap\" && echo localhost >\"$1/etc/hostname\" && "
	"printf '127.0.0.1\\tlocalhost\\n::1\\tlocalhost ip6-localhost ip6-loopback\\n' >\"$1/etc/hosts\"";

static void word(struct build *b, const char *w)
{
	if (b->n_words + 1 < WORDS_MAX)
		b->words[b->n_words++] = w;
}

/* The code name of this host when it is Debian: then its own sources fit. */
static bool host_is(const char *suite)
{
	_cleanup_free_ char *text = NULL;
	char want[128];
	if (read_file_at(AT_FDCWD, "/etc/os-release", 65536, &text, NULL) < 0)
		return false;
	snprintf(want, sizeof(want), "VERSION_CODENAME=%s\n", suite);
	return strstr(text, want) && strstr(text, "\nID=debian\n");
}

/* apt's source files of this host, as mirrors that mmdebstrap reads itself. */
static size_t add_host_sources(struct build *b)
{
	static const char *const files[] = { "/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources",
					     "/etc/apt/sources.list.d/debian.list" };
	size_t n = 0;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_free_ char *text = NULL;
		if (read_file_at(AT_FDCWD, files[i], 1 << 20, &text, NULL) < 0)
			continue;
		if (!strstr(text, b->suite))
			continue;
		word(b, files[i]);
		n++;
	}
	return n;
}

/* A proxy that apt on this host is told to use is needed by the child too, which
 * otherwise knows apt's bare defaults only. */
static void add_apt_proxies(struct build *b)
{
	static const char dir[] = "/etc/apt/apt.conf.d";
	_cleanup_closedir_ DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));) {
		_cleanup_free_ char *text = NULL;
		if (read_file_at(dirfd(d), e->d_name, 1 << 16, &text, NULL) < 0 || !strcasestr(text, "::proxy"))
			continue;
		if (b->n_proxies < PROXIES_MAX &&
		    asprintf(&b->proxies[b->n_proxies], "--aptopt=%s/%s", dir, e->d_name) > 0)
			word(b, b->proxies[b->n_proxies++]);
	}
	if (!access("/etc/apt/apt.conf", R_OK))
		word(b, "--aptopt=/etc/apt/apt.conf");
}

static int plan(struct build *b)
{
	word(b, "mmdebstrap");
	word(b, "--variant=minbase");
	word(b, "--format=tar");
	word(b, remove_host_traces);
	add_apt_proxies(b);
	if (b->include && *b->include)
		word(b, b->include);
	word(b, b->suite);
	word(b, "-");
	bool host = b->mirror ? !strcmp(b->mirror, "host") : host_is(b->suite);
	if (host && !add_host_sources(b) && b->mirror)
		return cli_fail_with(&b->c, EXIT_FAILED, "bad_field",
				 "this host's apt sources do not name %s; use --mirror URL", b->suite);
	if (b->mirror && !host)
		word(b, b->mirror);
	return 0;
}

static void child(struct build *b, int out_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	dup2(null, STDIN_FILENO);
	dup2(out_fd, STDOUT_FILENO);
	if (b->log_fd >= 0)
		dup2(b->log_fd, STDERR_FILENO);
	/* libcurl's sockets, and what our caller left open: mmdebstrap writes a pipe's
	 * number into a script for sh, and dash redirects to one-digit numbers only. */
	close_range(STDERR_FILENO + 1, ~0U, 0);
	execvp(b->words[0], (char *const *)b->words);
	_exit(127);
}

/* The lines of text that name a cause, "E: ..." as apt and mmdebstrap write it, each
 * cut to what a reader needs; "" when there is none. */
static void pick_causes(char *text, char *ret, size_t size)
{
	size_t n = 0;
	char *save = NULL;
	*ret = 0;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "E: ", 3) || !strcmp(line, "E: mmdebstrap failed to run"))
			continue;
		int k = snprintf(ret + n, size - n, "%s%.*s", n ? "\n" : "", CAUSE_MAX, line);
		if (k < 0 || (size_t)k >= size - n)
			return;
		n += (size_t)k;
	}
}

/* Why it failed, in mmdebstrap's own words. */
static void take_words(struct build *b, int status)
{
	int n = snprintf(b->why, sizeof(b->why), "mmdebstrap ended with status %d", status);
	if (b->log_fd < 0)
		return;
	char text[LOG_LOOK_BYTES], words[420]; /* an error's sentence is bounded */
	off_t size = lseek(b->log_fd, 0, SEEK_END);
	ssize_t k = pread(b->log_fd, text, sizeof(text) - 1, MAX(0, size - (off_t)sizeof(text) + 1));
	k = MAX(k, 0);
	text[k] = 0;
	/* Without a line that names the cause, the last words are the ones that tell. */
	const char *end = k > (ssize_t)sizeof(words) - 1 ? text + k - sizeof(words) + 1 : text;
	const char *line = end > text ? strchr(end, '\n') : NULL;
	char last[sizeof(words)];
	snprintf(last, sizeof(last), "%.*s", (int)sizeof(last) - 1, line ? line + 1 : end);
	pick_causes(text, words, sizeof(words));
	snprintf(b->why + n, sizeof(b->why) - (size_t)n, " (--verbose shows all its words):\n%s", *words ? words : last);
}

/* mmdebstrap's last whole line: for minutes there are no bytes, only words. */
static void last_line(char *ret, size_t size, void *user)
{
	const struct build *b = user;
	char text[512];
	struct stat st;
	if (b->log_fd < 0 || fstat(b->log_fd, &st) < 0)
		return;
	ssize_t k = pread(b->log_fd, text, sizeof(text) - 1, MAX(0, st.st_size - (off_t)sizeof(text) + 1));
	text[MAX(k, 0)] = 0;
	char *stop = strrchr(text, '\n');
	if (!stop)
		return;
	*stop = 0;
	const char *line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	snprintf(ret, size, "%.*s", (int)size - 1, !strncmp(line, "I: ", 3) ? line + 3 : line);
	for (char *c = ret; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = ' ';
}

static int work(int fd, void *user)
{
	struct build *b = user;
	pid_t pid = fork();
	int status = 0;
	if (pid < 0)
		return -errno;
	if (!pid)
		child(b, fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE)
		return -EPIPE;
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	take_words(b, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	return -EIO;
}

static bool in_path(const char *name)
{
	const char *path = getenv("PATH");
	_cleanup_free_ char *copy = strdup(path ? path : "/usr/sbin:/usr/bin:/sbin:/bin");
	char *save = NULL, full[4096];
	for (char *dir = copy ? strtok_r(copy, ":", &save) : NULL; dir; dir = strtok_r(NULL, ":", &save)) {
		snprintf(full, sizeof(full), "%s/%s", dir, name);
		if (!access(full, X_OK))
			return true;
	}
	return false;
}

static int build(struct build *b, const char *name)
{
	char full[LAYER_NAME_MAX], source[256];
	if (!in_path("mmdebstrap"))
		return cli_fail_with(&b->c, EXIT_FAILED, "host_lacks",
				 "mmdebstrap, which makes Debian roots, is not installed: apt-get install mmdebstrap");
	int status = plan(b);
	if (status)
		return status;
	struct dsec_client *client = open_client(&b->c);
	if (!client)
		return EXIT_FAILED;
	FILE *log = b->verbose ? NULL : tmpfile();
	b->log_fd = log ? fileno(log) : -1;
	snprintf(source, sizeof(source), "debian:%s", b->suite);
	struct pump pump = { .work = work, .user = b, .say = last_line };
	status = layer_full_name(&b->c, client, name, full);
	if (!status)
		status = layer_put(&b->c, client, full, source, &pump, b->why);
	if (log)
		fclose(log);
	dsec_client_free(client);
	return status;
}

static int add_include(struct build *b, const char *list)
{
	char *joined;
	if (asprintf(&joined, "%s%s%s", b->include ? b->include : "--include=", b->include ? "," : "", list) < 0)
		return -ENOMEM;
	free(b->include);
	b->include = joined;
	return 0;
}

static const struct option options[] = { COMMON_LONG, { "debian", required_argument, NULL, OPT_DEBIAN },
					{ "include", required_argument, NULL, OPT_INCLUDE },
					{ "mirror", required_argument, NULL, OPT_MIRROR },
					{ "verbose", no_argument, NULL, OPT_VERBOSE }, { 0 } };

static int build_run(int argc, char **argv)
{
	struct build b = { .c.verb = &verb_layer_build, .log_fd = -1 };
	int status = -1;
	for (int o; status < 0 && (o = getopt_long(argc, argv, "h", options, NULL)) >= 0;) {
		if (o == OPT_DEBIAN)
			b.suite = optarg;
		else if (o == OPT_INCLUDE)
			status = add_include(&b, optarg) < 0 ? EXIT_FAILED : -1;
		else if (o == OPT_MIRROR)
			b.mirror = optarg;
		else if (o == OPT_VERBOSE)
			b.verbose = true;
		else
			status = common_option(&b.c, o);
	}
	if (status < 0) {
		if (!b.suite || *b.suite == '-' || !*b.suite)
			status = usage_error(b.c.verb, "--debian must name a suite, such as bookworm");
		else if (argc - optind != 1)
			status = usage_error(b.c.verb, "wants one NAME[@VERSION]");
		else
			status = build(&b, argv[optind]);
	}
	free(b.include);
	for (size_t i = 0; i < b.n_proxies; i++)
		free(b.proxies[i]);
	return status;
}

const struct verb verb_layer_build = {
	"layer build", build_run, "make a layer of Debian packages",
	"usage: dsec layer build --debian SUITE [--include A,B...] [--mirror host|URL|FILE] NAME[@VERSION] [--json]\n\n"
	"A minimal Debian of that suite with the named packages, made by mmdebstrap (which must be installed).\n"
	"  --debian SUITE   bookworm, trixie, ...\n"
	"  --include A,B    packages; may repeat\n"
	"  --mirror M       host: this host's own apt sources (the default where they name the suite); or a URL or\n"
	"                   sources file for mmdebstrap; otherwise mmdebstrap's own default\n"
	"  --verbose        show what mmdebstrap says\n"
	"Without VERSION: the next number.\n",
	.options = options
};
