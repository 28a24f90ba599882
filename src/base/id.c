/* id.c: see id.h. */
#include "base/id.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

static void letters(const uint8_t bytes[ID_RANDOM_LEN], char ret[ID_RANDOM_LEN + 1])
{
	for (int i = 0; i < ID_RANDOM_LEN; i++)
		ret[i] = alphabet[bytes[i] & 31];
	ret[ID_RANDOM_LEN] = 0;
}

void id_random(char ret[ID_RANDOM_LEN + 1])
{
	uint8_t r[ID_RANDOM_LEN];
	/* 26 bytes never block or come short once the pool is ready (getrandom(2)). */
	if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
		abort();
	letters(r, ret);
}

void id_sandbox(const char *edge, char ret[SANDBOX_ID_MAX + 1])
{
	char r[ID_RANDOM_LEN + 1];
	id_random(r);
	snprintf(ret, SANDBOX_ID_MAX + 1, "sb-%.*s-%s", EDGE_NAME_MAX, edge, r);
}

void id_sandbox_of(const char *edge, const uint8_t bytes[ID_RANDOM_LEN], char ret[SANDBOX_ID_MAX + 1])
{
	char r[ID_RANDOM_LEN + 1];
	letters(bytes, r);
	snprintf(ret, SANDBOX_ID_MAX + 1, "sb-%.*s-%s", EDGE_NAME_MAX, edge, r);
}

void id_exec(char ret[EXEC_ID_MAX + 1])
{
	memcpy(ret, "ex-", 3);
	id_random(ret + 3);
}

bool id_edge_name_valid(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
	return n >= 1 && n <= EDGE_NAME_MAX && !name[n];
}

bool id_sandbox_edge(const char *id, char ret[EDGE_NAME_MAX + 1])
{
	if (strncmp(id, "sb-", 3))
		return false;
	const char *dash = strchr(id + 3, '-');
	if (!dash || dash - (id + 3) > EDGE_NAME_MAX || strlen(dash + 1) != ID_RANDOM_LEN ||
	    strspn(dash + 1, alphabet) != ID_RANDOM_LEN)
		return false;
	size_t n = (size_t)(dash - (id + 3));
	char edge[EDGE_NAME_MAX + 1];
	memcpy(edge, id + 3, n);
	edge[n] = 0;
	if (!id_edge_name_valid(edge))
		return false;
	memcpy(ret, edge, n + 1);
	return true;
}

bool id_exec_valid(const char *id)
{
	size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
	return n >= 1 && n <= EXEC_ID_MAX && !id[n] && id[0] != '.';
}

bool id_name_valid(const char *name)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-");
	return n >= 1 && n <= NAME_MAX_LEN && !name[n] && strchr(first, name[0]);
}
