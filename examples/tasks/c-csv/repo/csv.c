/* csv.c: see csv.h. */
#include "csv.h"
#include <stdlib.h>
#include <string.h>

static void add_field(struct csv_row *row, const char *text, size_t n)
{
	row->fields = realloc(row->fields, (row->n + 1) * sizeof(char *));
	row->fields[row->n] = malloc(n + 1);
	memcpy(row->fields[row->n], text, n);
	row->fields[row->n][n] = 0;
	row->n++;
}

int csv_read(FILE *in, struct csv_row *row)
{
	static char line[1024];
	memset(row, 0, sizeof(*row));
	if (!fgets(line, sizeof(line), in))
		return 0;
	line[strcspn(line, "\n")] = 0;
	char *at = line;
	for (;;) {
		size_t n = strcspn(at, ",");
		add_field(row, at, n);
		if (!at[n])
			return 1;
		at += n + 1;
	}
}

void csv_free(struct csv_row *row)
{
	for (size_t i = 0; i < row->n; i++)
		free(row->fields[i]);
	free(row->fields);
	memset(row, 0, sizeof(*row));
}

void csv_write_field(FILE *out, const char *field)
{
	fputs(field, out);
}
