/* readiness.h: does a program that was just started answer yet?
 *
 * Called by the supervisor every few milliseconds while something starts. Each
 * probe opens one connection and closes it; the HTTP one waits for the answer, at
 * most READINESS_PROBE_MS in all. No state.
 */
#pragma once
#include <stdbool.h>

#define READINESS_PROBE_MS 500

bool readiness_socket(const char *path); /* a unix socket, stream or seqpacket */
bool readiness_http(const char *listen); /* "HOST:PORT": GET /readyz answers 200 */

/* Splits "HOST:PORT", "[V6]:PORT"; -EINVAL when it is neither or the port is not
 * 1..65535. Sizes include the NUL. */
#define LISTEN_HOST_MAX 256
int listen_split(const char *listen, char ret_host[LISTEN_HOST_MAX], char ret_port[6]);
