/* csv.h: rows of a CSV stream. */
#pragma once
#include <stdio.h>

struct csv_row {
	char **fields;
	size_t n;
};

/* The next row: 1, 0 at the end, -1 when it is malformed. Free it with csv_free. */
int csv_read(FILE *in, struct csv_row *row);
void csv_free(struct csv_row *row);
void csv_write_field(FILE *out, const char *field);
