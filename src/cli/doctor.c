/* doctor.c: `dsec doctor`: runs the checks and tells them. See doctor.h. */
#include "cli/doctor.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "cli/json_out.h"
#include "cli/verbs.h"

static const char *const level_names[] = { "ok", "warn", "fail" };

void doctor_add(struct doctor *d, const char *name, enum level level, const char *follows, const char *found, ...)
{
	if (d->n == DOCTOR_FINDINGS_MAX)
		return;
	struct finding *f = &d->items[d->n++];
	va_list ap;
	va_start(ap, found);
	vsnprintf(f->found, sizeof(f->found), found, ap);
	va_end(ap);
	f->name = name;
	f->level = level;
	snprintf(f->follows, sizeof(f->follows), "%s", level == LEVEL_OK ? "" : follows);
}

int doctor_in_child(int (*fn)(void *), void *arg)
{
	int status = 0;
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		_exit(-fn(arg) & 0xff); /* every errno fits */
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECANCELED;
}

bool doctor_works(const struct doctor *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->items[i].level == LEVEL_FAIL)
			return false;
	return true;
}

void doctor_examine(struct doctor *d, const char *state_dir)
{
	const char *env = getenv("DSEC_STATE_DIR");
	d->state_dir = state_dir ? state_dir : env && *env ? env : "/var/lib/dsec";
	d->root = geteuid() == 0;
	doctor_add(d, "root", d->root ? LEVEL_OK : LEVEL_FAIL, "run `dsec up` and this as root (sudo); a remote server needs no root",
		   d->root ? "running as root" : "running as uid %d", (int)geteuid());
	doctor_kernel(d);
	doctor_mounts(d);
	doctor_host(d);
}

void doctor_json_out(const struct doctor *d, FILE *f)
{
	fprintf(f, "{\"works\":%s,\"findings\":[", doctor_works(d) ? "true" : "false");
	for (size_t i = 0; i < d->n; i++) {
		const struct finding *x = &d->items[i];
		fprintf(f, "%s{\"name\":\"%s\",\"level\":\"%s\",\"found\":", i ? "," : "", x->name, level_names[x->level]);
		json_string_out(f, x->found);
		fputs(",\"follows\":", f);
		json_string_out(f, x->follows);
		putc('}', f);
	}
	fputs("]}\n", f);
}

static void print_text(const struct doctor *d, bool works)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct finding *f = &d->items[i];
		printf("%-4s  %-18s  %s\n", level_names[f->level], f->name, f->found);
		if (*f->follows)
			printf("      %-18s  -> %s\n", "", f->follows);
	}
	puts(works ? "Container sandboxes can work on this host." : "Container sandboxes cannot work on this host as it is.");
}

static const struct option options[] = { COMMON_LONG, { 0 } };

static int doctor_run(int argc, char **argv)
{
	static struct doctor d; /* large for a stack */
	struct common c = { .verb = &verb_doctor };
	for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) >= 0;) {
		int r = common_option(&c, o);
		if (r >= 0)
			return r;
	}
	if (optind < argc)
		return usage_error(c.verb, "\"%s\" is not understood", argv[optind]);
	doctor_examine(&d, c.state_dir);
	bool works = doctor_works(&d);
	if (c.json)
		doctor_json_out(&d, stdout);
	else
		print_text(&d, works);
	return works ? 0 : EXIT_FAILED;
}

const struct verb verb_doctor = { "doctor", doctor_run, "what this host can and cannot do",
				  "usage: dsec doctor [--state-dir DIR] [--json]\n\n"
				  "Probes, line by line, what sandboxes need of this host: ok, warn (works, with what follows) or\n"
				  "fail (containers cannot work), each with the remedy. Exit status 1 when one failed. Leaves nothing.\n",
	.options = options
};
