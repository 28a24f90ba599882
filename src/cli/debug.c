/* debug.c: `dsec debug bundle`: one archive for a bug report. See debug.h. */
#include "cli/debug.h"
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/doctor.h"
#include "cli/json_out.h"
#include "cli/verbs.h"

#define CONNECT_MS 2000
#define CALL_MS 10000
#define KEY_FILE_MAX 65536

static const char head[] =
	"A bundle for a bug report of DSec, made by `dsec debug bundle`.\n\n"
	"doctor.json     what `dsec doctor` found        versions.json  client and server\n"
	"limits.json     GET /v1/limits                  edges.json     GET /v1/edges\n"
	"metrics.txt     GET /metrics                    sandboxes.json states of sandboxes and commands\n"
	"store.json      schema version                  kernel.txt, cgroups.txt, mounts.txt  of this host\n"
	"log/            the tails of the logs\n\n"
	"Not in it: keys; values of variables and labels; words, directories, users and output of commands;\n"
	"files of sandboxes. In texts they are overwritten with '*'. Names (of layers, labels, variables, this\n"
	"host's directories) are in it: look through it before you pass it on.\n";

bool part_open(struct part *p)
{
	*p = (struct part){ 0 };
	p->f = open_memstream(&p->text, &p->n);
	return p->f;
}

void bundle_note(struct bundle *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vfprintf(b->notes, fmt, ap);
	va_end(ap);
	putc('\n', b->notes);
}

void bundle_add(struct bundle *b, const char *name, struct part *p, bool free_text)
{
	char path[512];
	bool whole = !fclose(p->f) && p->text;
	struct archive_entry *e = whole && !b->failed ? archive_entry_new() : NULL;
	if (e) {
		size_t n = MIN(p->n, BUNDLE_PART_BYTES);
		if (n < p->n && b->notes)
			bundle_note(b, "%s: cut after %zu bytes", name, n);
		redact_text(&b->redact, p->text, p->n, !free_text); /* before the cut: it may halve a value */
		snprintf(path, sizeof(path), "%s/%s", b->name, name);
		archive_entry_set_pathname(e, path);
		archive_entry_set_filetype(e, AE_IFREG);
		archive_entry_set_perm(e, 0600);
		archive_entry_set_mtime(e, time(NULL), 0);
		archive_entry_set_size(e, (la_int64_t)n);
		if (archive_write_header(b->archive, e) < ARCHIVE_WARN ||
		    archive_write_data(b->archive, p->text, n) != (la_ssize_t)n)
			b->failed = true;
		archive_entry_free(e);
	} else
		b->failed = true;
	free(p->text);
}

/* The keys of this host and of our environment. */
static void learn_keys(struct bundle *b)
{
	char path[4096];
	_cleanup_free_ char *text = NULL;
	const char *env = getenv("DSEC_API_KEY");
	if (env)
		redact_learn_key(&b->redact, env);
	snprintf(path, sizeof(path), "%s/api-key", b->state_dir);
	int r = read_file_at(AT_FDCWD, path, KEY_FILE_MAX, &text, NULL);
	if (!r)
		redact_learn_key(&b->redact, text);
}

static void add_doctor(struct bundle *b, const char *state_dir)
{
	static struct doctor d; /* large for a stack */
	struct part p;
	doctor_examine(&d, state_dir);
	if (!part_open(&p)) {
		b->failed = true;
		return;
	}
	doctor_json_out(&d, p.f);
	bundle_add(b, "doctor.json", &p, false);
}

/* Last: by then all notes are there. */
static void add_readme(struct bundle *b)
{
	struct part p;
	FILE *notes = b->notes;
	b->notes = NULL;
	if (fclose(notes) || !part_open(&p)) {
		b->failed = true;
		return;
	}
	/* Before the rest is added: a note may quote anything, our own words are not to be searched. */
	if (b->n_notes)
		redact_text(&b->redact, b->notes_text, b->n_notes, false);
	fputs(head, p.f);
	fprintf(p.f, "\nWhat is missing, and why:\n%s", b->n_notes ? b->notes_text : "nothing\n");
	bundle_add(b, "README", &p, false);
}

static int fill(const struct common *c, int fd, struct bundle *b)
{
	struct dsec_client_options o = { .state_dir = c->state_dir, .connect_timeout_ms = CONNECT_MS,
					 .call_timeout_ms = CALL_MS, .user_agent = "dsec/" DSEC_VERSION };
	struct dsec_client *client = NULL;
	struct dsec_error e;
	b->notes = open_memstream(&b->notes_text, &b->n_notes);
	b->archive = archive_write_new();
	if (!b->notes || !b->archive)
		return -ENOMEM;
	archive_write_set_format_pax_restricted(b->archive);
	if (archive_write_add_filter_gzip(b->archive) < ARCHIVE_OK || archive_write_open_fd(b->archive, fd) < ARCHIVE_OK)
		return -EIO;
	learn_keys(b);
	add_doctor(b, c->state_dir); /* forks: before there are threads */
	if (dsec_client_new(&o, &client, &e) < 0)
		bundle_note(b, "server: %s", e.message);
	bundle_server(b, client);
	dsec_client_free(client);
	bundle_kernel(b);
	bundle_cgroups(b);
	bundle_mounts(b);
	bundle_store(b);
	bundle_logs(b);
	add_readme(b);
	return b->failed || archive_write_close(b->archive) < ARCHIVE_OK ? -EIO : 0;
}

static int make(const struct common *c, int fd, struct bundle *b)
{
	const char *env = getenv("DSEC_STATE_DIR");
	b->state_dir = c->state_dir ? c->state_dir : env && *env ? env : "/var/lib/dsec";
	int r = fill(c, fd, b);
	if (b->archive) {
		if (r < 0)
			archive_write_fail(b->archive);
		archive_write_free(b->archive);
	}
	if (b->notes)
		fclose(b->notes);
	free(b->notes_text);
	redact_done(&b->redact);
	return r;
}

static const struct option options[] = { COMMON_LONG, { "output", required_argument, NULL, 'o' }, { 0 } };

static int bundle_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_debug_bundle };
	struct bundle b = { 0 };
	char default_name[sizeof(b.name) + 8];
	const char *to = default_name;
	time_t now = time(NULL);
	struct tm tm;
	strftime(b.name, sizeof(b.name), "dsec-debug-%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
	snprintf(default_name, sizeof(default_name), "%s.tar.gz", b.name);
	for (int o; (o = getopt_long(argc, argv, "ho:", options, NULL)) >= 0;) {
		int r;
		if (o == 'o')
			to = optarg;
		else if ((r = common_option(&c, o)) >= 0)
			return r;
	}
	if (optind < argc)
		return usage_error(c.verb, "\"%s\" is not understood", argv[optind]);
	bool to_stdout = !strcmp(to, "-");
	_cleanup_close_ int fd = to_stdout ? dup(STDOUT_FILENO) : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return cli_fail_with(&c, EXIT_FAILED, "local_error", "cannot make %s: %s", to, strerror(errno));
	int r = make(&c, fd, &b);
	if (r < 0) {
		if (!to_stdout)
			unlink(to);
		return cli_fail_with(&c, EXIT_FAILED, "local_error", "cannot write %s: %s", to, strerror(-r));
	}
	if (!to_stdout && c.json) {
		fputs("{\"file\":", stdout);
		json_string_out(stdout, to);
		puts("}");
	} else if (!to_stdout)
		puts(to);
	return 0;
}

const struct verb verb_debug_bundle = {
	"debug bundle", bundle_run, "collect what a bug report needs, without secrets",
	"usage: dsec debug bundle [-o FILE] [--state-dir DIR] [--json]\n\n"
	"An archive (tar, gzip) with what doctor finds, versions, limits, metrics, the tails of the logs, the states\n"
	"of sandboxes and commands, and facts of this host; prints its name. Without a server: what there is.\n"
	"Keys, values of variables and labels, and words of commands are left out or overwritten; its README says\n"
	"more. Run as root for the whole of it.\n"
	"  -o, --output FILE  default: dsec-debug-TIME.tar.gz here; must not exist; - is standard output\n",
	.options = options
};

static const struct verb *const verbs[] = { &verb_debug_bundle, NULL };

static int debug_run(int argc, char **argv)
{
	return run_verb(verbs, ARRAY_SIZE(verbs) - 1, "debug", argc, argv);
}

const struct verb verb_debug = { "debug", debug_run, "help for bug reports",
				 "usage: dsec debug bundle [OPTIONS]\n\n`dsec debug help` lists what each does.\n",
				 .below = verbs };
