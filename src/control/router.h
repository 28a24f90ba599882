/* router.h: which handler serves a method and a path.
 *
 * Pure: a table of routes, each a method, a path template ("/v1/sandboxes/{id}")
 * and what it accepts; matching splits the path in place. Used by server.c on
 * the loop thread, and by the test that holds openapi.yaml against the table.
 * A matched variable is never empty. Paths are compared byte by byte; no
 * trailing slash, no dot segments, no case folding.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct request;

#define ROUTE_VARS_MAX 3
#define ROUTE_PATH_MAX 1024 /* bytes of a path; longer is not_found */

enum route_body {
	ROUTE_BODY_NONE = 0, /* a body is refused */
	ROUTE_BODY_JSON,     /* collected whole; the handler runs after it */
	ROUTE_BODY_STREAM,   /* the handler runs at once and takes it in pieces */
};

struct route {
	const char *method;
	const char *template;
	enum route_body body;
	bool open;                /* no key needed */
	const char *const *query; /* allowed parameters, NULL-terminated; NULL: none */
	void (*handle)(struct request *r);
};

struct route_match {
	const struct route *route; /* NULL: see allowed */
	const char *vars[ROUTE_VARS_MAX]; /* in template order; point into `path` */
	/* No route of this method: the methods that the path has, e.g. "GET, PUT". */
	char allow[64];
	bool path_known;
	char path[ROUTE_PATH_MAX + 1]; /* a copy, cut at the slashes */
};

/* HEAD is served by GET's route. */
void route_find(const struct route *table, size_t n, const char *method, const char *path,
		struct route_match *ret);
