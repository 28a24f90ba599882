/* fault.c: see fault.h. */
#include "fault.h"
#include <errno.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);

static bool armed, reached;
static unsigned countdown;
static size_t count;

static bool fails(void)
{
	count++;
	if (!armed || countdown--)
		return false;
	armed = false;
	reached = true;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

void fault_alloc_arm(unsigned nth)
{
	armed = true;
	reached = false;
	countdown = nth;
}

bool fault_alloc_disarm(void)
{
	armed = false;
	return reached;
}

size_t fault_alloc_count(void)
{
	return count;
}
