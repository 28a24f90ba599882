/* terminal.h: the terminal that looks on: raw mode, size, whether there is one.
 *
 * One user, the session of this process. Raw mode is undone by terminal_restore,
 * which is registered for exit and safe to call any number of times.
 */
#pragma once
#include <stdbool.h>

bool terminal_raw(void); /* of standard input; false: it is no terminal */
void terminal_restore(void);
bool terminal_size(unsigned *ret_rows, unsigned *ret_cols);
