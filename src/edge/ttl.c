/* ttl.c: see ttl.h. */
#include "edge/ttl.h"
#include <errno.h>
#include "base/cleanup.h"

uint64_t ttl_sample_period_ms(const struct ttl *t)
{
	uint64_t p = t->idle_ms / 4;
	return MIN(MAX(p, (uint64_t)TTL_SAMPLE_MIN_MS), (uint64_t)TTL_SAMPLE_MAX_MS);
}

uint64_t ttl_idle_end_ms(const struct ttl *t, bool busy)
{
	return t->idle_ms && !busy ? t->active_ms + t->idle_ms : 0;
}

enum ttl_verdict ttl_decide(const struct ttl *t, uint64_t now_ms, bool busy, uint64_t *ret_next)
{
	if (now_ms >= t->end_ms)
		return TTL_EXPIRED;
	uint64_t idle_end = ttl_idle_end_ms(t, busy), next = t->end_ms;
	if (idle_end) {
		if (now_ms >= idle_end)
			return TTL_IDLE;
		next = MIN(next, MIN(idle_end, now_ms + ttl_sample_period_ms(t)));
	}
	*ret_next = next;
	return TTL_KEEP;
}

int ttl_renew(struct ttl *t, uint64_t now_ms, bool busy, const uint64_t *lifetime_ms, const uint64_t *idle_ms)
{
	uint64_t next;
	if (ttl_decide(t, now_ms, busy, &next) != TTL_KEEP)
		return -ESTALE;
	if (lifetime_ms && (*lifetime_ms < TTL_MIN_MS || *lifetime_ms > TTL_MAX_MS))
		return -EINVAL;
	if (idle_ms && *idle_ms && (*idle_ms < TTL_IDLE_MIN_MS || *idle_ms > TTL_MAX_MS))
		return -EINVAL;
	if (lifetime_ms)
		t->end_ms = now_ms + *lifetime_ms;
	if (idle_ms)
		t->idle_ms = *idle_ms;
	ttl_touch(t, now_ms);
	return 0;
}

void ttl_touch(struct ttl *t, uint64_t now_ms)
{
	t->active_ms = now_ms;
}

void ttl_sample(struct ttl *t, uint64_t now_ms, uint64_t cpu_usec)
{
	uint64_t used = cpu_usec > t->cpu_usec ? cpu_usec - t->cpu_usec : 0;
	uint64_t passed_ms = now_ms > t->sampled_ms ? now_ms - t->sampled_ms : 0;
	/* passed_ms * 1000 us, of which a permille is passed_ms us. */
	bool first = !t->sampled_ms;
	t->sampled_ms = now_ms;
	t->cpu_usec = cpu_usec;
	if (!first && passed_ms && used > passed_ms * TTL_IDLE_CPU_PERMILLE)
		t->active_ms = now_ms;
}
