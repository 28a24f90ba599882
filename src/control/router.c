/* router.c: see router.h. A linear walk: some thirty short templates. */
#include "control/router.h"
#include <stdio.h>
#include <string.h>

#define SEGMENTS_MAX 8

/* Splits "/a/b/c" in place into its segments. -1: not of that shape. */
static int split(char *path, char *ret[SEGMENTS_MAX])
{
	int n = 0;
	if (*path != '/')
		return -1;
	while (*path == '/') {
		*path++ = 0;
		if (n == SEGMENTS_MAX || *path == 0 || *path == '/')
			return -1;
		ret[n++] = path;
		path += strcspn(path, "/");
	}
	return n;
}

/* Does the template fit the segments? Fills vars. */
static bool fits(const char *template, char *const seg[], int n, const char *vars[ROUTE_VARS_MAX])
{
	int at = 0, nvars = 0;
	while (*template == '/') {
		template++;
		size_t len = strcspn(template, "/");
		if (at == n)
			return false;
		if (*template == '{') {
			if (nvars < ROUTE_VARS_MAX)
				vars[nvars++] = seg[at];
		} else if (strlen(seg[at]) != len || memcmp(seg[at], template, len)) {
			return false;
		}
		template += len;
		at++;
	}
	return at == n;
}

static void add_allowed(struct route_match *m, const char *method)
{
	size_t len = strlen(m->allow);
	snprintf(m->allow + len, sizeof(m->allow) - len, "%s%s", len ? ", " : "", method);
}

void route_find(const struct route *table, size_t n, const char *method, const char *path,
		struct route_match *ret)
{
	char *seg[SEGMENTS_MAX];
	memset(ret, 0, offsetof(struct route_match, path));
	size_t len = strlen(path);
	if (len > ROUTE_PATH_MAX)
		return;
	memcpy(ret->path, path, len + 1);
	int nseg = split(ret->path, seg);
	if (nseg < 0)
		return;
	if (!strcmp(method, "HEAD"))
		method = "GET";
	for (size_t i = 0; i < n; i++) {
		const char *vars[ROUTE_VARS_MAX] = { NULL };
		if (!fits(table[i].template, seg, nseg, vars))
			continue;
		ret->path_known = true;
		if (!strcmp(table[i].method, method)) {
			ret->route = &table[i];
			memcpy(ret->vars, vars, sizeof(vars));
			return;
		}
		add_allowed(ret, table[i].method);
		if (!strcmp(table[i].method, "GET"))
			add_allowed(ret, "HEAD");
	}
}
