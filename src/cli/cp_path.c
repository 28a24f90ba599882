/* cp_path.c: see cp_path.h. */
#include "cp_path.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), k = strlen(tail);
	return n >= k && !strcmp(s + n - k, tail);
}

int cp_place_parse(const char *word, struct cp_place *ret)
{
	const char *colon = strchr(word, ':'), *slash = strchr(word, '/');
	struct cp_place p = { 0 };
	if (!*word)
		return -EINVAL;
	p.remote = !strncmp(word, "sb-", 3) && colon && (!slash || colon < slash);
	const char *path = p.remote ? colon + 1 : word;
	p.content = !strcmp(path, ".") || ends_with(path, "/.");
	p.slash = ends_with(path, "/");
	p.id = p.remote ? strndup(word, (size_t)(colon - word)) : NULL;
	p.path = strdup(*path ? path : ".");
	if (!p.path || (p.remote && !p.id)) {
		cp_place_done(&p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

void cp_place_done(struct cp_place *p)
{
	free(p->id);
	free(p->path);
	p->id = p->path = NULL;
}

char *cp_base_name(const char *path)
{
	size_t end = strlen(path);
	while (end && path[end - 1] == '/')
		end--;
	size_t start = end;
	while (start && path[start - 1] != '/')
		start--;
	size_t n = end - start;
	bool dots = (n == 1 && path[start] == '.') || (n == 2 && !strncmp(path + start, "..", 2));
	return strndup(path + start, dots ? 0 : n);
}

char *cp_join(const char *dir, const char *name)
{
	char *out;
	size_t n = strlen(dir);
	if (!*name)
		return strdup(dir);
	return asprintf(&out, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name) < 0 ? NULL : out;
}
