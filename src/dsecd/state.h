/* state.h: where a platform on this machine keeps its things, and where the
 * programs beside dsecd are.
 *
 * Used by the supervisor and by `dsecd cleanup`, single-threaded, blocking. The
 * struct owns its strings. Paths are canonical (no links, no "..") because
 * other parts derive names from them and tests look for them in command lines.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define STATE_DIR_DEFAULT "/var/lib/dsec"
#define STATE_DIR_MAX 512 /* longer ones would not leave room for names below */
#define STATE_EDGE_NAME "e0"

struct state {
	char *dir;       /* S */
	char *run_dir;   /* S/run: sockets and pid files, only good for this boot */
	char *layer_dir; /* S/layers */
	char *edge_dir;  /* S/edge */
	char *log_dir;   /* S/log */
	char *key_file;  /* S/api-key */
	char *url_file;  /* S/run/url: where the apiserver listens, for clients on this host */
	int lock_fd;     /* -1: not held */
};
#define STATE_INIT ((struct state){ .lock_fd = -1 })

/* Fills *s. make: creates what is missing, S itself with mode 0700; otherwise
 * -ENOENT when S is not there. -EPERM: S is open to other users and not empty. */
int state_open(const char *dir, bool make, struct state *s);
void state_done(struct state *s); /* also gives the lock back */
#define _cleanup_state_ __attribute__((cleanup(state_done)))

/* The one lock of a state directory, held by its supervisor. -EBUSY when another
 * process holds it; *ret_holder is then its pid as far as it is known, else 0. */
int state_lock(struct state *s, int *ret_holder);

/* Makes S/api-key (mode 0600) unless it is there. */
int state_make_key(const struct state *s);

/* true when S was last run before the present boot, or never. */
bool state_is_of_earlier_boot(const struct state *s);
int state_record_boot(const struct state *s);

/* Path of a helper program: DSEC_LIBEXEC, the build tree that this executable
 * lies in, ../libexec/dsec beside it, the configured libexec directory. -ENOENT. */
int state_find_helper(const char *name, char **ret);
int state_own_path(char **ret); /* of this executable */
