/* layer_put.h: sending a tar stream to the server as a layer: what import and
 * build share. */
#pragma once
#include "cli/cli.h"
#include "cli/pump.h"

#define LAYER_NAME_MAX 200

/* "NAME@VERSION" of the word; without a version the next whole number after those
 * the server has ("1" for the first). EXIT_* after a complaint. */
int layer_full_name(const struct common *c, struct dsec_client *client, const char *word,
		    char ret[LAYER_NAME_MAX]);
/* Sends what the pump's worker writes; prints the layer. why: the worker's own words
 * when it fails, may be filled in later by it. The exit status. */
int layer_put(const struct common *c, struct dsec_client *client, const char *full_name, const char *source,
	      struct pump *pump, const char *why);
