/* completion.c: `dsec completion`: a script for bash made of the tables that the verbs
 * themselves use, and the names that the script asks the server for.
 *
 * The names are asked for while somebody waits at a keyboard: what has not come after
 * NAMES_MS is left out, and nothing is ever said about it.
 */
#include <ctype.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include "cli/verbs.h"

#define NAMES_MS 300

static void print_options(const struct option *o, bool valued_only)
{
	for (; o->name; o++) {
		if (valued_only && o->has_arg != required_argument)
			continue;
		printf(" --%s", o->name);
		if (o->val < 128 && isalpha(o->val) && !o->flag)
			printf(" -%c", o->val);
	}
}

static void print_names(const struct verb *const *table)
{
	for (; *table; table++) {
		const char *last = strrchr((*table)->name, ' ');
		printf(" %s", last ? last + 1 : (*table)->name);
	}
	printf(" help");
}

static void print_cases(const struct verb *const *table)
{
	static const char *const kinds[] = { "nothing", "sandbox", "layer", "copy", "file", "shell" };
	for (; *table; table++) {
		const struct verb *v = *table;
		printf("\t\"%s\")\n\t\tkind=%s", v->name, kinds[v->completes]);
		if (v->options) {
			printf(" options=\"");
			print_options(v->options, false);
			printf("\" valued=\"");
			print_options(v->options, true);
			printf("\"");
		}
		if (v->below) {
			printf(" below=\"");
			print_names(v->below);
			printf("\"");
		}
		puts(" ;;");
		if (v->below)
			print_cases(v->below);
	}
}

/* Words come from COMP_LINE: bash cuts its own at '@', ':' and '='. Nothing that came
 * from the server is ever expanded by the shell (compgen -W would). */
static const char script_head[] =
	"# bash completion of dsec, made by `dsec completion bash`\n"
	"_dsec_verb() {\n"
	"\tkind=nothing options= valued= below=\n"
	"\tcase $1 in\n";
static const char script_tail[] =
	"\tesac\n"
	"}\n"
	"_dsec() {\n"
	"\tlocal line=${COMP_LINE:0:COMP_POINT} words word cur before verb= kind options valued below list= prefix= i last\n"
	"\tlocal state=()\n"
	"\tCOMPREPLY=()\n"
	"\tread -ra words <<<\"$line\"\n"
	"\t[[ $line == *[[:space:]] ]] && words+=(\"\")\n"
	"\tlast=$((${#words[@]} - 1))\n"
	"\t((last > 0)) || return 0\n"
	"\tcur=${words[last]} before=${words[last - 1]}\n"
	"\t_dsec_verb \"\"\n"
	"\tfor ((i = 1; i < last; i++)); do\n"
	"\t\tword=${words[i]}\n"
	"\t\tif [[ $word == -- ]]; then\n"
	"\t\t\tcompopt -o default 2>/dev/null\n"
	"\t\t\treturn 0\n"
	"\t\telif [[ $word == --state-dir ]] && ((i + 1 < last)); then\n"
	"\t\t\tstate=(--state-dir \"${words[i + 1]}\")\n"
	"\t\telif [[ -n $below && $word != -* && \" $below \" == *\" $word \"* ]]; then\n"
	"\t\t\tverb=${verb:+$verb }$word\n"
	"\t\t\t_dsec_verb \"$verb\"\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tif [[ $before == -* && \" $valued \" == *\" $before \"* ]]; then\n"
	"\t\tif [[ $before == --env ]]; then\n"
	"\t\t\tkind=layer\n"
	"\t\telse\n"
	"\t\t\tcompopt -o default 2>/dev/null\n"
	"\t\t\treturn 0\n"
	"\t\tfi\n"
	"\telif [[ -n $below ]]; then\n"
	"\t\tlist=$below kind=nothing\n"
	"\telif [[ $cur == -* ]]; then\n"
	"\t\tlist=$options kind=nothing\n"
	"\tfi\n"
	"\tcase $kind in\n"
	"\tsandbox | copy) list=$(\"$1\" completion sandboxes \"${state[@]}\" 2>/dev/null) ;;\n"
	"\tlayer) list=$(\"$1\" completion layers \"${state[@]}\" 2>/dev/null) ;;\n"
	"\tshell) list=bash ;;\n"
	"\tfile) compopt -o default 2>/dev/null ;;\n"
	"\tesac\n"
	"\tlocal breaks=${COMP_WORDBREAKS//[!@:=]/}\n"
	"\tif [[ -n $breaks && $cur == *[\"$breaks\"]* ]]; then\n"
	"\t\tprefix=${cur%\"${cur##*[\"$breaks\"]}\"}\n"
	"\tfi\n"
	"\twhile read -r word; do\n"
	"\t\t[[ -z $word ]] && continue\n"
	"\t\t[[ $kind == copy ]] && word=$word:\n"
	"\t\t[[ $word == \"$cur\"* ]] && COMPREPLY+=(\"${word#\"$prefix\"}\")\n"
	"\tdone <<<\"${list// /$'\\n'}\"\n"
	"\tif [[ $kind == copy ]]; then\n"
	"\t\tif ((${#COMPREPLY[@]})); then compopt -o nospace 2>/dev/null; else compopt -o default 2>/dev/null; fi\n"
	"\tfi\n"
	"\treturn 0\n"
	"}\n"
	"complete -F _dsec dsec\n";

static int print_bash(void)
{
	fputs(script_head, stdout);
	printf("\t\"\") below=\"");
	print_names(all_verbs);
	printf("\" ;;\n\t\"help\") below=\"");
	print_names(all_verbs);
	puts("\" ;;");
	print_cases(all_verbs);
	fputs(script_tail, stdout);
	return 0;
}

static void too_late(int sig)
{
	_exit(0);
}

/* One a line; a name with a character that no id or layer has is not shown. */
static void print_name(const char *text)
{
	if (*text && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+/@") == strlen(text))
		puts(text);
}

static int print_known(const struct common *c, bool layers)
{
	struct dsec_client_options o = { .state_dir = c->state_dir, .connect_timeout_ms = NAMES_MS,
					 .call_timeout_ms = NAMES_MS };
	struct itimerval timer = { .it_value.tv_usec = NAMES_MS * 1000 };
	struct dsec_client *client = NULL;
	struct dsec_sandbox_list *sandboxes = NULL;
	struct dsec_layer_list *l = NULL;
	char name[256];
	signal(SIGALRM, too_late);
	setitimer(ITIMER_REAL, &timer, NULL);
	if (dsec_client_new(&o, &client, NULL) < 0)
		return 0;
	if (layers && !dsec_layer_list(client, &l, NULL))
		for (size_t i = 0; i < l->n; i++) {
			snprintf(name, sizeof(name), "%s@%s", l->items[i].name, l->items[i].version);
			print_name(name);
		}
	if (!layers && !dsec_sandbox_list(client, NULL, 0, false, &sandboxes, NULL))
		for (size_t i = 0; i < sandboxes->n; i++)
			print_name(sandboxes->items[i].id);
	dsec_layer_list_free(l);
	dsec_sandbox_list_free(sandboxes);
	dsec_client_free(client);
	return 0;
}

static const struct option options[] = { COMMON_LONG, { 0 } };

static int completion_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_completion };
	for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) >= 0;) {
		int r = common_option(&c, o);
		if (r >= 0)
			return r;
	}
	const char *what = argc - optind == 1 ? argv[optind] : "";
	if (!strcmp(what, "bash"))
		return print_bash();
	if (!strcmp(what, "sandboxes") || !strcmp(what, "layers"))
		return print_known(&c, *what == 'l');
	return usage_error(c.verb, "wants the name of a shell: bash");
}

const struct verb verb_completion = {
	"completion", completion_run, "print the completion script of a shell",
	"usage: dsec completion bash\n"
	"       dsec completion sandboxes|layers [--state-dir DIR]\n\n"
	"A script that completes verbs, options, sandbox ids and layer names; `make install` puts it where bash\n"
	"finds it, by hand: . <(dsec completion bash). The second form prints the names that the script asks\n"
	"for, one a line: what the server tells within 300 ms, nothing otherwise.\n",
	.options = options, .completes = COMPLETES_SHELL
};
