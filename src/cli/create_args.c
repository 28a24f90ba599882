/* create_args.c: see create_args.h. */
#include "cli/create_args.h"

#define CORES_MAX 4096
#define PIDS_MAX 4194304

static int take_size(const struct verb *v, const char *name, uint64_t *ret_mb)
{
	return parse_mebibytes(optarg, ret_mb)
		       ? 0
		       : usage_error(v, "--%s wants a size such as 512m or 2g, not \"%s\"", name, optarg);
}

static int take_time(const struct verb *v, const char *name, double *ret)
{
	return parse_duration(optarg, ret) && *ret > 0
		       ? 0
		       : usage_error(v, "--%s wants a time such as 30s, 10m or 2h, not \"%s\"", name, optarg);
}

int create_args_take(struct create_args *a, const struct verb *v, int option)
{
	uint64_t n;
	switch (option) {
	case OPT_ENV:
		a->o.environment = optarg;
		return 0;
	case OPT_CPU:
		return parse_number(optarg, 0.001, CORES_MAX, &a->o.cpu)
			       ? 0
			       : usage_error(v, "--cpu wants a number of cores such as 0.5, not \"%s\"", optarg);
	case OPT_MEMORY:
		return take_size(v, "memory", &a->o.memory_mb);
	case OPT_DISK:
		return take_size(v, "disk", &a->o.disk_mb);
	case OPT_PIDS:
		if (!parse_count(optarg, PIDS_MAX, &n) || !n)
			return usage_error(v, "--pids wants a number from 1, not \"%s\"", optarg);
		a->o.pids = (unsigned)n;
		return 0;
	case OPT_TTL:
		return take_time(v, "ttl", &a->o.ttl_seconds);
	case OPT_IDLE_TTL:
		return take_time(v, "idle-ttl", &a->o.idle_ttl_seconds);
	case OPT_LABEL:
		if (a->n_labels == CLI_LABELS_MAX)
			return usage_error(v, "at most %d labels", CLI_LABELS_MAX);
		if (!parse_pair(optarg, false, &a->labels[a->n_labels]))
			return usage_error(v, "--label wants K=V, not \"%s\"", optarg);
		a->n_labels++;
		return 0;
	case OPT_HOSTNAME:
		a->o.hostname = optarg;
		return 0;
	case OPT_BACKEND:
		a->o.backend = optarg;
		return 0;
	case OPT_NO_NEW_PRIVS:
		a->o.no_new_privileges = true;
		return 0;
	default:
		return 1;
	}
}

int create_args_done(struct create_args *a, const struct verb *v)
{
	a->o.labels = a->labels;
	a->o.n_labels = a->n_labels;
	if (!a->o.environment)
		return usage_error(v, "--env must name an environment; `dsec layer ls` lists them");
	return 0;
}
