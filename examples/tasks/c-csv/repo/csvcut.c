/* csvcut COLUMN...: these columns of standard input. */
#include "csv.h"
#include <stdlib.h>
#include <string.h>

static long find(const struct csv_row *header, const char *name)
{
	for (size_t i = 0; i < header->n; i++)
		if (!strcmp(header->fields[i], name))
			return (long)i;
	return -1;
}

static void print(const struct csv_row *row, const long *columns, int n)
{
	for (int i = 0; i < n; i++) {
		if (i)
			putchar(',');
		csv_write_field(stdout, row->fields[columns[i]]);
	}
	putchar('\n');
}

int main(int argc, char **argv)
{
	struct csv_row header, row;
	if (argc < 2 || csv_read(stdin, &header) != 1) {
		fprintf(stderr, "usage: csvcut COLUMN... < FILE\n");
		return 2;
	}
	long *columns = calloc((size_t)argc, sizeof(long));
	for (int i = 1; i < argc; i++)
		columns[i - 1] = find(&header, argv[i]);
	print(&header, columns, argc - 1);
	while (csv_read(stdin, &row) == 1) {
		print(&row, columns, argc - 1);
		csv_free(&row);
	}
	csv_free(&header);
	free(columns);
	return 0;
}
