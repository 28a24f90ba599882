/* edge_main.h: `dsecd edge`, called by src/dsecd. Exit status as a program's. */
#pragma once

int edge_main(int argc, char **argv);
