/* plan.c: see plan.h. The command lines are the contract between the programs. */
#include "dsecd/plan.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/log.h"

static struct program *add(struct plan *plan, const struct state *s, enum program_phase phase, const char *name)
{
	if (plan->n == PLAN_PROGRAMS_MAX)
		return NULL;
	struct program *p = &plan->programs[plan->n];
	if (program_init(p, s, phase, name) < 0)
		return NULL;
	plan->n++;
	return p;
}

static int add_mounter(struct plan *plan, const struct state *s, const char *path)
{
	struct program *p = add(plan, s, PHASE_MOUNTER, "mounter");
	if (!p || asprintf(&p->socket, "%s/mounter.sock", s->run_dir) < 0)
		return -ENOMEM;
	return program_add_word(p, "%s", path) | program_add_word(p, "--run-dir") |
	       program_add_word(p, "%s", s->run_dir) | program_add_word(p, "--state-dir") |
	       program_add_word(p, "%s", s->dir) | program_add_word(p, "--layer-dir") |
	       program_add_word(p, "%s", s->layer_dir);
}

static int add_spawner(struct plan *plan, const struct state *s, const char *path, const char *chronus, unsigned i)
{
	char name[PIDFILE_NAME_MAX];
	snprintf(name, sizeof(name), "spawner-%u", i);
	struct program *p = add(plan, s, PHASE_SPAWNER, name);
	if (!p || asprintf(&p->socket, "%s/%s.sock", s->run_dir, name) < 0)
		return -ENOMEM;
	return program_add_word(p, "%s", path) | program_add_word(p, "--run-dir") |
	       program_add_word(p, "%s", s->run_dir) | program_add_word(p, "--index") |
	       program_add_word(p, "%u", i) | program_add_word(p, "--chronus") | program_add_word(p, "%s", chronus);
}

static int add_edge(struct plan *plan, const struct state *s, const struct up_options *o, const char *own)
{
	struct program *p = add(plan, s, PHASE_EDGE, "edge-" STATE_EDGE_NAME);
	if (!p || asprintf(&p->socket, "%s/edge-%s.sock", s->run_dir, STATE_EDGE_NAME) < 0)
		return -ENOMEM;
	int r = program_add_word(p, "%s", own) | program_add_word(p, "edge") | program_add_word(p, "--name") |
		program_add_word(p, "%s", STATE_EDGE_NAME) | program_add_word(p, "--run-dir") |
		program_add_word(p, "%s", s->run_dir) | program_add_word(p, "--state-dir") |
		program_add_word(p, "%s", s->edge_dir) | program_add_word(p, "--layer-dir") |
		program_add_word(p, "%s", s->layer_dir);
	if (o->max_sandboxes)
		r |= program_add_word(p, "--max-sandboxes") | program_add_word(p, "%u", o->max_sandboxes);
	if (o->pool >= 0)
		r |= program_add_word(p, "--pool") | program_add_word(p, "%d", o->pool);
	return r;
}

static int add_apiserver(struct plan *plan, const struct state *s, const struct up_options *o, const char *own)
{
	struct program *p = add(plan, s, PHASE_APISERVER, "apiserver");
	if (!p)
		return -ENOMEM;
	p->listen = o->listen;
	return program_add_word(p, "%s", own) | program_add_word(p, "apiserver") |
	       program_add_word(p, "--listen") | program_add_word(p, "%s", o->listen) |
	       program_add_word(p, "--run-dir") | program_add_word(p, "%s", s->run_dir) |
	       program_add_word(p, "--store") | program_add_word(p, "%s/store.db", s->dir) |
	       program_add_word(p, "--layer-dir") | program_add_word(p, "%s", s->layer_dir) |
	       program_add_word(p, "--edge") |
	       program_add_word(p, "%s=unix:%s/edge-%s.sock", STATE_EDGE_NAME, s->run_dir, STATE_EDGE_NAME) |
	       program_add_word(p, "--key-file") | program_add_word(p, "%s", s->key_file);
}

/* The cores that we may run on; a spawner pins itself to one. */
static unsigned count_cores(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);
	return (unsigned)MAX(1, MIN(n, PLAN_SPAWNERS_MAX));
}

static int find(const char *name, char **ret)
{
	int r = state_find_helper(name, ret);
	if (r < 0)
		log_error("the program %s is not found beside dsecd, in DSEC_LIBEXEC nor in %s: is DSec installed whole?",
			  name, DSEC_LIBEXEC_DIR);
	return r;
}

int plan_make(struct plan *plan, const struct state *s, const struct up_options *o)
{
	_cleanup_free_ char *own = NULL, *mounter = NULL, *spawner = NULL, *chronus = NULL;
	int r = state_own_path(&own);
	r = r < 0 ? r : find("dsec-mounter", &mounter);
	r = r < 0 ? r : find("dsec-spawner", &spawner);
	r = r < 0 ? r : find("chronus", &chronus);
	if (r < 0)
		return r;
	if (asprintf(&plan->own_log, "%s/up.log", s->log_dir) < 0) {
		plan->own_log = NULL;
		return -ENOMEM;
	}
	r = add_mounter(plan, s, mounter);
	unsigned n = count_cores();
	for (unsigned i = 0; !r && i < n; i++)
		r = add_spawner(plan, s, spawner, chronus, i);
	if (!r)
		r = add_edge(plan, s, o, own);
	if (!r)
		r = add_apiserver(plan, s, o, own);
	return r ? -ENOMEM : 0; /* a word could not be added */
}

void plan_done(struct plan *plan)
{
	for (unsigned i = 0; i < plan->n; i++)
		program_done(&plan->programs[i]);
	free(plan->own_log);
	*plan = (struct plan){ 0 };
}
