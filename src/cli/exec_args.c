/* exec_args.c: see exec_args.h. */
#include "cli/exec_args.h"

static int take_ms(const struct verb *v, const char *name, uint64_t *ret_ms)
{
	double s;
	if (!parse_duration(optarg, &s) || s <= 0)
		return usage_error(v, "--%s wants a time such as 30s or 10m, not \"%s\"", name, optarg);
	*ret_ms = (uint64_t)(s * 1000);
	return 0;
}

int exec_args_take(struct exec_args *a, const struct verb *v, int option)
{
	uint64_t n;
	int r;
	switch (option) {
	case OPT_TIMEOUT:
		return take_ms(v, "timeout", &a->o.timeout_ms);
	case OPT_KILL_GRACE:
		r = take_ms(v, "kill-grace", &n);
		if (!r && n > 3600000)
			return usage_error(v, "--kill-grace is at most an hour");
		a->o.kill_grace_ms = r ? 0 : (unsigned)n;
		return r;
	case OPT_OUTPUT_LIMIT:
		if (!parse_mebibytes(optarg, &n))
			return usage_error(v, "--output-limit wants a size such as 10m, not \"%s\"", optarg);
		a->o.output_limit_bytes = n << 20;
		return 0;
	case 'u':
		a->o.user = optarg;
		return 0;
	case 'w':
		a->o.cwd = optarg;
		return 0;
	case 'i':
		a->interactive = true;
		return 0;
	case 't':
		a->tty = true;
		return 0;
	case 'e':
		if (a->env.n == CLI_ENV_MAX || !parse_pair(optarg, true, &a->env.items[a->env.n]))
			return usage_error(v, "-e wants K=V, or the name of a variable that is set, not \"%s\"", optarg);
		a->env.n++;
		return 0;
	default:
		return 1;
	}
}

int exec_args_done(struct exec_args *a, const struct verb *v, int argc, char **argv)
{
	if (!argc)
		return usage_error(v, "no command is given; put it behind --");
	a->o.argv = (const char *const *)argv; /* NULL-terminated, as main's is */
	a->o.env = a->env.items;
	a->o.n_env = a->env.n;
	return 0;
}
