/* base64.c: base64 of render.h; strict when decoding. */
#include <errno.h>
#include "control/render.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(const uint8_t *p, size_t n, struct buf *out)
{
	uint8_t *q;
	size_t want = (n + 2) / 3 * 4;
	int r = buf_reserve(out, want, &q);
	if (r)
		return r;
	for (; n >= 3; n -= 3, p += 3) {
		uint32_t v = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
		*q++ = (uint8_t)letters[v >> 18];
		*q++ = (uint8_t)letters[v >> 12 & 63];
		*q++ = (uint8_t)letters[v >> 6 & 63];
		*q++ = (uint8_t)letters[v & 63];
	}
	if (n) {
		uint32_t v = (uint32_t)p[0] << 16 | (n == 2 ? (uint32_t)p[1] << 8 : 0);
		*q++ = (uint8_t)letters[v >> 18];
		*q++ = (uint8_t)letters[v >> 12 & 63];
		*q++ = n == 2 ? (uint8_t)letters[v >> 6 & 63] : '=';
		*q++ = '=';
	}
	buf_commit(out, want);
	return 0;
}

static int letter_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(const char *text, size_t n, struct buf *out)
{
	uint8_t *q;
	size_t pad = 0;
	if (n % 4)
		return -EINVAL;
	while (n && pad < 2 && text[n - 1 - pad] == '=')
		pad++;
	size_t want = n / 4 * 3 - pad;
	int r = buf_reserve(out, want + 3, &q);
	if (r)
		return r;
	for (size_t i = 0; i < n; i += 4) {
		uint32_t v = 0;
		size_t here = i + 4 == n ? pad : 0; /* padding in the last group only */
		for (size_t j = 0; j < 4; j++) {
			int d = j >= 4 - here ? 0 : letter_value(text[i + j]);
			if (d < 0)
				return -EINVAL;
			v = v << 6 | (uint32_t)d;
		}
		/* bits below the padding must be zero: one text a value */
		if ((here == 1 && v & 0xff) || (here == 2 && v & 0xffff))
			return -EINVAL;
		*q++ = (uint8_t)(v >> 16);
		if (here < 2)
			*q++ = (uint8_t)(v >> 8);
		if (here < 1)
			*q++ = (uint8_t)v;
	}
	buf_commit(out, want);
	return 0;
}
