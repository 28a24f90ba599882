/* files.c: file operations are refused until the worker exists. */
#include <string.h>
#include "chronus/chronus-internal.h"

void file_start(struct chronus *c, uint32_t stream, const struct wire_file *w)
{
	uint8_t p[256];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	wire_file_failed(&o, dsec_code_name(DSEC_E_UNSUPPORTED), "file operations are not there yet", 0);
	aether_send_msg(c->conn.a, stream, p, o.n);
	aether_close(c->conn.a, stream);
}
void file_upload(struct file_op *f, const uint8_t *p, size_t n) {}
void file_upload_end(struct file_op *f) {}
void file_command(struct file_op *f, const void *p, size_t n) {}
void file_pump(struct file_op *f) {}
void file_detach(struct file_op *f) {}
bool file_child_exited(struct chronus *c, pid_t pid, int status) { return false; }
void file_tick(struct chronus *c, uint64_t now) {}
uint64_t file_deadline(struct chronus *c) { return CHRONUS_NONE; }
void file_collect(struct chronus *c) {}
