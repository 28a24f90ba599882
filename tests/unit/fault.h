/* fault.h: fails the n-th allocation of the code under test.
 *
 * The test programs are linked with --wrap for malloc, calloc and realloc, so
 * calls from our statically linked libraries and from the test go through here;
 * those inside libc or other shared libraries do not. Single-threaded.
 *
 *	for (unsigned n = 0;; n++) {
 *		fault_alloc_arm(n);
 *		r = thing_under_test();
 *		if (!fault_alloc_disarm()) break;   // it ran without reaching the n-th
 *		assert_int_equal(r, -ENOMEM);
 *	}
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

void fault_alloc_arm(unsigned nth); /* the nth allocation from now (0 = the next) fails, once */
bool fault_alloc_disarm(void);      /* true if it has been reached */

/* Allocations through the wrappers since the start: to show that a path makes none. */
size_t fault_alloc_count(void);
