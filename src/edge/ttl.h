/* ttl.h: the decision whether a sandbox's time is over.
 *
 * Pure arithmetic on monotonic milliseconds; the owner (sandbox.c, on the loop)
 * passes the time in. Renew and expire are one serialised decision: ttl_renew
 * asks ttl_decide first, so a renewal that comes after the end loses, whether or
 * not the timer has fired yet.
 *
 * Two clocks: the lifetime, always set, and the idle time, optional. Idle means
 * no API traffic, no running command, and no CPU use; CPU is sampled, so an idle
 * end is late by at most one sample period.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define TTL_MIN_MS 1000
#define TTL_MAX_MS (30ull * 24 * 60 * 60 * 1000)
#define TTL_IDLE_MIN_MS 1000
#define TTL_SAMPLE_MIN_MS 250
#define TTL_SAMPLE_MAX_MS 15000
/* CPU use below this share of one core is taken for housekeeping. */
#define TTL_IDLE_CPU_PERMILLE 10

struct ttl {
	uint64_t end_ms;         /* lifetime ends */
	uint64_t idle_ms;        /* 0: no idle limit */
	uint64_t active_ms;      /* last sign of life */
	uint64_t sampled_ms;     /* when cpu_usec was read */
	uint64_t cpu_usec;
};

enum ttl_verdict { TTL_KEEP, TTL_EXPIRED, TTL_IDLE };

/* busy: a command runs. *ret_next: when to ask again, if kept. */
enum ttl_verdict ttl_decide(const struct ttl *t, uint64_t now_ms, bool busy, uint64_t *ret_next);
/* New ends from now on; a NULL pointer keeps the old one. -ESTALE: already over,
 * -EINVAL: outside the limits (0 as idle limit removes it). */
int ttl_renew(struct ttl *t, uint64_t now_ms, bool busy, const uint64_t *lifetime_ms,
	      const uint64_t *idle_ms);
void ttl_touch(struct ttl *t, uint64_t now_ms);
/* A reading of the sandbox's CPU counter; counts as life if enough was used. */
void ttl_sample(struct ttl *t, uint64_t now_ms, uint64_t cpu_usec);
uint64_t ttl_sample_period_ms(const struct ttl *t);
/* 0 while it cannot end by idleness. */
uint64_t ttl_idle_end_ms(const struct ttl *t, bool busy);
