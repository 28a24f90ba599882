/* import_main.h: the sub-command `dsecd layer-import`. Called by dsecd's main,
 * which the apiserver runs as a child for each upload. */
#pragma once

/* layer-import --layer-dir L [--compress]: a tar stream on stdin, one JSON line on
 * stdout: {"digest", "size_bytes", "files", "config", "skipped": {...}} and exit
 * status 0, or {"error": {"code", "message"}} and 1; usage errors 2. SIGTERM and
 * SIGINT stop it within a moment and leave nothing behind. */
int layer_import_main(int argc, char **argv);
