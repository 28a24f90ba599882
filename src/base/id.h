/* id.h: identifiers nobody can guess, and the checks of names from outside.
 *
 * A sandbox id is "sb-EDGE-RANDOM": EDGE is the edge's name ([a-z0-9]{1,16}),
 * so that any apiserver finds the edge without a look-up; RANDOM is 26 letters
 * of base32 (130 bits). Exec ids chosen by us are "ex-" + 26 letters. Stateless,
 * any thread; randomness from getrandom(2).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ID_RANDOM_LEN 26
#define EDGE_NAME_MAX 16
#define SANDBOX_ID_MAX (3 + EDGE_NAME_MAX + 1 + ID_RANDOM_LEN)
#define EXEC_ID_MAX 64  /* client-chosen: [A-Za-z0-9._-]{1,64}, not "." or ".." */
#define NAME_MAX_LEN 63 /* layers, environments, labels: [a-z0-9][a-z0-9._-]{0,62} */

void id_random(char ret[ID_RANDOM_LEN + 1]);
void id_sandbox(const char *edge, char ret[SANDBOX_ID_MAX + 1]);
/* The same of bytes that the caller drew: the low 5 bits of each. */
void id_sandbox_of(const char *edge, const uint8_t bytes[ID_RANDOM_LEN], char ret[SANDBOX_ID_MAX + 1]);
void id_exec(char ret[EXEC_ID_MAX + 1]);
/* Copies the edge name out of a well-formed sandbox id. false: not an id. */
bool id_sandbox_edge(const char *id, char ret[EDGE_NAME_MAX + 1]);
bool id_exec_valid(const char *id);
bool id_name_valid(const char *name);
bool id_edge_name_valid(const char *name);
