/* render.h: what edges and the store say, as the API's JSON (docs/api.md).
 *
 * Pure. Every function gives a new reference or NULL when memory is out. Bytes
 * that are not UTF-8 never reach JSON raw: where they carry meaning (argv, file
 * names) they come as base64 beside or instead of the text.
 */
#pragma once
#include <jansson.h>
#include "base/buf.h"
#include "base/error.h"
#include "edge.pb-c.h"
#include "store/store.h"

int render_json(const json_t *v, struct buf *out); /* compact, newline at the end; -ENOMEM */
json_t *render_error(const struct dsec_error *e);
json_t *render_wire_error(const Dsec__Edge__Error *e); /* NULL -> JSON null */
json_t *render_sandbox(const Dsec__Edge__Sandbox *s);
json_t *render_exec(const Dsec__Edge__Exec *x);
json_t *render_file(const Dsec__Edge__FileEntry *f);
json_t *render_layer(const struct store_layer *l);
json_t *render_edge(const char *name, bool connected, const Dsec__Edge__EdgeInfo *info);
bool utf8_valid(const uint8_t *p, size_t n); /* no NUL either */
json_t *render_text(const void *p, size_t n); /* bad bytes become U+FFFD */

/* base64 (RFC 4648, padded). encode appends to out. decode: -EINVAL on anything
 * outside the alphabet or a wrong length. */
int base64_encode(const uint8_t *p, size_t n, struct buf *out);
int base64_decode(const char *text, size_t n, struct buf *out);
