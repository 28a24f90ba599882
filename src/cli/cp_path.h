/* cp_path.h: what the words of `dsec cp` mean. Pure functions. */
#pragma once
#include <stdbool.h>

struct cp_place {
	bool remote;
	char *id;     /* owned; remote only */
	char *path;   /* owned; "." when the word ends behind the colon */
	bool content; /* ends with "/.": the content of the directory, not itself */
	bool slash;   /* ends with "/": a directory is meant */
};

/* "sb-...:PATH" is in a sandbox; everything else is local ("./sb-x:y" too).
 * -ENOMEM, -EINVAL (empty). */
int cp_place_parse(const char *word, struct cp_place *ret);
void cp_place_done(struct cp_place *p);
/* The last name of a path: "a/b/" is "b"; "" for "/", ".", ".." and what ends
 * with one of the two. Into a new string; NULL: no memory. */
char *cp_base_name(const char *path);
/* DIR/NAME, or DIR when name is "". */
char *cp_join(const char *dir, const char *name);
