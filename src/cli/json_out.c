/* json_out.c: see json_out.h. */
#include "cli/json_out.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* Length of the UTF-8 sequence at p, 0 when it is none. */
static size_t utf8_len(const unsigned char *p)
{
	if (p[0] < 0x80)
		return 1;
	size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
	if (p[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
	    (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

void json_string_out(FILE *f, const char *text)
{
	putc('"', f);
	for (const unsigned char *p = (const unsigned char *)text; *p;) {
		size_t n = utf8_len(p);
		if (!n) {
			fputs("\xef\xbf\xbd", f);
			p++;
			continue;
		}
		if (*p == '"' || *p == '\\')
			fprintf(f, "\\%c", *p);
		else if (*p < 0x20 || *p == 0x7f)
			fprintf(f, "\\u%04x", *p);
		else
			fwrite(p, 1, n, f);
		p += n;
	}
	putc('"', f);
}

static void new_line(FILE *f, int depth)
{
	putc('\n', f);
	for (int i = 0; i < depth; i++)
		fputs("  ", f);
}

void json_pretty_out(FILE *f, const char *json)
{
	int depth = 0;
	bool in_string = false;
	for (const char *p = json; *p; p++) {
		if (in_string) {
			putc(*p, f);
			if (*p == '\\' && p[1])
				putc(*++p, f);
			else if (*p == '"')
				in_string = false;
			continue;
		}
		switch (*p) {
		case '"':
			in_string = true;
			putc(*p, f);
			break;
		case '{':
		case '[':
			putc(*p, f);
			if (p[1] != '}' && p[1] != ']')
				new_line(f, ++depth);
			else
				putc(*++p, f);
			break;
		case '}':
		case ']':
			new_line(f, --depth);
			putc(*p, f);
			break;
		case ',':
			putc(*p, f);
			new_line(f, depth);
			break;
		case ':':
			fputs(": ", f);
			break;
		case ' ':
		case '\n':
		case '\t':
		case '\r':
			break;
		default:
			putc(*p, f);
		}
	}
	putc('\n', f);
}

void json_list_out(FILE *f, const char *name, const char *(*item)(size_t i, void *user), size_t n, void *user)
{
	fprintf(f, "{\"%s\":[", name);
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%s%s", i ? "," : "", item(i, user));
	fputs("]}\n", f);
}

void base64_out(FILE *f, const void *data, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *p = data;
	for (; n >= 3; n -= 3, p += 3) {
		putc(digits[p[0] >> 2], f);
		putc(digits[(p[0] & 3) << 4 | p[1] >> 4], f);
		putc(digits[(p[1] & 15) << 2 | p[2] >> 6], f);
		putc(digits[p[2] & 63], f);
	}
	if (n) {
		uint8_t second = n > 1 ? p[1] : 0;
		putc(digits[p[0] >> 2], f);
		putc(digits[(p[0] & 3) << 4 | second >> 4], f);
		putc(n > 1 ? digits[(second & 15) << 2] : '=', f);
		putc('=', f);
	}
}

const char *format_bytes(char ret[32], unsigned long long bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	size_t i = 0;
	for (; value >= 1024 && i < 4; i++)
		value /= 1024;
	snprintf(ret, 32, i && value < 10 ? "%.1f %s" : "%.0f %s", value, units[i]);
	return ret;
}

const char *format_age(char ret[32], double since)
{
	double s = (double)time(NULL) - since;
	if (since <= 0)
		return strcpy(ret, "-");
	if (s < 0)
		s = 0;
	if (s < 120)
		snprintf(ret, 32, "%.0fs", s);
	else if (s < 7200)
		snprintf(ret, 32, "%.0fm", s / 60);
	else if (s < 172800)
		snprintf(ret, 32, "%.0fh", s / 3600);
	else
		snprintf(ret, 32, "%.0fd", s / 86400);
	return ret;
}
