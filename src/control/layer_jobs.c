/* layer_jobs.c: see layer_jobs.h. */
#include "control/layer_jobs.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/hashmap.h"
#include "control/limits.h"

struct use {
	char digest[STORE_DIGEST_LEN + 1];
	unsigned holds;
	bool removing;
};

struct layer_jobs {
	struct hashmap uses; /* digest -> struct use, while it is held or being removed */
	unsigned imports;
};

int layer_jobs_new(struct layer_jobs **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void layer_jobs_free(struct layer_jobs *j)
{
	struct use *u;
	size_t it = 0;
	if (!j)
		return;
	while ((u = hashmap_next(&j->uses, &it)))
		free(u);
	hashmap_done(&j->uses);
	free(j);
}

static int use_of(struct layer_jobs *j, const char *digest, struct use **ret)
{
	struct use *u = hashmap_get(&j->uses, digest);
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return -ENOMEM;
		strncpy(u->digest, digest, STORE_DIGEST_LEN);
		int r = hashmap_put(&j->uses, u->digest, u);
		if (r) {
			free(u);
			return r;
		}
	}
	*ret = u;
	return 0;
}

static void drop_if_unused(struct layer_jobs *j, struct use *u)
{
	if (u && !u->holds && !u->removing) {
		hashmap_remove(&j->uses, u->digest);
		free(u);
	}
}

int layer_hold(struct control *ctl, const char *digest)
{
	struct use *u;
	int r = use_of(ctl->layer_jobs, digest, &u);
	if (r)
		return r;
	if (u->removing)
		return -EBUSY;
	u->holds++;
	return 0;
}

void layer_unhold(struct control *ctl, const char *digest)
{
	struct use *u = hashmap_get(&ctl->layer_jobs->uses, digest);
	if (u && u->holds)
		u->holds--;
	drop_if_unused(ctl->layer_jobs, u);
}

int layer_removal_begin(struct control *ctl, const char *digest)
{
	struct use *u;
	int r = use_of(ctl->layer_jobs, digest, &u);
	if (r)
		return r;
	if (u->removing || u->holds)
		return -EBUSY;
	u->removing = true;
	return 0;
}

void layer_removal_end(struct control *ctl, const char *digest)
{
	struct use *u = hashmap_get(&ctl->layer_jobs->uses, digest);
	if (u)
		u->removing = false;
	drop_if_unused(ctl->layer_jobs, u);
}

bool layer_import_begin(struct control *ctl)
{
	if (ctl->layer_jobs->imports >= LIMIT_LAYER_IMPORTS_MAX)
		return false;
	ctl->layer_jobs->imports++;
	return true;
}

void layer_import_end(struct control *ctl)
{
	ctl->layer_jobs->imports--;
}
