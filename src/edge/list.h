/* list.h: an intrusive doubly linked list for the edge's tables.
 *
 * A struct link lives inside its owner; a list is a link that points to itself
 * when empty. An entry is on one list per link. list_drop is harmless on an
 * entry that is on none (initialised or already dropped). Loop thread only.
 */
#pragma once
#include <stdbool.h>
#include "base/cleanup.h"

struct link {
	struct link *prev, *next;
};

static inline void list_init(struct link *l)
{
	l->prev = l->next = l;
}
static inline bool list_empty(const struct link *l)
{
	return l->next == l;
}
static inline void list_drop(struct link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	list_init(l);
}
static inline void list_append(struct link *list, struct link *l)
{
	l->prev = list->prev;
	l->next = list;
	list->prev->next = l;
	list->prev = l;
}
/* Moves all entries of `from` behind those of `to`. */
static inline void list_splice(struct link *to, struct link *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	from->prev->next = to;
	to->prev->next = from->next;
	to->prev = from->prev;
	list_init(from);
}
#define list_entry(l, type, member) container_of(l, type, member)
#define list_first(list, type, member) \
	(list_empty(list) ? NULL : list_entry((list)->next, type, member))
/* The body may drop `it`, but no other entry. */
#define list_for_each(it, list, type, member)                                          \
	for (type *it = list_entry((list)->next, type, member),                        \
		  *it##_next = list_entry(it->member.next, type, member);              \
	     &it->member != (list);                                                    \
	     it = it##_next, it##_next = list_entry(it->member.next, type, member))
