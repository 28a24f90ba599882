/* clock.h: time in named units. Monotonic for deadlines, real time for people.
 * Thread-safe, no state. */
#pragma once
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_ns_(clockid_t id)
{
	struct timespec ts;
	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
static inline uint64_t now_mono_ns(void) { return clock_read_ns_(CLOCK_MONOTONIC); }
static inline uint64_t now_mono_ms(void) { return now_mono_ns() / 1000000u; }
static inline uint64_t now_real_ms(void) { return clock_read_ns_(CLOCK_REALTIME) / 1000000u; }
/* Since boot, suspended time included: comparable with a process's start time. */
static inline uint64_t now_boot_ms(void) { return clock_read_ns_(CLOCK_BOOTTIME) / 1000000u; }
