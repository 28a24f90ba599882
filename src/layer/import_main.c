/* import_main.c: see import_main.h. */
#include "layer/import_main.h"
#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "layer/import.h"

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	stop = 1;
}

/* No SA_RESTART: a blocked read has to notice. */
static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int print_line(json_t *line_take)
{
	char *text = json_dumps(line_take, JSON_COMPACT);
	json_decref(line_take);
	int r = text && puts(text) >= 0 && fflush(stdout) == 0 ? 0 : -1;
	free(text);
	return r;
}

static int print_error(const struct dsec_error *e)
{
	/* Names out of the stream may not be UTF-8, which JSON needs. */
	json_t *message = json_string(e->message);
	if (!message) {
		char plain[DSEC_ERROR_MESSAGE_MAX];
		snprintf(plain, sizeof(plain), "%s", e->message);
		for (char *p = plain; *p; p++)
			if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
				*p = '?';
		message = json_string(plain);
	}
	return print_line(json_pack("{s:{s:s, s:o}}", "error", "code", dsec_code_name(e->code), "message", message));
}

static int print_result(struct import_result *res)
{
	int r = print_line(json_pack("{s:s, s:I, s:I, s:O, s:{s:I, s:I, s:I}}", "digest", res->digest, "size_bytes",
				     (json_int_t)res->info.size_bytes, "files", (json_int_t)res->info.files, "config",
				     res->info.config, "skipped", "device_nodes", (json_int_t)res->counts.skipped_nodes,
				     "xattrs", (json_int_t)res->counts.skipped_xattrs, "clamped_owners",
				     (json_int_t)res->counts.clamped_owners));
	layer_info_done(&res->info);
	return r;
}

int layer_import_main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "layer-dir", required_argument, NULL, 'l' },
		{ "compress", no_argument, NULL, 'z' },
		{ "uncompressed", no_argument, NULL, 'u' },
		{ NULL, 0, NULL, 0 },
	};
	const char *layer_dir = NULL;
	bool compress = false;
	int c;
	optind = 1;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'l': layer_dir = optarg; break;
		case 'z': compress = true; break;
		case 'u': compress = false; break;
		default: layer_dir = NULL; optind = argc + 1;
		}
		if (optind > argc)
			break;
	}
	if (!layer_dir || optind != argc) {
		fprintf(stderr, "usage: dsecd layer-import --layer-dir L [--compress | --uncompressed] < TAR\n");
		return 2;
	}
	/* libarchive turns the stream's UTF-8 names into this locale's bytes. */
	setlocale(LC_CTYPE, "C.UTF-8");
	umask(022);
	catch_signals();
	struct dsec_error e = { 0 };
	struct import_result res;
	int r = geteuid() ? dsec_error_set(&e, -EPERM, DSEC_E_HOST_LACKS, "layer-import needs root: a layer keeps owners") :
			    layer_import(layer_dir, STDIN_FILENO, compress, &stop, &res, &e);
	if (r < 0) {
		print_error(&e);
		return 1;
	}
	return print_result(&res) < 0;
}
