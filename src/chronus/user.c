/* user.c: who a command runs as, from the sandbox's own passwd and group files.
 *
 * Runs in a child that has entered the user namespace. The files are whatever
 * root inside made of them: they are opened without blocking, must be regular, are
 * read up to FILE_MAX bytes, and lines that are not understood are skipped. A
 * number needs no entry; the highest id is SANDBOX_ID_LAST. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "chronus/chronus-internal.h"

#define FILE_MAX (1024 * 1024) /* of passwd or group; the rest is not looked at */

/* The next line of *at into fields split at ':'. Number of fields, -1 at the end.
 * Fields point into the text and end at `end[i]`. */
struct field {
	const char *p;
	size_t n;
};
static int next_line(const char **at, struct field *f, int max)
{
	if (!**at)
		return -1;
	const char *end = strchrnul(*at, '\n'), *p = *at;
	int n = 0;
	while (n < max) {
		const char *colon = memchr(p, ':', (size_t)(end - p));
		const char *stop = colon && n < max - 1 ? colon : end;
		f[n++] = (struct field){ p, (size_t)(stop - p) };
		if (stop == end)
			break;
		p = stop + 1;
	}
	*at = *end ? end + 1 : end;
	return n;
}

static bool is(const struct field *f, const char *s, size_t n)
{
	return f->n == n && !memcmp(f->p, s, n);
}

/* Decimal digits only, at most SANDBOX_ID_LAST. -1: not an id. */
static long to_id(const char *p, size_t n)
{
	long v = 0;
	if (!n || n > 5)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -1;
		v = v * 10 + (p[i] - '0');
	}
	return v <= SANDBOX_ID_LAST ? v : -1;
}

static bool copy_field(const struct field *f, char *to, size_t cap)
{
	if (f->n >= cap || memchr(f->p, 0, f->n))
		return false;
	memcpy(to, f->p, f->n);
	to[f->n] = 0;
	return true;
}

/* An entry by name, or by uid when name is not given. */
static bool find_user(const char *passwd, const char *name, size_t n, long uid, struct sandbox_user *u)
{
	struct field f[7];
	int k;
	while ((k = next_line(&passwd, f, 7)) >= 0) {
		long id = k >= 4 ? to_id(f[2].p, f[2].n) : -1, gid = k >= 4 ? to_id(f[3].p, f[3].n) : -1;
		if (id < 0 || gid < 0 || !f[0].n || (uid >= 0 ? id != uid : !is(&f[0], name, n)))
			continue;
		if (!copy_field(&f[0], u->name, sizeof(u->name)))
			continue;
		u->uid = (uid_t)id;
		u->gid = (gid_t)gid;
		if (k > 5 && f[5].n)
			copy_field(&f[5], u->home, sizeof(u->home));
		if (k > 6 && f[6].n)
			copy_field(&f[6], u->shell, sizeof(u->shell));
		return true;
	}
	return false;
}

static long find_group(const char *group, const char *name, size_t n)
{
	struct field f[4];
	int k;
	while ((k = next_line(&group, f, 4)) >= 0)
		if (k >= 3 && is(&f[0], name, n) && to_id(f[2].p, f[2].n) >= 0)
			return to_id(f[2].p, f[2].n);
	return -1;
}

static bool is_member(const struct field *list, const char *name)
{
	size_t n = strlen(name);
	const char *p = list->p, *end = p + list->n;
	while (p < end) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		const char *stop = comma ? comma : end;
		if ((size_t)(stop - p) == n && !memcmp(p, name, n))
			return true;
		p = stop + 1;
	}
	return false;
}

static void find_groups(const char *group, struct sandbox_user *u)
{
	struct field f[4];
	int k;
	u->groups[u->n_groups++] = u->gid;
	while ((k = next_line(&group, f, 4)) >= 0 && u->n_groups < ARRAY_SIZE(u->groups)) {
		long gid = k >= 4 ? to_id(f[2].p, f[2].n) : -1;
		if (gid >= 0 && (gid_t)gid != u->gid && is_member(&f[3], u->name))
			u->groups[u->n_groups++] = (gid_t)gid;
	}
}

int user_parse(const char *spec, const char *passwd, const char *group, struct sandbox_user *ret,
	       struct dsec_error *e)
{
	const char *colon = strchr(spec, ':');
	size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
	struct sandbox_user u = { .home = "/", .shell = "/bin/sh" };
	if (!n) {
		spec = "0";
		n = 1;
	}
	if (!find_user(passwd, spec, n, -1, &u)) {
		long id = to_id(spec, n);
		if (id < 0 && n == 4 && !memcmp(spec, "root", 4))
			id = 0; /* also in an image without a passwd file */
		if (id < 0)
			return dsec_error_set(e, -ENOENT, DSEC_E_BAD_USER,
					      "no user '%.*s' in the sandbox's /etc/passwd (ids go up to %d)",
					      (int)MIN(n, (size_t)64), spec, SANDBOX_ID_LAST);
		if (!find_user(passwd, NULL, 0, id, &u)) {
			u.uid = (uid_t)id;
			u.gid = (gid_t)(id == 0 ? 0 : id);
			snprintf(u.name, sizeof(u.name), "%s", id == 0 ? "root" : "");
			if (id)
				snprintf(u.name, sizeof(u.name), "%ld", id);
			else
				strcpy(u.home, "/root");
		}
	}
	if (colon) {
		size_t gn = strlen(colon + 1);
		long gid = find_group(group, colon + 1, gn);
		gid = gid < 0 ? to_id(colon + 1, gn) : gid;
		if (gid < 0)
			return dsec_error_set(e, -ENOENT, DSEC_E_BAD_USER,
					      "no group '%.64s' in the sandbox's /etc/group", colon + 1);
		u.gid = (gid_t)gid;
	}
	find_groups(group, &u);
	*ret = u;
	return 0;
}

/* The text of a regular file, or an empty string. The caller frees. */
static char *read_hostile(const char *path)
{
	struct open_how how = { .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
				.resolve = RESOLVE_NO_MAGICLINKS };
	struct stat st;
	_cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
	bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
	size_t cap = ok ? (size_t)MAX(0, MIN(st.st_size, (off_t)FILE_MAX)) : 0;
	char *text = malloc(cap + 1);
	ssize_t n = text && cap ? read_all(fd, text, cap) : 0;
	if (text)
		text[MAX(n, 0)] = 0; /* a NUL inside only ends it earlier */
	return text;
}

int user_resolve(const char *spec, struct sandbox_user *ret, struct dsec_error *e)
{
	_cleanup_free_ char *passwd = read_hostile("/etc/passwd"), *group = read_hostile("/etc/group");
	if (!passwd || !group)
		return dsec_error_set(e, -ENOMEM, DSEC_E_CAPACITY, "no memory to read /etc/passwd");
	return user_parse(spec, passwd, group, ret, e);
}
