/* resources.h: the handlers of the route table, one file a resource.
 *
 * Each is called by the server as request.h says. routes.c holds the table.
 */
#pragma once
#include "control/router.h"

extern const struct route api_routes[];
extern const size_t api_routes_count;

/* sandboxes.c, create.c, list.c */
void handle_sandbox_create(struct request *r);
void handle_sandbox_create_batch(struct request *r);
void handle_sandbox_delete_many(struct request *r);
void handle_sandbox_status(struct request *r);
void handle_sandbox_events(struct request *r);
void handle_sandbox_list(struct request *r);
void handle_sandbox_get(struct request *r);
void handle_sandbox_delete(struct request *r);
void handle_sandbox_ttl(struct request *r);
/* execs.c, exec_start.c, exec_stream.c, exec_stdin.c */
void handle_exec_start(struct request *r);
void handle_exec_list(struct request *r);
void handle_exec_get(struct request *r);
void handle_exec_output(struct request *r);
void handle_exec_stdin(struct request *r);
void handle_exec_signal(struct request *r);
void handle_exec_resize(struct request *r);
/* files.c, transfer.c */
void handle_file_read(struct request *r);
void handle_file_write(struct request *r);
void handle_file_remove(struct request *r);
void handle_file_stat(struct request *r);
void handle_file_list(struct request *r);
void handle_file_mkdir(struct request *r);
void handle_file_move(struct request *r);
void handle_archive_get(struct request *r);
void handle_archive_put(struct request *r);
/* layers.c, layer_put.c */
void handle_layer_list(struct request *r);
void handle_layer_get(struct request *r);
void handle_layer_put(struct request *r);
void handle_layer_delete(struct request *r);
/* meta.c */
void handle_healthz(struct request *r);
void handle_readyz(struct request *r);
void handle_metrics(struct request *r);
void handle_version(struct request *r);
void handle_limits(struct request *r);
void handle_edges(struct request *r);
