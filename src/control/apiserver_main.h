/* apiserver_main.h: the role `dsecd apiserver`. Called by dsecd's main. */
#pragma once

/* Runs until SIGTERM or SIGINT; exit status. Options: see usage in the .c. */
int apiserver_main(int argc, char **argv);
