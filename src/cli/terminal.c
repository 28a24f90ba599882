/* terminal.c: see terminal.h. */
#include "cli/terminal.h"
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static bool is_raw;

void terminal_restore(void)
{
	if (is_raw)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
	is_raw = false;
}

bool terminal_raw(void)
{
	struct termios raw;
	if (tcgetattr(STDIN_FILENO, &before) < 0)
		return false;
	raw = before;
	cfmakeraw(&raw);
	atexit(terminal_restore);
	is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
	return is_raw;
}

bool terminal_size(unsigned *ret_rows, unsigned *ret_cols)
{
	struct winsize w;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (!ioctl(fd, TIOCGWINSZ, &w) && w.ws_row && w.ws_col) {
			*ret_rows = w.ws_row;
			*ret_cols = w.ws_col;
			return true;
		}
	return false;
}
