/* import_tool.c: `dsecd layer-import` as a program of its own, for tests and
 * benches of this folder; not installed. */
#include "layer/import_main.h"

int main(int argc, char **argv)
{
	return layer_import_main(argc, argv);
}
