/* supervisor.h: `dsecd up` and `dsecd cleanup`: one machine's platform.
 *
 * supervisor_main starts mounter, spawners, edge and apiserver, restarts what
 * dies and ends all on SIGTERM, SIGINT or SIGHUP. cleanup_main removes what a
 * platform left whose supervisor is dead. Both are main functions of their own
 * process (src/dsecd/dsecd.c) and return its exit status.
 */
#pragma once

int supervisor_main(int argc, char **argv);
int cleanup_main(int argc, char **argv);
int down_main(int argc, char **argv);
